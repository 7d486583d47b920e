"""The whole model, end to end: what each output of the artifact is compared with, and by which bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cudnn_convert.formats import FORMATS
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report import OutputReport
from cudnn_convert.verification import compare, merge
from cudnn_convert.verification.compare import Difference, Tolerance
from cudnn_convert.verification.golden import Golden
from cudnn_convert.verification.steps import axis_of_time

#: Recurrences of these types are judged by the rounding of that type, measured on the model itself.
COARSENESS: Final = ("float64", "float32", "float16", "bfloat16")
#: How the message of an output begins whose bound says nothing of it.
NOT_JUDGED: Final = "not judged end to end: "
#: Of these the bound is their rounding, a thousandth and more of a value.
COARSE: Final = frozenset(COARSENESS[2:])


@dataclass(frozen=True, slots=True)
class Bounds:
    """What decides a tolerance beside the noise: the recurrences' coarsest type, and what the user gave."""

    dtype: np.dtype[Any]
    atol: float | None = None
    rtol: float | None = None
    most: float | None = None

    @property
    def is_given(self) -> bool:
        """Whether the user gave a bound."""
        return (self.atol, self.rtol, self.most) != (None, None, None)


@dataclass(frozen=True, slots=True)
class Whole:
    """The answers of the source, `exact`, and of the artifact, `found`, to each of several feeds.

    `exact` has for each feed the values of the tensors `wanted`: the outputs, then the scores that decide
    choices. `seen` are the (time, batch) of each recurrence, feed by feed. `told` is a recording whose
    answers judge in the place of the source's.
    """

    plan: Plan
    form: str
    exact: Sequence[Sequence[Array]]
    found: Sequence[Mapping[str, Array]]
    wanted: Sequence[str]
    scores: Mapping[str, tuple[str, int]]
    told: Golden | None
    given: Bounds
    seen: Sequence[Sequence[tuple[int, int]]]

    @property
    def kinds(self) -> list[np.dtype[Any]]:
        """For each wanted tensor the type whose bound it gets."""
        return [judged(value, self.given.dtype) for value in self.exact[0]]

    @property
    def expected(self) -> Sequence[Sequence[Array]]:
        """What judges, feed by feed."""
        if self.told is None:
            return self.exact
        keys = {name: key for key, name in self.plan.signature.outputs.items()}
        return self.told.instead(self.exact, self.wanted, keys)

    def bounds(self, noise: Sequence[float]) -> dict[str, Tolerance]:
        """The tolerance of each output; `noise` has the largest difference of each wanted tensor."""
        found = {}
        for key, kind, floor in zip(self.plan.signature.outputs, self.kinds, noise, strict=False):
            of = self.given
            margin = 2 if kind.name in COARSE else compare.MARGIN
            bound = compare.tolerance(kind, floor, atol=of.atol, rtol=of.rtol, most=of.most, margin=margin)
            found[key] = self.told.bound(bound, kind) if self.told else bound
        return found

    def reports(self, noise: Sequence[float]) -> tuple[OutputReport, ...]:
        """Each output over all feeds."""
        bounds, expected = self.bounds(noise), self.expected
        least = max(self.told.floor if self.told else 0.0, self.given.most or 0.0)
        floors = {name: max(found, least) for name, found in zip(self.wanted, noise, strict=True)}
        outputs = self.plan.signature.outputs
        axes = {
            key: axis_of_time([values[place].shape for values in expected], self.seen)
            for place, key in enumerate(outputs)
        }
        differences: list[list[Difference]] = []
        for values, answers in zip(expected, self.found, strict=True):
            by_name = dict(zip(self.wanted, values, strict=True))
            slack = {
                key: _too_close(by_name[name], axis, answers.get(key), by_name[outputs[key]], floors[name])
                for key, (name, axis) in self.scores.items()
            }
            by_key = {key: by_name[name] for key, name in outputs.items()}
            single = FORMATS[self.form].single
            differences.append(compare.outputs(answers, by_key, bounds, slack, single=single, axes=axes))
        merged = (merge.merged(group, bounds) for group in zip(*differences, strict=True))
        return tuple(self._sharp(report) for report in merged)

    def spread(self, output: str) -> float:
        """How far apart the finite values of an output lie that the source gives."""
        place = [*self.plan.signature.outputs].index(output)
        return _spread([values[place] for values in self.expected])

    def _sharp(self, report: OutputReport) -> OutputReport:
        """An output whose bound says nothing of it is not judged; what is wrong by any bound stays wrong."""
        outputs = [*self.plan.signature.outputs]
        if self.told is not None or self.given.is_given or report.output not in outputs:
            return report
        spread = self.spread(report.output)
        kind = self.kinds[outputs.index(report.output)]
        sharp = compare.COARSELY_SHARP if kind.name in COARSE else compare.SHARP
        if not spread or report.atol <= sharp * spread:
            return report
        is_widened = report.atol > compare.tolerance(kind, 0.0).atol
        if not report.passed and not (is_widened and math.isfinite(report.needed)):
            return report
        why = f"its bound {report.atol:.1e} is more than {100 * sharp:.0f} % of its spread {spread:.1e}"
        return replace(report, passed=True, judged=False, message=f"{NOT_JUDGED}{why}")

    def disagreements(self, reports: Sequence[OutputReport]) -> list[str]:
        """Where a recording and the source differ themselves."""
        if self.told is None:
            return []
        bounds = {report.output: Tolerance(report.atol, report.rtol, report.reason) for report in reports}
        failed = {report.output for report in reports if not report.passed}
        listed = [(key, bounds[key]) for key in self.plan.signature.outputs]
        return list(self.told.disagreements(self.exact, self.expected, listed, failed))


def judged(value: Array, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type whose bound an output gets: its own or the recurrences', whichever is coarser."""
    if value.dtype.name not in COARSENESS:
        return value.dtype
    return max(value.dtype, dtype, key=lambda kind: COARSENESS.index(kind.name))


def _spread(values: Sequence[Array]) -> float:
    """How far apart the finite values of an output of floats lie; 0 for others, which are judged exactly."""
    if not values or values[0].dtype.kind not in "fV":
        return 0.0
    flat = np.concatenate([value.astype(np.float64).ravel() for value in values])
    finite = flat[np.isfinite(flat)]
    return float(np.ptp(finite)) if finite.size else 0.0


def _too_close(scores: Array, axis: int, found: Array | None, expected: Array, noise: float) -> Array:
    """Where the score of the artifact's choice is within twice the noise of the best one's."""
    if found is None or found.shape != expected.shape or not expected.size:
        return np.zeros(expected.shape, bool)
    is_choice = (found >= 0) & (found < scores.shape[axis])
    places = np.expand_dims(np.where(is_choice, found, 0).astype(int), axis)
    chosen = np.take_along_axis(scores, places, axis).squeeze(axis)
    return np.asarray(is_choice & (scores.max(axis) - chosen <= 2 * noise))
