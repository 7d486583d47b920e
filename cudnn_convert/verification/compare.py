"""Compares two sets of outputs, and joins the results of all statements.

A comparison of nothing passes nothing. `outputs` compares one feed, `aggregate` joins the feeds of an output
for the report, `combine` joins the statements: equal, different, or nothing shown of some recurrence.

Statistics of an output's errors are for people and their plots, never for the verdict. Each feed gives a
`Figures`; `aggregate` makes one of those of all feeds.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array, is_float
from cudnn_convert.report.values import (
    Distribution,
    Element,
    GlueReport,
    OpsReport,
    OutputReport,
    OverTime,
    PieceReport,
)
from cudnn_convert.verification import effort

#: log10 of the share of the tolerance: the lowest bin's edge, the width of a bin, the number of bins.
_FIRST_BIN: Final = -8.0
_BIN_WIDTH: Final = 0.5
_BINS: Final = 28
#: The most points of an error over time.
_MOST_STEPS: Final = 512
_WHOLE: Final = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Figures:
    """The error statistics of an output on a feed.

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


def of_floats(
    actual: Array, expected: Array, gap: Array, share: Array, *, floor: float, axis: int | None
) -> Figures:
    """Compute the error statistics of two arrays of the same shape.

    `gap` is the absolute error and `share` its share of the tolerance; both are 0 where the two sides are the
    same NaN or infinity. A relative error is taken only of expected values larger than `floor`. `axis` is the
    axis of time or None.
    """
    if not expected.size:
        return Figures(max_abs=0.0, axis=axis, counts=(0,) * _BINS)
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
    """Return the element at `index` of the first feed; `aggregate` sets the feed."""
    index = tuple(int(k) for k in index)
    return Element(0, index, plain(expected[index]), plain(actual[index]))


def plain(value: Any) -> float | int | bool | str:
    """Return a value as JSON stores the value, else as text."""
    if isinstance(value, np.generic):
        value = float(value) if value.dtype.name == "bfloat16" else value.item()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    is_number = isinstance(value, (int, bool)) or (isinstance(value, float) and math.isfinite(value))
    return value if is_number else str(value)


def ulps(actual: Array, expected: Array) -> Array:
    """Count the floats between two arrays, in the coarser type.

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
    places = np.floor((np.log10(share) - _FIRST_BIN) / _BIN_WIDTH)
    counts = np.bincount(np.clip(places, 0, _BINS - 1).astype(int), minlength=_BINS)
    return tuple(counts.tolist())


def _largest(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


def _cosine(group: Sequence[Figures]) -> float | None:
    norm = math.sqrt(
        sum(figures.expected_square for figures in group) * sum(figures.found_square for figures in group)
    )
    return min(1.0, sum(figures.dot for figures in group) / norm) if norm else None


def _worst_element(group: Sequence[Figures]) -> Element | None:
    """Return the element with the largest share of the tolerance, and the feed."""
    feed = max(range(len(group)), key=lambda k: (group[k].element is not None, group[k].share))
    worst = group[feed].element
    return worst and replace(worst, feed=feed)


def _over_time(group: Sequence[Figures]) -> OverTime | None:
    axes = {figures.axis for figures in group}
    (axis, *others) = axes
    steps = max(len(figures.by_step) for figures in group)
    if axis is None or others or not steps:
        return None
    errors = [max(figures.by_step[k] for figures in group if k < len(figures.by_step)) for k in range(steps)]
    size = -(-steps // _MOST_STEPS)
    return OverTime(axis, size, tuple(max(errors[k : k + size]) for k in range(0, steps, size)))


def _distribution(group: Sequence[Figures]) -> Distribution | None:
    counts = [
        sum(column) for column in zip(*(figures.counts for figures in group if figures.counts), strict=True)
    ]
    if not counts:
        return None
    return Distribution(sum(figures.exact for figures in group), _FIRST_BIN, _BIN_WIDTH, tuple(counts))


def axis_of_time(shapes: Sequence[Sequence[int]], seen: Sequence[Sequence[tuple[int, int]]]) -> int | None:
    """Find the axis of an output with the recurrences' step counts as sizes.

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


