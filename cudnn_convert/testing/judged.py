"""Two sides on the same calls: the walk to a `Verification`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array, is_float
from cudnn_convert.report import Subject, Verification
from cudnn_convert.testing import pairing, sides, steps
from cudnn_convert.testing.sides import Side
from cudnn_convert.verification import compare, merge
from cudnn_convert.verification.compare import Tolerance


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


def judged(actual: Side, expected: Side, feeds: Sequence[Mapping[str, Array]], terms: Terms) -> Verification:
    """Whether `actual` answers each of the `feeds`, by the keys of `expected`, as `expected` does."""
    keys = [*feeds[0]]
    told = {theirs: ours for ours, theirs in terms.inputs.items()}
    if strange := [key for key in told if key not in keys]:
        raise UsageError(f"inputs: expected those of expected, {', '.join(keys)}, found {', '.join(strange)}")
    taken = pairing.inputs(actual, keys, told)
    wanted = _answers(expected, feeds, pairing.inputs(expected, keys, {}))
    found = _answers(actual, feeds, taken)
    pairs = pairing.outputs([*found[0]], [*wanted[0]], terms.outputs)
    # One too many may be called as another's partner is.
    labels = {name: pairs.get(name, f"actual's {name}" if name in wanted[0] else name) for name in found[0]}
    found = [{labels[name]: value for name, value in answer.items()} for answer in found]
    bounds = _bounds(wanted[0], expected, terms)
    axes = steps.axes(terms.time_axis, feeds, wanted)
    sizes = steps.lengths(terms.lengths, feeds)
    differences = []
    for k, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        late = steps.beyond(theirs, sizes[k], axes) if sizes is not None else {}
        told_apart = compare.outputs(
            steps.without(ours, late),
            steps.without(theirs, late),
            bounds,
            {},
            mixed=terms.dtype is not None,
            axes=axes,
        )
        differences.append([steps.uncounted(one, late) for one in told_apart])
    reports = tuple(merge.merged(group, bounds) for group in zip(*differences, strict=True))
    return Verification(
        all(report.passed for report in reports),
        None,
        tuple({key: value.shape for key, value in feed.items()} for feed in feeds),
        reports,
        merge.warnings(reports),
        subject=_subject(actual, expected, {ours: key for key, ours in taken.items()}, pairs),
        recording=expected.recording,
    )


def _answers(
    side: Side, feeds: Sequence[Mapping[str, Array]], taken: Mapping[str, str]
) -> list[dict[str, Array]]:
    """The side's answers by its own names, one a call, in order: it may remember."""
    if side.calls is not None and side.calls != len(feeds):
        raise UsageError(f"{side.name}: expected answers to {len(feeds)} calls, found {side.calls}")
    found: list[dict[str, Array]] = []
    for k, feed in enumerate(feeds, 1):
        if [*feed] != [*feeds[0]] and set(feed) != set(feeds[0]):
            raise UsageError(
                f"feeds: call {k}: expected {', '.join(feeds[0])} as in the first, found {', '.join(feed)}"
            )
        # A copy: what a function does to its arrays is not what the other side is fed.
        answer = side.run({taken[key]: value.copy() for key, value in feed.items()})
        found.append(sides.by_name(answer, f"{side.name}: call {k}"))
        if set(found[-1]) != set(found[0]):
            first, now = (", ".join(one) for one in (found[0], found[-1]))
            raise UsageError(f"{side.name}: call {k}: expected {first} as in the first, found {now}")
    return found


def _bounds(wanted: Mapping[str, Array], expected: Side, terms: Terms) -> dict[str, Tolerance]:
    noise = terms.noise if isinstance(terms.noise, Mapping) else dict.fromkeys(wanted, terms.noise)
    if strange := [name for name in noise if name not in wanted]:
        raise UsageError(f"noise: expected outputs of {', '.join(wanted)}, found {', '.join(strange)}")
    found = {}
    for name, value in wanted.items():
        kind = terms.dtype if terms.dtype is not None and is_float(value.dtype) else value.dtype
        bound = compare.tolerance(kind, noise.get(name, 0.0), atol=terms.atol, rtol=terms.rtol)
        found[name] = expected.bound(bound, kind)
    return found


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
