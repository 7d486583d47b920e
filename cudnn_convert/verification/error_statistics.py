"""Statistics of an output's errors for reports, and which axis is time.

They are for people and their plots, never for the verdict. Each feed gives a `Figures`; `merge_figures` makes
one of those of all feeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.report import Distribution, Element, OverTime

#: log10 of the share of the tolerance: the lowest bin's edge, the width of a bin, the number of bins.
FIRST: Final = -8.0
WIDTH: Final = 0.5
BINS: Final = 28
#: The most points of an error over time.
MOST: Final = 512
_WHOLE: Final = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Figures:
    """The error statistics of one output on one feed.

    `dot`, `expected_square` and `found_square` are the sums for the cosine. `share` is the part of its
    tolerance that the worst element used; `by_step` has the largest error of each time step.
    """

    element: Element | None = None
    share: float = 0.0
    max_abs: float | None = None
    max_rel: float | None = None
    ulp: int | None = None
    dot: float = 0.0
    expected_square: float = 0.0
    found_square: float = 0.0
    axis: int | None = None
    by_step: tuple[float, ...] = ()
    exact: int = 0
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """The figures of all feeds, by the names of `OutputReport`."""

    max_abs: float | None
    max_rel: float | None
    ulp: int | None
    cosine: float | None
    worst_element: Element | None
    over_time: OverTime | None
    distribution: Distribution | None


def of_floats(
    actual: Array, expected: Array, gap: Array, share: Array, *, floor: float, axis: int | None
) -> Figures:
    """Compute the error statistics of two arrays of one shape.

    `gap` is the absolute error and `share` its share of the tolerance; both are 0 where the two sides are the
    same NaN or infinity. A relative error is taken only of expected values larger than `floor`. `axis` is the
    axis of time or None.
    """
    if not expected.size:
        return Figures(max_abs=0.0, axis=axis, counts=(0,) * BINS)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    wide_expected, other = expected.astype(wide), actual.astype(wide)
    finite = np.isfinite(wide_expected) & np.isfinite(other)
    sizes = np.abs(np.where(finite, wide_expected, 0))
    relative = gap[finite & (sizes > floor)] / sizes[finite & (sizes > floor)]
    index = np.unravel_index(int(np.argmax(share)), share.shape)
    others = [k for k in range(gap.ndim) if k != axis]
    return Figures(
        element=element(actual, expected, index),
        share=float(share[index]),
        max_abs=float(np.max(gap)),
        max_rel=float(np.max(relative)) if relative.size else None,
        ulp=None if expected.dtype.kind == "c" else int(ulps(actual, expected)[finite].max(initial=0)),
        dot=float(np.vdot(wide_expected[finite], other[finite]).real),
        expected_square=float(np.vdot(wide_expected[finite], wide_expected[finite]).real),
        found_square=float(np.vdot(other[finite], other[finite]).real),
        axis=axis,
        by_step=() if axis is None else tuple(gap.max(axis=tuple(others)).tolist()),
        exact=int(np.sum(gap == 0)),
        counts=_counts(share[gap > 0]),
    )


def element(actual: Array, expected: Array, index: Sequence[Any]) -> Element:
    """The element at `index` of the first feed; `merge_figures` says which feed it was."""
    index = tuple(int(k) for k in index)
    return Element(0, index, plain(expected[index]), plain(actual[index]))


def plain(value: Any) -> float | int | bool | str:
    """A value as JSON has it, or as text where JSON has none."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.generic):
        value = float(value) if value.dtype.name == "bfloat16" else value.item()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_number = isinstance(value, (int, bool)) or (isinstance(value, float) and math.isfinite(value))
    return value if is_number else str(value)


def ulps(actual: Array, expected: Array) -> Array:
    """Count the floats between two arrays, in the coarser of their types.

    The result is uint64; between 0.0 and -0.0 the distance is 0. IEEE 754: the bits of a float without its
    sign, read as a whole number, grow by one from float to float.
    """
    dtype = min(actual.dtype, expected.dtype, key=lambda kind: kind.itemsize)
    whole = _WHOLE[dtype.itemsize]
    negative, size = [], []
    for side in (actual, expected):
        with np.errstate(over="ignore"):  # to an infinity of the coarser type
            bits = np.ascontiguousarray(side.astype(dtype)).view(whole).reshape(side.shape).astype(np.uint64)
        sign = np.uint64(1) << np.uint64(8 * dtype.itemsize - 1)
        negative.append((bits & sign) > 0)
        size.append(bits & ~sign)
    with np.errstate(over="ignore"):  # a scalar warns of the side that is not taken
        apart = np.where(size[0] > size[1], size[0] - size[1], size[1] - size[0])
    return np.asarray(np.where(negative[0] == negative[1], apart, size[0] + size[1]))


def _counts(share: Array) -> tuple[int, ...]:
    places = np.floor((np.log10(share) - FIRST) / WIDTH)
    counts = np.bincount(np.clip(places, 0, BINS - 1).astype(int), minlength=BINS)
    return tuple(counts.tolist())


def merge_figures(group: Sequence[Figures]) -> Merged:
    """One set of figures for all feeds."""
    worst = max(range(len(group)), key=lambda k: (group[k].element is not None, group[k].share))
    worst_element = group[worst].element
    norm = math.sqrt(
        sum(figures.expected_square for figures in group) * sum(figures.found_square for figures in group)
    )
    return Merged(
        max_abs=_largest([figures.max_abs for figures in group]),
        max_rel=_largest([figures.max_rel for figures in group]),
        ulp=_largest([figures.ulp for figures in group]),
        cosine=min(1.0, sum(figures.dot for figures in group) / norm) if norm else None,
        worst_element=worst_element and replace(worst_element, feed=worst),
        over_time=_over_time(group),
        distribution=_distribution(group),
    )


def _largest(values: Sequence[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _over_time(group: Sequence[Figures]) -> OverTime | None:
    axes = {figures.axis for figures in group}
    (axis, *others) = axes
    steps = max(len(figures.by_step) for figures in group)
    if axis is None or others or not steps:
        return None
    errors = [max(figures.by_step[k] for figures in group if k < len(figures.by_step)) for k in range(steps)]
    size = -(-steps // MOST)
    return OverTime(axis, size, tuple(max(errors[k : k + size]) for k in range(0, steps, size)))


def _distribution(group: Sequence[Figures]) -> Distribution | None:
    counts = [
        sum(column) for column in zip(*(figures.counts for figures in group if figures.counts), strict=True)
    ]
    if not counts:
        return None
    return Distribution(sum(figures.exact for figures in group), FIRST, WIDTH, tuple(counts))


def axis_of_time(shapes: Sequence[Sequence[int]], seen: Sequence[Sequence[tuple[int, int]]]) -> int | None:
    """Find the axis of an output whose sizes are the recurrences' step counts.

    `shapes` are those of one output, `seen` the (time, batch) of each recurrence, both feed by feed. None
    where no axis or several fit. If all feeds have one length, only the first two axes are considered.
    """
    if len({len(shape) for shape in shapes}) != 1 or len({len(sizes) for sizes in seen}) != 1:
        return None
    steps = {tuple(time for time, _ in calls) for calls in zip(*seen, strict=True)}
    fitting = [axis for axis, widths in enumerate(zip(*shapes, strict=True)) if widths in steps]
    if len(fitting) > 1 and all(len(set(step)) == 1 for step in steps):
        fitting = [axis for axis in fitting if axis < 2]
    return fitting[0] if len(fitting) == 1 else None
