"""Every recurrence by itself: asked where an artifact computes it, judged by the float64 reference."""
