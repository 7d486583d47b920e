"""A recording of the original as the judge, in the place of the reference's answers.

The reference still runs beside it: it knows the types and shapes that the source's outputs have, the floor of
noise, the scores behind a choice, and whether a recording that the artifact fails fails the source too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification import compare, recording, way
from cudnn_convert.verification.compare import Tolerance
from cudnn_convert.verification.recording import FLAG, Recording
from cudnn_convert.verification.way import Source

#: TF32 keeps 10 of float32's 23 bits of mantissa (tensorflow/community rfcs/20200520-tensor-float-32.md).
TF32: Final = 2.0**-10


@dataclass(frozen=True, slots=True)
class Golden:
    """A recording in the names of a plan: `feeds` and `answers` by tensor, one a call."""

    recording: Recording
    feeds: tuple[dict[str, Array], ...]
    answers: tuple[dict[str, Array], ...]

    @property
    def facts(self) -> dict[str, Any]:
        """What the report says of it."""
        return dict(self.recording.facts)

    @property
    def floor(self) -> float:
        """The least noise that scores behind a choice have."""
        return TF32 if self.recording.is_tf32 else 0.0

    def instead(
        self, exact: Sequence[Sequence[Array]], wanted: Sequence[str], keys: Mapping[str, str]
    ) -> list[list[Array]]:
        """The reference's answers `exact` to the tensors `wanted`, those that were recorded as they were.

        `keys`: the outputs' keys by tensor. Raises UsageError where a shape or a type is not the source's.
        """
        reasons: list[str] = []
        found = []
        for k, (values, answers) in enumerate(zip(exact, self.answers, strict=True)):
            found.append([answers.get(name, value) for name, value in zip(wanted, values, strict=True)])
            for name, value, told in zip(wanted, values, found[-1], strict=True):
                if told.shape != value.shape or not _is_same_type(told.dtype, value.dtype):
                    expected, what = (f"{one.dtype}{list(one.shape)}" for one in (value, told))
                    where = f"{FLAG} {self.recording.path}: feed{k}/out/{keys.get(name, name)}"
                    reasons.append(f"{where}: expected {expected} as the source gives it, found {what}")
        if reasons:
            raise UsageError(*reasons)
        return found

    def bound(self, bound: Tolerance, dtype: np.dtype[Any]) -> Tolerance:
        """The tolerance of an output of `dtype`, wide enough for TF32 where the device used it.

        A bound that the user asked for stays.
        """
        if not self.recording.is_tf32 or dtype.name != "float32" or bound.reason == "asked for":
            return bound
        reason = f"{bound.reason}; at least TF32's rounding, 2^-10, which the recording's device used"
        return replace(bound, atol=max(bound.atol, TF32), rtol=max(bound.rtol, TF32), reason=reason)

    def disagreements(
        self,
        exact: Sequence[Sequence[Array]],
        told: Sequence[Sequence[Array]],
        bounds: Sequence[tuple[str, Tolerance]],
        failed: Collection[str],
    ) -> list[str]:
        """Which of the outputs that `failed` the reference would fail too: there it is not the artifact.

        `bounds` are the outputs' keys and tolerances, in the order of the answers.
        """
        begin = "the source's own graph, computed here in float64, differs from the recording too"
        found: dict[str, str] = {}
        for ours, theirs in zip(exact, told, strict=True):
            named = [
                {key: value for (key, _), value in zip(bounds, side, strict=False)} for side in (ours, theirs)
            ]
            for one in compare.outputs(named[0], named[1], dict(bounds), {}):
                if not one.passed and one.output in failed:
                    found.setdefault(one.output, f"{one.output}: {begin}: {one.message}")
        return list(found.values())


def opened(plan: Plan, path: Path) -> Golden:
    """The recording at `path` for a plan. Raises UsageError where it is not of this signature."""
    told = recording.read(path)
    signature, source = plan.signature, plan.source
    starts = {held.start for held in plan.states if held.start is not None}
    ends = {held.end for held in plan.states if held.end is not None}
    free = {key for key, name in signature.inputs.items() if name in starts}
    inputs = _paired(path, "inputs", source.inputs, told.inputs, free)
    free = {key for key, name in signature.outputs.items() if name in ends}
    outputs = _paired(path, "outputs", source.outputs, told.outputs, free)
    fed = []
    for k, feed in enumerate(told.feeds):
        where = f"{FLAG} {path}: feed{k}/in"
        fed.append(way.of(plan).fitting(plan, {key: feed[name] for key, name in inputs.items()}, where=where))
    answers = tuple(
        {signature.outputs[key]: answer[name] for key, name in outputs.items()} for answer in told.answers
    )
    return Golden(told, tuple(fed), answers)


def _paired(
    path: Path, side: str, wanted: Mapping[str, str], recorded: Mapping[str, str], free: set[str]
) -> dict[str, str]:
    """The recording's key for each key of the plan: the same one, else that of the same tensor of the source.

    Those in `free` need none: state that the source keeps itself.
    """
    by_tensor = {name: key for key, name in recorded.items() if key not in wanted}
    found = {key: key if key in recorded else by_tensor.get(name) for key, name in wanted.items()}
    missing = [key for key, name in found.items() if name is None and key not in free]
    unknown = [key for key in recorded if key not in found.values()]
    if missing or unknown:
        parts = [f"nothing for {', '.join(missing)}"] if missing else []
        parts += [f"{', '.join(unknown)}, which the conversion does not have"] if unknown else []
        begin = f"{FLAG} {path}: {side}: expected {', '.join(wanted)}"
        cure = f"record with the --{side} of the conversion"
        raise UsageError(f"{begin}, found {' and '.join(parts)}; {cure}")
    return {key: name for key, name in found.items() if name is not None}


def require_accepted(plan: Plan, judge: Source, golden: Golden) -> None:
    """Raises UsageError where the source does not take a recorded feed."""
    for k, feed in enumerate(golden.feeds):
        way.of(plan).require_accepted(plan, judge, feed, where=f"{FLAG} {golden.recording.path}: feed{k}/in")


def _is_same_type(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Strings have a type in each runtime, and one more in files."""
    return one == other or {one.kind, other.kind} <= set("OSU")
