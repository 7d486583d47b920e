"""Compares two sides on the same calls, and words a failure.

Which axis of an output is time, and which of its steps are compared.

Two sides on the same calls: the walk to a `Verification`.

What a failure says: the lines of `cudnn-convert verify`, and the figures of its page as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError, VerificationError
from cudnn_convert.model import Array, is_float
from cudnn_convert.report import OutputReport, OverTime, Subject, Verification
from cudnn_convert.testing import sides
from cudnn_convert.testing.sides import Side, array, is_array
from cudnn_convert.verification import compare
from cudnn_convert.verification.compare import Difference, Tolerance

Answers = Sequence[Mapping[str, Array]]


def time_axes(given: int | Mapping[str, int] | None, feeds: Answers, answers: Answers) -> dict[str, int]:
    """The axis of time of each output that has one. Raises UsageError.

    `given`: by output, or one for every output of three axes or more that is as long there as an input is.
    """
    names = answers[0]
    if isinstance(given, Mapping):
        ranks = {name: min(answer[name].ndim for answer in answers) for name in names}
        wrong = [f"{name}: {axis}" for name, axis in given.items() if not 0 <= axis < ranks.get(name, 0)]
        if wrong:
            listed = ", ".join(f"{name} of {rank} axes" for name, rank in ranks.items())
            raise UsageError(f"time_axis: expected axes of {listed}, found {', '.join(wrong)}")
        return dict(given)
    if given is None:
        return {}
    if given < 0:
        raise UsageError(f"time_axis: expected an axis counted from 0, found {given}")
    pairs = [*zip(feeds, answers, strict=True)]
    return {
        name: given
        for name in names
        if all(
            answer[name].ndim > max(given, 2)
            and answer[name].shape[given]
            in {value.shape[given] for value in feed.values() if value.ndim > given}
            for feed, answer in pairs
        )
    }


def lengths(given: Any, feeds: Answers) -> list[Array] | None:
    """How many steps each row of each call has, `[batch]`: of the input of that key, or as given."""
    if given is None:
        return None
    if isinstance(given, str):
        if any(given not in feed for feed in feeds):
            raise UsageError(f"lengths: expected one of {', '.join(feeds[0])}, found {given}")
        sizes = [feed[given] for feed in feeds]
    else:
        sizes = [array(size, "lengths") for size in ([given] if is_array(given) else given)]
    strange = [size for size in sizes if size.ndim != 1 or size.dtype.kind not in "iu"]
    if len(sizes) != len(feeds) or strange:
        what = f"{len(feeds)} arrays of integers [batch], one a call"
        listed = ", ".join(f"{size.dtype}{list(size.shape)}" for size in sizes) or "none"
        raise UsageError(f"lengths: expected {what}, found {listed}")
    return sizes


def beyond(values: Mapping[str, Array], sizes: Array, axes: Mapping[str, int]) -> dict[str, Array]:
    """Where each output lies past its row's length: True there, in the output's shape.

    The batch is the first axis, or the second where time is the first. Raises UsageError where no output has
    an axis of time, or one's batch is not that of the lengths.
    """
    if not axes:
        raise UsageError(
            "lengths: expected outputs with an axis of time, found none; name it with time_axis="
        )
    masks = {}
    for name, axis in axes.items():
        value, batch = values[name], 0 if axis else 1
        if value.ndim < 2 or value.shape[batch] != sizes.size:
            shape = f"{name} {list(value.shape)}"
            raise UsageError(f"lengths: expected {sizes.size} rows in axis {batch} of outputs, found {shape}")
        steps, rows = ([-1 if k == own else 1 for k in range(value.ndim)] for own in (axis, batch))
        late = np.arange(value.shape[axis]).reshape(steps) >= sizes.reshape(rows)
        masks[name] = np.broadcast_to(late, value.shape)
    return masks


def without(values: Mapping[str, Array], late: Mapping[str, Array]) -> dict[str, Array]:
    """The values with zeros, or what is nothing in their type, where they are `late`."""
    kept = dict(values)
    for name, there in late.items():
        if name in kept and kept[name].shape == there.shape:
            kept[name] = np.where(there, np.zeros((), kept[name].dtype), kept[name])
    return kept


def compare_without(difference: Difference, late: Mapping[str, Array]) -> Difference:
    """The difference of values that were compared `without` those that are `late`, which prove nothing."""
    there = late.get(difference.output)
    if there is None or not difference.compared:
        return difference
    count = int(there.sum())
    figures = difference.figures
    if figures.counts:
        figures = replace(figures, exact=figures.exact - count)
    return replace(difference, compared=difference.compared - count, figures=figures)


@dataclass(frozen=True, slots=True)
class Terms:
    """How two sides are compared; the parameters of `assert_equivalent`, by the same names."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    atol: float | None
    rtol: float | None
    noise: float | Mapping[str, float]
    dtype: np.dtype[Any] | None
    time_axis: int | Mapping[str, int] | None
    lengths: Any


