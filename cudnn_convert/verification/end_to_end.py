"""Compares whole models: the artifact's answers with the source's, and the bound of each output."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.formats import FORMATS, Computes
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report.values import OutputReport
from cudnn_convert.verification import compare, effort
from cudnn_convert.verification.rounding import spread
from cudnn_convert.verification.settings import COARSE, COARSENESS, Settings
from cudnn_convert.verification.trials import Trial, by_key, count_feeds


def run_artifact(
    plan: Plan, runner: runners.Runner, feeds: Sequence[dict[str, Array]]
) -> list[dict[str, Array]]:
    """Run the artifact; return answers by key, and feed states to the next call."""
    keys = {name: key for key, name in plan.signature.inputs.items()}
    ends, answers = {name: key for key, name in plan.signature.outputs.items()}, []
    leaving = [
        (keys[state.start], ends[state.end], plan.model.variables[state.state.key])
        for state in plan.states
        if state.start is not None and state.end is not None
    ]
    carried = {start: value.read() for start, _, value in leaving}
    for feed in count_feeds(feeds, 1):
        answers.append(runner(carried | {keys[name]: value for name, value in feed.items()}))
        carried |= {start: answers[-1][end] for start, end, _ in leaving if end in answers[-1]}
    return answers


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a comparison: the tolerance of each output, and the axis of time.

    `floors` has, for each tensor that decides a choice, the noise within which it may fall otherwise.
    """

    tolerances: Mapping[str, compare.Tolerance]
    floors: Mapping[str, float]
    axes: Mapping[str, int | None]


