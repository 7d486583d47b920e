"""Which axis of an output is time, as far as the feeds can tell."""

from __future__ import annotations

from collections.abc import Sequence


def axis_of_time(shapes: Sequence[Sequence[int]], seen: Sequence[Sequence[tuple[int, int]]]) -> int | None:
    """The one axis that has, in every feed, as many elements as a recurrence saw steps; None if in doubt.

    `shapes` are those of one output, `seen` the (time, batch) of each recurrence, both feed by feed. Feeds of
    one length tell little apart: of several axes that fit, time is the one of the first two, if it is alone.
    """
    if len({len(shape) for shape in shapes}) != 1 or len({len(sizes) for sizes in seen}) != 1:
        return None
    steps = {tuple(time for time, _ in calls) for calls in zip(*seen, strict=True)}
    fitting = [axis for axis, widths in enumerate(zip(*shapes, strict=True)) if widths in steps]
    if len(fitting) > 1 and all(len(set(found)) == 1 for found in steps):
        fitting = [axis for axis in fitting if axis < 2]
    return fitting[0] if len(fitting) == 1 else None