def judge_sides(
    actual: Side, expected: Side, feeds: Sequence[Mapping[str, Array]], terms: Terms
) -> Verification:
    """Whether `actual` answers each of the `feeds`, by the keys of `expected`, as `expected` does."""
    keys = [*feeds[0]]
    own_names = {theirs: ours for ours, theirs in terms.inputs.items()}
    if strange := [key for key in own_names if key not in keys]:
        raise UsageError(f"inputs: expected those of expected, {', '.join(keys)}, found {', '.join(strange)}")
    taken = sides.inputs(actual, keys, own_names)
    wanted = _answers(expected, feeds, sides.inputs(expected, keys, {}))
    answers = _answers(actual, feeds, taken)
    pairs = sides.outputs([*answers[0]], [*wanted[0]], terms.outputs)
    # One too many may be called as another's partner is.
    labels = {name: pairs.get(name, f"actual's {name}" if name in wanted[0] else name) for name in answers[0]}
    answers = [{labels[name]: value for name, value in answer.items()} for answer in answers]
    bounds = _bounds(wanted[0], expected, terms)
    axes = time_axes(terms.time_axis, feeds, wanted)
    sizes = lengths(terms.lengths, feeds)
    differences = []
    for k, (ours, theirs) in enumerate(zip(answers, wanted, strict=True)):
        late = beyond(theirs, sizes[k], axes) if sizes is not None else {}
        comparisons = compare.outputs(
            without(ours, late),
            without(theirs, late),
            bounds,
            {},
            mixed=terms.dtype is not None,
            axes=axes,
        )
        differences.append([compare_without(comparison, late) for comparison in comparisons])
    reports = tuple(compare.aggregate(group, bounds) for group in zip(*differences, strict=True))
    return Verification(
        all(report.passed for report in reports),
        None,
        tuple({key: value.shape for key, value in feed.items()} for feed in feeds),
        reports,
        compare.warnings(reports),
        subject=_subject(actual, expected, {ours: key for key, ours in taken.items()}, pairs),
        recording=expected.recording,
    )


def _answers(
    side: Side, feeds: Sequence[Mapping[str, Array]], taken: Mapping[str, str]
) -> list[dict[str, Array]]:
    """The side's answers by its own names, one a call, in order: it may remember."""
    if side.calls is not None and side.calls != len(feeds):
        raise UsageError(f"{side.name}: expected answers to {len(feeds)} calls, found {side.calls}")
    answers: list[dict[str, Array]] = []
    for k, feed in enumerate(feeds, 1):
        if [*feed] != [*feeds[0]] and set(feed) != set(feeds[0]):
            raise UsageError(
                f"feeds: call {k}: expected {', '.join(feeds[0])} as in the first, found {', '.join(feed)}"
            )
        # A copy: what a function does to its arrays is not what the other side is fed.
        answer = side.run({taken[key]: value.copy() for key, value in feed.items()})
        answers.append(sides.by_name(answer, f"{side.name}: call {k}"))
        if set(answers[-1]) != set(answers[0]):
            first, now = (", ".join(answer) for answer in (answers[0], answers[-1]))
            raise UsageError(f"{side.name}: call {k}: expected {first} as in the first, found {now}")
    return answers