@dataclass(frozen=True)
class Comparison:
    """A trial beside the artifact's `answers` by key, an answer per feed."""

    settings: Settings
    trial: Trial
    answers: Sequence[Mapping[str, Array]]

    @property
    def first_gaps(self) -> Sequence[list[float]] | None:
        """The movement by rounding in the first noise evaluation, feed by feed, if known."""
        return None

    def shapes_of_feeds(self) -> Sequence[dict[str, tuple[int, ...]]]:
        """Return the shapes of the inputs by key, feed by feed."""
        return [shapes_of(self.settings.plan, feed) for feed in self.trial.feeds]

    @property
    def kinds(self) -> list[np.dtype[Any]]:
        """The type behind the bound, for each wanted tensor."""
        return [bound_dtype(value.dtype, self.settings.dtype) for value in self.trial.exact[0]]

    @property
    def expected(self) -> Sequence[Sequence[Array]]:
        """The judging values, feed by feed: the source's answers, or recorded answers."""
        settings, exact = self.settings, self.trial.exact
        if settings.golden is None:
            return exact
        keys = {name: key for key, name in settings.plan.signature.outputs.items()}
        return settings.golden.instead(exact, settings.wanted, keys)

    def _choose_tolerances(self, noise: Sequence[float]) -> dict[str, compare.Tolerance]:
        """Choose the tolerance of each output; `noise` has the largest difference per wanted tensor."""
        golden, given, bounds = self.settings.golden, self.settings.options, {}
        share = f"{100 * effort.SHARE_OF_INT8:g} % of its spread"
        why = "--max-error" if given.max_error is not None else share
        outputs, kinds = self.settings.plan.signature.outputs, self.kinds
        for key, kind, floor, most in zip(outputs, kinds, noise, self._largest_errors(), strict=False):
            margin = effort.NOISE_MARGIN_OF_HALF if kind.name in COARSE else effort.NOISE_MARGIN
            bound = compare.tolerance(
                kind, floor, atol=given.atol, rtol=given.rtol, most=most, why=why, margin=margin
            )
            bounds[key] = golden.bound(bound, kind, floor) if golden else bound
        return bounds

    def _largest_errors(self) -> list[float | None]:
        """Return the largest allowed error of each wanted tensor, for inexact artifacts."""
        options, count = self.settings.options, len(self.settings.wanted)
        if options.max_error is not None or options.quantize is None:
            return [options.max_error] * count
        return [effort.SHARE_OF_INT8 * self._spread(position) for position in range(count)]

    def reports(self, noise: Sequence[float]) -> tuple[OutputReport, ...]:
        """Return the report of each output over all feeds."""
        bounds = self.choose_bounds(noise)
        differences = self.differences(bounds)
        merged = (compare.aggregate(group, bounds.tolerances) for group in zip(*differences, strict=True))
        return tuple(self._sharp(self._with_recurrences(report)) for report in merged)

    def _with_recurrences(self, report: OutputReport) -> OutputReport:
        """Add the recurrences with influence on an output to the output's report."""
        moved = self.trial.moved.items()
        return replace(report, moves_with=tuple(node for node, keys in moved if report.output in keys))

    def choose_bounds(self, noise: Sequence[float]) -> Bounds:
        """Choose the bounds for the outputs."""
        settings, golden = self.settings, self.settings.golden
        floors = {
            name: max(floor if golden is None else golden.widen(floor), least or 0.0)
            for name, floor, least in zip(settings.wanted, noise, self._largest_errors(), strict=True)
        }
        deciding = {name: floors[name] for name, _ in settings.scores.values()}
        return Bounds(self._choose_tolerances(noise), deciding, self._axes_of_time())

    def differences(self, bounds: Bounds) -> Sequence[Sequence[compare.OutputDifference]]:
        """Compare each output of each feed."""
        single = FORMATS[self.settings.options.format].computes is Computes.FLOAT32
        outputs = self.settings.plan.signature.outputs
        differences: list[list[compare.OutputDifference]] = []
        for values, answers in zip(self.expected, self.answers, strict=True):
            by_name = dict(zip(self.settings.wanted, values, strict=True))
            by_key = {key: by_name[name] for key, name in outputs.items()}
            slack = self._slack(by_name, answers, bounds.floors)
            differences.append(
                compare.outputs(answers, by_key, bounds.tolerances, slack, single=single, axes=bounds.axes)
            )
        return differences

    def _slack(
        self, exact: Mapping[str, Array], answers: Mapping[str, Array], floors: Mapping[str, float]
    ) -> dict[str, Array]:
        """Mark the choices with scores too close to call."""
        outputs = self.settings.plan.signature.outputs
        return {
            key: _too_close(exact[name], axis, answers.get(key), exact[outputs[key]], floors[name])
            for key, (name, axis) in self.settings.scores.items()
        }

    @property
    def shapes(self) -> Sequence[Sequence[tuple[int, ...]]]:
        """The shapes of the wanted tensors, feed by feed."""
        return [[value.shape for value in values] for values in self.expected]

    def _axes_of_time(self) -> dict[str, int | None]:
        shapes = zip(*self.shapes, strict=True)
        return {
            key: compare.axis_of_time(of_output, self.trial.sizes)
            for key, of_output in zip(self.settings.plan.signature.outputs, shapes, strict=False)
        }

    def is_settled(self, noise: list[float]) -> bool:
        """Return True if further evaluations of the noise would leave all verdicts unchanged."""
        reports = self.reports(noise)
        is_small = all(map(compare.is_small, noise, self.kinds))
        if self.settings.is_large or (is_small and all(report.passed for report in reports)):
            return True
        # More evaluations can but widen a bound: what it does not judge now it will not judge then.
        return not any(report.judged for report in reports)

    def is_doubtful(self, noise: list[float]) -> bool:
        """Return True if hidden rounding may explain a differing output.

        Hidden rounding is rounding that no evaluation has shown yet.
        """
        if self.settings.has_bound or self.settings.is_large:
            return False
        return any(
            not report.passed and report.needed < effort.DOUBTFUL_TOLERANCES for report in self.reports(noise)
        )

    def spread(self, output: str) -> float:
        """Return the distance between the extreme finite values of a source's output."""
        return self._spread([*self.settings.plan.signature.outputs].index(output))

    def _spread(self, position: int) -> float:
        values = [values[position] for values in self.expected]
        if values[0].dtype.kind not in "fV":  # judged exactly
            return 0.0
        return spread(np.concatenate([value.astype(np.float64).ravel() for value in values]))

    def _sharp(self, report: OutputReport) -> OutputReport:
        """Return the report, unjudged if the bound is too wide or all values are missing.

        Texts that a model decodes from noise may be empty; recurrences asked by themselves decide then.
        """
        outputs, settings = [*self.settings.plan.signature.outputs], self.settings
        is_empty = not report.compared and report.needed == 0
        if is_empty and settings.plan.recurrences and settings.golden is None:
            return replace(report, passed=True, judged=False)
        # Recordings are judged as they are, but for those with TF32 whose bound grew with the model's noise.
        golden = settings.golden
        is_plain = golden is not None and (not golden.recording.is_tf32 or report.atol <= golden.widen(0.0))
        if is_plain or settings.has_bound or report.output not in outputs:
            return report
        spread = self.spread(report.output)
        if not spread or report.atol <= self._sharpness(report.output) * spread:
            return report
        kind = self.kinds[outputs.index(report.output)]
        is_widened = report.atol > compare.tolerance(kind, 0.0).atol
        if not report.passed and not (is_widened and math.isfinite(report.needed)):
            return report
        message = f"not judged end to end: {self.describe_bound(report)}"
        return replace(report, passed=True, judged=False, message=message)

    def describe_bound(self, report: OutputReport) -> str:
        """Describe the excess of an output's bound over the allowed sharpness."""
        percent, spread = 100 * self._sharpness(report.output), self.spread(report.output)
        return f"its bound {report.atol:.1e} is more than {percent:.0f} % of its spread {spread:.1e}"

    def _sharpness(self, output: str) -> float:
        """Return the largest allowed bound of an output, as a share of the spread."""
        kind = self.kinds[[*self.settings.plan.signature.outputs].index(output)]
        is_coarse = kind.name in COARSE or self.settings.golden is not None
        return effort.SHARP_OF_HALF if is_coarse else effort.SHARP

    def disagreements(self, reports: Sequence[OutputReport]) -> list[str]:
        """Return the places where a recording and the source differ."""
        golden = self.settings.golden
        if golden is None:
            return []
        by_output = {report.output: report for report in reports}
        bounds = {
            key: compare.Tolerance(by_output[key].atol, by_output[key].rtol, by_output[key].reason)
            for key in self.settings.plan.signature.outputs
        }
        failed = {report.output for report in reports if not report.passed}
        return golden.disagreements(self.trial.exact, self.expected, bounds, failed)


def shapes_of(plan: Plan, feed: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a feed by tensor, by key."""
    return {key: value.shape for key, value in by_key(plan, feed).items()}


def bound_dtype(given: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype for an output's bound: the coarser of the output's dtype and `dtype`.

    Values that are not floats keep their own dtype.
    """
    if given.name not in COARSENESS:
        return given
    return max(given, dtype, key=lambda kind: COARSENESS.index(kind.name))


def _too_close(scores: Array, axis: int, actual: Array | None, expected: Array, noise: float) -> Array:
    """Mark the artifact's choices with a score within twice the noise of the best."""
    if actual is None or actual.shape != expected.shape or not expected.size:
        return np.zeros(expected.shape, bool)
    is_choice = (actual >= 0) & (actual < scores.shape[axis])
    places = np.expand_dims(np.where(is_choice, actual, 0).astype(int), axis)
    chosen = np.take_along_axis(scores, places, axis).squeeze(axis)
    return np.asarray(is_choice & (scores.max(axis) - chosen <= effort.CLOSE_SCORES * noise))
