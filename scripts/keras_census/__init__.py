"""Layers of Keras, one or two in a model, with what changes their numbers: what each writer's own code answers."""
