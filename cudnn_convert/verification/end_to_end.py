"""Compares whole models: rounding noise, dependence, the bound of each output.

How far rounding alone moves a source's answers: the largest of several evaluations in a working type.

The first evaluation adds up as the reference does. The others add up the products of every recurrence in an
order that is drawn, on inputs that are moved by one unit in the last place: an artifact rounds in an order
that is none of them, and a chaotic model makes of one unlucky order any number.

Whether outputs move when recurrences do: those that do not say nothing of them.

The whole model, end to end: what each output of the artifact is compared with, and by which bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cudnn_convert.formats import FORMATS
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report import OutputReport
from cudnn_convert.verification import compare, error_statistics, judges, recordings

#: Evaluations beside the first.
DRAWS: Final = 3
#: Further ones of all feeds, at most, before an output differs for certain.
MORE: Final = 8
#: `(draw, feed number) -> values`, one evaluation of one feed; draw 0 is the reference's own order.
Evaluate = Callable[[int, int], list[Array]]


def perturb_feed(feed: Mapping[str, Array], *, seed: int, draw: int) -> dict[str, Array]:
    """A feed whose floats are moved up or down by about one unit in the last place; draw 0 moves none.

    Whole numbers stay: they may be ids, or values that stand for padding.
    """
    if draw == 0:
        return dict(feed)
    rng = np.random.default_rng([seed, draw])
    return {name: _move_by_rounding(rng, value) for name, value in feed.items()}


def _move_by_rounding(rng: np.random.Generator, value: Array) -> Array:
    if value.dtype.kind != "f":
        return value
    with np.errstate(invalid="ignore"):
        is_whole = value == np.round(value)
    ways = rng.choice(np.array([-1, 1], value.dtype), value.shape)
    return np.where(is_whole, value, value * (1 + ways * np.finfo(value.dtype).eps)).astype(value.dtype)


def largest(
    exact: Sequence[Sequence[Array]],
    evaluate: Evaluate,
    *,
    enough: Callable[[list[float]], bool],
    doubtful: Callable[[list[float]], bool],
    in_order: bool = False,
) -> list[float]:
    """For each wanted tensor the largest difference that rounding makes over all feeds and evaluations.

    `exact` holds the values feed by feed. After the first evaluation `enough` may say that the others, which
    cost as much, can change no verdict. They are of the feed that was the noisiest, or of all feeds where
    those are to be taken `in_order`. While a verdict is `doubtful` then, further ones of all feeds are made:
    a model that is nearly chaotic may amplify the rounding of one in twenty evaluations alone.
    """

    def gaps(draw: int, number: int) -> list[float]:
        rounded = evaluate(draw, number)
        return [difference(value, other) for value, other in zip(exact[number], rounded, strict=True)]

    first = [gaps(0, number) for number in range(len(exact))]
    worst = [max(column) for column in zip(*first, strict=True)]
    if enough(worst):
        return worst
    noisiest = max(range(len(first)), key=lambda number: max(first[number], default=0.0))
    for draw in range(1, DRAWS + 1):
        for number in range(len(exact)) if in_order else [noisiest]:
            worst = [max(pair) for pair in zip(worst, gaps(draw, number), strict=True)]
    for draw in range(DRAWS + 1, DRAWS + 1 + MORE):
        if not doubtful(worst):
            break
        for number in range(len(exact)):
            worst = [max(pair) for pair in zip(worst, gaps(draw, number), strict=True)]
    return worst


def difference(exact: Array, rounded: Array) -> float:
    """The largest finite difference of two arrays of floats of one shape, else 0."""
    if exact.shape != rounded.shape or exact.dtype.kind != "f":
        return 0.0
    with np.errstate(invalid="ignore"):  # of two infinities
        gap: Any = np.abs(exact.astype(np.float64) - rounded.astype(np.float64))
    return float(np.max(gap[np.isfinite(gap)], initial=0.0))


#: Answers one feed by its number, from the state that the file holds.
Answer = Callable[[int], Sequence[Array]]


def find_dependent_outputs(
    source: judges.Source,
    answer: Answer,
    exact: Sequence[Sequence[Array]],
    nodes: Collection[str],
    outputs: Mapping[str, int],
    *,
    feeds: Sequence[int],
) -> frozenset[str]:
    """The outputs that move when what recurrences give is disturbed by 1e-2 of its spread.

    `exact` has the undisturbed values feed by feed, `outputs` the place of each among them. The `feeds` are
    tried in turn until an output moves.
    """
    moved: frozenset[str] = frozenset()
    source.disturb(nodes)
    for number in feeds:
        values = answer(number)
        moved = frozenset(
            key for key, output in outputs.items() if _differ(values[output], exact[number][output])
        )
        if moved:
            break
    source.disturb(())
    return moved


def _differ(actual: Array, expected: Array) -> bool:
    """Whether values differ by more than the bound of their type."""
    if actual.shape != expected.shape:
        return True
    if expected.dtype.kind not in "fcV":
        return bool(np.any(actual != expected))
    bound = compare.tolerance(expected.dtype, 0.0)
    left, other = (np.asarray(value, np.complex128) for value in (actual, expected))
    with np.errstate(invalid="ignore"):
        gap = np.abs(left - other) > bound.atol + bound.rtol * np.abs(other)
    return bool(np.any(gap | (np.isnan(left) != np.isnan(other))))


#: Recurrences of these types are judged by the rounding of that type, measured on the model itself.
COARSENESS: Final = ("float64", "float32", "float16", "bfloat16")
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
    told: recordings.Golden | None
    given: Bounds
    seen: Sequence[Sequence[tuple[int, int]]]

    @property
    def kinds(self) -> list[np.dtype[Any]]:
        """For each wanted tensor the type whose bound it gets."""
        return [bound_dtype(value, self.given.dtype) for value in self.exact[0]]

    @property
    def expected(self) -> Sequence[Sequence[Array]]:
        """What judges, feed by feed."""
        if self.told is None:
            return self.exact
        keys = {name: key for key, name in self.plan.signature.outputs.items()}
        return self.told.instead(self.exact, self.wanted, keys)

    def bounds(self, noise: Sequence[float]) -> dict[str, compare.Tolerance]:
        """The tolerance of each output; `noise` has the largest difference of each wanted tensor."""
        bounds = {}
        for key, kind, floor in zip(self.plan.signature.outputs, self.kinds, noise, strict=False):
            of = self.given
            margin = 2 if kind.name in COARSE else compare.MARGIN
            bound = compare.tolerance(kind, floor, atol=of.atol, rtol=of.rtol, most=of.most, margin=margin)
            bounds[key] = self.told.bound(bound, kind) if self.told else bound
        return bounds

    def reports(self, noise: Sequence[float]) -> tuple[OutputReport, ...]:
        """Each output over all feeds."""
        bounds, expected = self.bounds(noise), self.expected
        least = max(self.told.floor if self.told else 0.0, self.given.most or 0.0)
        floors = {name: max(floor, least) for name, floor in zip(self.wanted, noise, strict=True)}
        outputs = self.plan.signature.outputs
        axes = {
            key: error_statistics.axis_of_time([values[position].shape for values in expected], self.seen)
            for position, key in enumerate(outputs)
        }
        differences: list[list[compare.Difference]] = []
        for values, answers in zip(expected, self.found, strict=True):
            by_name = dict(zip(self.wanted, values, strict=True))
            slack = {
                key: _too_close(by_name[name], axis, answers.get(key), by_name[outputs[key]], floors[name])
                for key, (name, axis) in self.scores.items()
            }
            by_key = {key: by_name[name] for key, name in outputs.items()}
            single = FORMATS[self.form].single
            differences.append(compare.outputs(answers, by_key, bounds, slack, single=single, axes=axes))
        merged = (compare.aggregate(group, bounds) for group in zip(*differences, strict=True))
        return tuple(self._sharp(report) for report in merged)

    def spread(self, output: str) -> float:
        """How far apart the finite values of an output lie that the source gives."""
        position = [*self.plan.signature.outputs].index(output)
        return _spread([values[position] for values in self.expected])

    def _sharp(self, report: OutputReport) -> OutputReport:
        """An output whose bound says nothing of it is not judged; what is wrong by any bound stays wrong."""
        outputs = [*self.plan.signature.outputs]
        if self.told is not None or self.given.is_given or report.output not in outputs:
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
        """Why the bound of an output says nothing of it."""
        percent, spread = 100 * self._sharpness(report.output), self.spread(report.output)
        return f"its bound {report.atol:.1e} is more than {percent:.0f} % of its spread {spread:.1e}"

    def _sharpness(self, output: str) -> float:
        """The share of its spread that the bound of an output may have at most."""
        kind = self.kinds[[*self.plan.signature.outputs].index(output)]
        return compare.COARSELY_SHARP if kind.name in COARSE else compare.SHARP

    def disagreements(self, reports: Sequence[OutputReport]) -> list[str]:
        """Where a recording and the source differ themselves."""
        if self.told is None:
            return []
        bounds = {
            report.output: compare.Tolerance(report.atol, report.rtol, report.reason) for report in reports
        }
        failed = {report.output for report in reports if not report.passed}
        listed = [(key, bounds[key]) for key in self.plan.signature.outputs]
        return list(self.told.disagreements(self.exact, self.expected, listed, failed))


def bound_dtype(value: Array, dtype: np.dtype[Any]) -> np.dtype[Any]:
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


def _too_close(scores: Array, axis: int, actual: Array | None, expected: Array, noise: float) -> Array:
    """Where the score of the artifact's choice is within twice the noise of the best one's."""
    if actual is None or actual.shape != expected.shape or not expected.size:
        return np.zeros(expected.shape, bool)
    is_choice = (actual >= 0) & (actual < scores.shape[axis])
    places = np.expand_dims(np.where(is_choice, actual, 0).astype(int), axis)
    chosen = np.take_along_axis(scores, places, axis).squeeze(axis)
    return np.asarray(is_choice & (scores.max(axis) - chosen <= 2 * noise))