def _bounds(wanted: Mapping[str, Array], expected: Side, terms: Terms) -> dict[str, Tolerance]:
    noise = terms.noise if isinstance(terms.noise, Mapping) else dict.fromkeys(wanted, terms.noise)
    if strange := [name for name in noise if name not in wanted]:
        raise UsageError(f"noise: expected outputs of {', '.join(wanted)}, found {', '.join(strange)}")
    bounds = {}
    for name, value in wanted.items():
        kind = terms.dtype if terms.dtype is not None and is_float(value.dtype) else value.dtype
        bound = compare.tolerance(kind, noise.get(name, 0.0), atol=terms.atol, rtol=terms.rtol)
        bounds[name] = expected.bound(bound, kind)
    return bounds


def _subject(actual: Side, expected: Side, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> Subject:
    return Subject(
        source=expected.name,
        kind=expected.kind,
        format=actual.kind,
        artifact=actual.name,
        inputs=dict(inputs),
        outputs=dict(outputs),
        recurrences=(),
        notes=(),
    )


_HEADS: Final = (
    *("output", "verdict", "values", "max abs", "max rel", "max ULP", "cosine", "of tolerance"),
    *("worst element", "expected", "found", "judged as"),
)
#: The most points of an error over time.
_POINTS: Final = 8
_NOTHING: Final = "-"
#: From here on a share of the tolerance is told in times, as on the page.
_TIMES: Final = 10


class EquivalenceError(VerificationError, AssertionError):
    """Two models answer differently; `report` is the `Verification` that says where."""

    __module__ = "cudnn_convert.testing"


def lines(result: Verification) -> Iterator[str]:
    """The message of a failure, a line each."""
    wrong = [output for output in result.outputs if not output.passed]
    subject = result.subject
    sides = f": {subject.artifact} against {subject.source}" if subject else ""
    yield f"{len(wrong)} of {len(result.outputs)} outputs differ{sides}"
    for output in wrong:
        yield f"output {output.output}: {output.message}"
    yield from _table([_HEADS, *map(_row, result.outputs)])
    for output in result.outputs:
        if output.over_time is not None and not output.passed:
            yield f"{output.output}: largest error from step: {_over_time(output.over_time)}"
    for warning in result.warnings:
        yield f"warning: {warning}"
    shapes = (", ".join(f"{key} {[*shape]}" for key, shape in feed.items()) for feed in result.feeds)
    yield f"compared on: {'; '.join(shapes)}"


def _row(output: OutputReport) -> Sequence[str]:
    worst = output.worst_element
    exact = output.max_abs is None
    return (
        output.output,
        "equal" if output.passed else "different",
        str(output.compared),
        _number(output.max_abs, ".2e"),
        _number(output.max_rel, ".2e"),
        _number(output.ulp, "d"),
        _number(output.cosine, ".9f"),
        _NOTHING if exact else _share(output.needed),
        f"feed {worst.feed + 1} {[*worst.index]}" if worst else _NOTHING,
        _value(worst.expected) if worst else _NOTHING,
        _value(worst.found) if worst else _NOTHING,
        output.reason,
    )


def _number(value: float | int | None, form: str) -> str:
    return _NOTHING if value is None else format(value, form)


def _share(needed: float) -> str:
    """Of the tolerance: in per cent, or as how many times it where that is more to read."""
    return f"{needed:,.0f} times" if _TIMES <= needed < math.inf else f"{needed:.1%}"


def _value(value: float | int | bool | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _over_time(over_time: OverTime) -> str:
    """At most `_POINTS` steps along the axis, each with the largest error from there to the next."""
    size = -(-len(over_time.errors) // _POINTS)
    starts = range(0, len(over_time.errors), size)
    return ", ".join(f"{k * over_time.group}: {max(over_time.errors[k : k + size]):.1e}" for k in starts)