_NO_AXES: Final[Mapping[str, int | None]] = MappingProxyType({})
_NO_FIGURES: Final = Figures()


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|a-b| <= atol + rtol*|b|`, and where the numbers come from; `origin` as in `OutputReport`."""

    atol: float
    rtol: float
    reason: str
    origin: str = "type"


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """A compared output of a feed; `needed` is the largest share of the tolerance."""

    output: str
    passed: bool
    compared: int
    worst: float
    needed: float
    message: str = ""
    excused: int = 0
    figures: Figures = _NO_FIGURES


def tolerance(
    dtype: np.dtype[Any],
    noise: float,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    most: float | None = None,
    why: str = "--max-error",
    margin: int = effort.NOISE_MARGIN_OF_HALF,
) -> Tolerance:
    """Return the bound for floats of `dtype`, or `margin` times the noise if larger.

    The noise is of some ways to round, and an artifact rounds in another: none is an extreme.

    `most` is the bound of an artifact that is inexact on purpose, which nothing widens; `why` names it.
    """
    if dtype.kind not in "fcV":  # bfloat16 is of kind V
        return Tolerance(0.0, 0.0, "equal")
    if most is not None:
        return Tolerance(most, 0.0, why, "max_error")
    base = effort.TOLERANCES.get(dtype.name, effort.TOLERANCES["float32"])
    wide = max(base, margin * noise)
    if atol is not None or rtol is not None:
        given = (wide if atol is None else atol, base if rtol is None else rtol)
        return Tolerance(*given, "asked for", "given")
    if wide > base:
        times = "twice" if margin == 2 else f"{margin} times"
        reason = f"{dtype.name}, widened to {times} the model's noise floor {noise:.1e}"
        return Tolerance(wide, base, reason, "noise")
    return Tolerance(base, base, dtype.name)


def is_small(noise: float, dtype: np.dtype[Any]) -> bool:
    """Return True if a noise is too small to widen the type's bound.

    Other evaluations cannot widen it then.
    """
    return effort.NOISE_MARGIN * noise <= tolerance(dtype, 0.0).atol


def outputs(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    bounds: Mapping[str, Tolerance],
    slack: Mapping[str, Array],
    *,
    single: bool = False,
    mixed: bool = False,
    axes: Mapping[str, int | None] = _NO_AXES,
) -> list[OutputDifference]:
    """Compare every expected output with the found output; a missing or extra output fails.

    `slack` marks, per output of integers, the elements whose deciding scores are too close to call.
    `single`: floats of every type are found as float32; `mixed`: as floats of any type. `axes`: which axis of
    an output is time, where told.
    """
    same = _is_any_float if mixed else partial(_is_same_type, single=single)
    results = []
    for name, value in expected.items():
        sides = (actual.get(name), value, bounds[name], slack.get(name))
        results.append(_compare_output(name, *sides, axis=axes.get(name), same=same))
    extra = (name for name in actual if name not in expected)
    return results + [OutputDifference(name, False, 0, np.inf, np.inf, "not expected") for name in extra]


def _compare_output(
    name: str,
    actual: Array | None,
    expected: Array,
    bound: Tolerance,
    slack: Array | None,
    *,
    axis: int | None,
    same: Callable[[np.dtype[Any], np.dtype[Any]], bool],
) -> OutputDifference:
    if actual is None:
        return OutputDifference(name, False, 0, np.inf, np.inf, "missing")
    if actual.shape != expected.shape or not same(actual.dtype, expected.dtype):
        message = f"expected {expected.dtype}{list(expected.shape)}, found {actual.dtype}{list(actual.shape)}"
        return OutputDifference(name, False, 0, np.inf, np.inf, message)
    if expected.dtype.kind not in "fc" and expected.dtype.name != "bfloat16":
        return _exact(name, actual, expected, slack)
    return _close(name, actual, expected, bound, axis)


def _is_any_float(actual: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    return (is_float(actual) and is_float(expected)) or _is_same_type(actual, expected, single=False)


def _is_same_type(actual: np.dtype[Any], expected: np.dtype[Any], *, single: bool) -> bool:
    """Return True if two types count as equal.

    ONNX artifacts give float32 for bfloat16; strings have a type in each runtime.
    """
    if single and expected.kind == "f":
        return actual == np.float32
    if expected.name == "bfloat16":
        return actual.name in ("bfloat16", "float32")
    return actual == expected or {actual.kind, expected.kind} <= set("OSU")


def _exact(name: str, actual: Array, expected: Array, slack: Array | None) -> OutputDifference:
    wrong = np.asarray(actual != expected)
    excused = int(np.sum(wrong & slack)) if slack is not None else 0
    left = int(np.sum(wrong)) - excused
    message, figures = "", Figures()
    if left:
        missed = wrong if slack is None else wrong & ~slack
        figures = Figures(_first(actual, expected, missed), share=float(left))
        message = f"{_describe_element(figures)}; {left} of {wrong.size} values differ"
    return OutputDifference(name, not left, wrong.size, float(left), float(left), message, excused, figures)


def _first(actual: Array, expected: Array, wrong: Array) -> Element:
    return element(actual, expected, np.unravel_index(int(np.argmax(wrong)), wrong.shape))


def _describe_element(figures: Figures) -> str:
    assert figures.element is not None
    return f"at {[*figures.element.index]} expected {figures.element.expected}, found {figures.element.found}"


def _close(name: str, given: Array, wanted: Array, bound: Tolerance, axis: int | None) -> OutputDifference:
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    actual, expected = given.astype(wide), wanted.astype(wide)
    odd = ~np.isfinite(expected) | ~np.isfinite(actual)
    other = odd & (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
    if other.any():
        figures = Figures(_first(given, wanted, other), share=np.inf)
        message = f"NaN or Inf at other places: {_describe_element(figures)}"
        return OutputDifference(name, False, expected.size, np.inf, np.inf, message, figures=figures)
    gap = np.abs(np.subtract(actual, expected, where=~odd, out=np.zeros_like(expected)))
    limit = bound.atol + bound.rtol * np.where(odd, 0, np.abs(expected))
    # Equal values need nothing, even where nothing is allowed.
    share = np.divide(gap, limit, where=limit > 0, out=np.where(gap > 0, np.inf, 0.0))
    worst, needed = float(gap.max(initial=0.0)), float(share.max(initial=0.0))
    message = "NaN or Inf at the same places on both sides" if odd.any() else ""
    if needed > 1:
        index = np.unravel_index(int(np.argmax(share)), gap.shape)
        message = (
            f"at {[int(i) for i in index]} expected {expected[index]:.9g}, found {actual[index]:.9g}, "
            f"allowed {limit[index]:.1e}"
        )
    figures = of_floats(given, wanted, gap, share, floor=bound.atol, axis=axis)
    compared = expected.size - int(np.sum(np.isnan(expected)))  # NaN on both sides says nothing
    return OutputDifference(name, needed <= 1, compared, worst, needed, message, figures=figures)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The combined verdict; `passed` is true if all comparisons agree.

    The other fields are as in `Verification`.
    """

    passed: bool
    end_to_end: str
    unproven: tuple[str, ...]
    warnings: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def proven_alone(asked: Sequence[PieceReport]) -> list[str]:
    """Return the recurrences with every layer asked alone."""
    lost = {recurrence.node for recurrence in asked if not recurrence.asked}
    return list(dict.fromkeys(recurrence.node for recurrence in asked if recurrence.node not in lost))


def combine(
    outputs: Sequence[OutputReport],
    asked: Sequence[PieceReport],
    moving: Mapping[str, frozenset[str]],
    *,
    still: Collection[str] = (),
    glue: GlueReport | None = None,
    ops: OpsReport | None = None,
) -> Verdict:
    """Combine the outputs, and the recurrences asked alone, to a verdict.

    `moving`: by recurrence the outputs that move with it. Those that are judged prove a recurrence that was
    not asked by itself. `still`: the recurrences that move no output. `glue`: what stands around them, where
    the outputs cannot show it; `ops`: the same, op by op.
    """
    differ = not all(output.passed for output in outputs)
    unjudged = [output.output for output in outputs if not output.judged]
    sharp = {output.output for output in outputs} - {*unjudged}
    alone = proven_alone(asked)
    unproven = [node for node, keys in moving.items() if node not in alone and not keys & sharp]
    # Of others nothing says which outputs move with them: one that is judged has to do.
    others = dict.fromkeys(output.node for output in asked if not output.asked and output.node not in moving)
    unproven += [] if sharp else others
    warnings = []
    if hidden := [node for node in alone if node in still]:
        warnings.append(
            f"the outputs on these inputs do not depend on {', '.join(hidden)}, asked by itself alone; give "
            "inputs on which they do with --data"
        )
    if unjudged and alone:
        warnings.append(
            f"recurrences are equal by themselves; end to end not judged: {', '.join(unjudged)}; "
            "give other inputs with --data"
        )
    remarks: list[str] = []
    if ops is None or not ops.asked:  # that says more than what the glue left open
        remarks += _remark_on_glue(glue, alone)
    return Verdict(
        not differ
        and all(output.passed for output in asked)
        and (glue is None or glue.passed)
        and (ops is None or ops.passed),
        "different" if differ else "not judged" if unjudged else "equal",
        tuple(unproven),
        tuple(warnings),
        tuple(remarks),
    )


def _remark_on_glue(glue: GlueReport | None, alone: Sequence[str]) -> Iterator[str]:
    """Yield remarks on the glue around the recurrences asked `alone`."""
    if glue is None:
        return
    if not glue.asked and alone:
        yield f"what stands around the recurrences was not run by itself: {glue.message}"
    if glue.asked and glue.passed and glue.message:
        yield f"around the recurrences {glue.message}"
    if glue.unjudged:
        yield f"around the recurrences noise hides {', '.join(glue.unjudged)}"


def aggregate(group: Sequence[OutputDifference], bounds: Mapping[str, Tolerance]) -> OutputReport:
    """Join an output over all feeds.

    An output that is always empty, or always NaN, does not pass.
    """
    worst = max(group, key=lambda difference: (not difference.passed, difference.needed))
    compared = sum(difference.compared for difference in group)
    message = worst.message or next(filter(None, (difference.message for difference in group)), "")
    bound = bounds.get(worst.output, Tolerance(0.0, 0.0, "none"))
    figures = [difference.figures for difference in group]
    max_abs = _largest(each.max_abs for each in figures)
    return OutputReport(
        output=worst.output,
        passed=compared > 0 and all(difference.passed for difference in group),
        compared=compared,
        worst=worst.worst,
        needed=worst.needed,
        atol=bound.atol,
        rtol=bound.rtol,
        reason=bound.reason,
        excused=sum(difference.excused for difference in group),
        message=message if compared or message else "empty for every feed",
        max_abs=max_abs,
        max_rel=_largest(each.max_rel for each in figures),
        rel_floor=None if max_abs is None else bound.atol,
        ulp=_largest(each.ulp for each in figures),
        cosine=_cosine(figures),
        worst_element=_worst_element(figures),
        over_time=_over_time(figures),
        distribution=_distribution(figures),
        origin=bound.origin,
    )


def warnings(reports: Sequence[OutputReport]) -> tuple[str, ...]:
    """Return warnings for passed outputs in need of different inputs."""
    return tuple(f"{each.output}: {each.message}" for each in reports if each.passed and each.message)


def remarks(reports: Sequence[OutputReport]) -> tuple[str, ...]:
    """Return remarks on passed outputs judged in an unusual way."""
    lines = []
    for report in reports:
        if report.origin == "noise" and report.judged:
            lines.append(f"{report.output}: ill-conditioned; compared as {report.reason}")
        if report.excused:
            lines.append(f"{report.output}: {report.excused} choices between scores too close to call differ")
    return tuple(lines)
