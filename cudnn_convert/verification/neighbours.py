"""Asks the source for the influence of neighbour rows on the answer to a row.

The first row of a feed is asked alone, and once more among copies of itself. A model that normalises by the
batch gives other answers then.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.verification import effort
from cudnn_convert.verification.trials import Trial


def measure_influence(
    trial: Trial, outputs: Mapping[str, int], answer: Callable[[Mapping[str, Array]], Sequence[Array] | None]
) -> dict[str, float]:
    """Measure the movement of a row's answer by further rows, per output.

    `outputs` has by key their places in the answers. `answer` runs the source, and gives None where that
    refuses a feed. Outputs without rows of their own, or without floats, are left out.
    """
    batches = [
        sizes[0][1] if sizes else _first_size(feed)
        for sizes, feed in zip(trial.sizes, trial.feeds, strict=True)
    ]
    several = [number for number, batch in enumerate(batches) if batch > 1]
    if not several:
        return {}
    number = min(several, key=trial.count_values)  # the smallest feed of several rows
    feed = trial.feeds[number]
    axes = {name: _find_axis([each[name].shape for each in trial.feeds], batches) for name in feed}
    moved: dict[str, float] = {}
    for count in (1, batches[number]):
        given = {name: _repeat_row(value, axes[name], count) for name, value in feed.items()}
        answers = answer(given)
        if answers is None:
            continue  # the source takes no batch of this size
        for key, position in outputs.items():
            axis = _find_axis([values[position].shape for values in trial.exact], batches)
            whole, alone = trial.exact[number][position], answers[position]
            if axis is not None and whole.dtype.kind == "f" and whole.ndim == alone.ndim:
                moved[key] = max(moved.get(key, 0.0), _compare_rows(whole, alone, axis))
    return moved


def describe(
    influence: Mapping[str, float], spreads: Mapping[str, float], noise: Mapping[str, float]
) -> list[str]:
    """Return a warning for each output moved by neighbour rows beyond rounding."""
    return [
        f"output {key}: the answer to a row depends on the other rows of its batch, by {difference:.1e}"
        for key, difference in influence.items()
        if difference > max(effort.NEIGHBOUR_SHARE * spreads[key], effort.NEIGHBOUR_NOISE_MARGIN * noise[key])
    ]


def _first_size(feed: Mapping[str, Array]) -> int:
    return max((value.shape[0] for value in feed.values() if value.ndim), default=0)


def _find_axis(shapes: Sequence[tuple[int, ...]], batches: Sequence[int]) -> int | None:
    """Return the first axis of the batch's size in every feed."""
    if len({len(shape) for shape in shapes}) > 1:
        return None
    widths, wanted = [*zip(*shapes, strict=True)], tuple(batches)
    return widths.index(wanted) if wanted in widths else None


def _repeat_row(value: Array, axis: int | None, count: int) -> Array:
    return value if axis is None else np.repeat(np.take(value, [0], axis), count, axis)


def _compare_rows(whole: Array, alone: Array, axis: int) -> float:
    """Return the largest difference of two first rows, where both have values."""
    rows = [np.take(value, 0, axis).astype(np.float64) for value in (whole, alone)]
    shape = tuple(slice(min(sizes)) for sizes in zip(*(row.shape for row in rows), strict=True))
    first, second = (row[shape] for row in rows)
    known = np.isfinite(first) & np.isfinite(second)
    return float(np.max(np.abs(first[known] - second[known]), initial=0.0))
