"""Compares whole models: rounding noise, dependence, the bound of each output.

The noise is how far rounding alone moves a source's answers: the largest of several evaluations in a working
type. The first adds up as the reference does. The others add up the products of every recurrence in an order
that is drawn, on inputs that are moved by one unit in the last place: an artifact rounds in an order that is
none of them, and a chaotic model makes of one unlucky order any number.

Outputs that do not move when recurrences do say nothing of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from cudnn_convert import context
from cudnn_convert.artifacts import runners
from cudnn_convert.feeds.data import Calls
from cudnn_convert.formats import FORMATS, Computes
from cudnn_convert.model import Array
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.report import OpDifference, OutputReport
from cudnn_convert.verification import compare, effort
from cudnn_convert.verification.judges import Judge, Source
from cudnn_convert.verification.recordings import Golden
from cudnn_convert.weights import lazy

#: `(draw, feed number) -> values`, one evaluation of one feed; draw 0 is the reference's own order.
Evaluate = Callable[[int, int], list[Array]]


def perturb_feed(feed: Mapping[str, Array], *, seed: int, draw: int) -> dict[str, Array]:
    """Move a feed's floats by about one unit in the last place.

    Draw 0 moves none.

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
    first: Sequence[list[float]] | None = None,
) -> list[float]:
    """For each wanted tensor the largest difference that rounding makes over all feeds and evaluations.

    `exact` holds the values feed by feed, `first` the differences of the first evaluation, if it was made.
    After it `enough` may say that the others, which cost as much, can change no verdict. They are of the feed
    that was the noisiest, or of all feeds where those are to be taken `in_order`. While a verdict is
    `doubtful` then, further ones of all feeds are made: a model that is nearly chaotic may amplify the
    rounding of one in twenty evaluations alone.
    """

    def gaps(draw: int, number: int) -> list[float]:
        rounded = evaluate(draw, number)
        return [difference(value, other) for value, other in zip(exact[number], rounded, strict=True)]

    first = first or [gaps(0, number) for number in range(len(exact))]
    worst = [max(column) for column in zip(*first, strict=True)]
    if enough(worst):
        return worst
    noisiest = max(range(len(first)), key=lambda number: max(first[number], default=0.0))
    for draw in range(1, effort.NOISE_DRAWS + 1):
        for number in range(len(exact)) if in_order else [noisiest]:
            worst = [max(pair) for pair in zip(worst, gaps(draw, number), strict=True)]
    for draw in range(effort.NOISE_DRAWS + 1, effort.NOISE_DRAWS + 1 + effort.MORE_NOISE_DRAWS):
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
    source: Source,
    answer: Answer,
    exact: Sequence[Sequence[Array]],
    node: str,
    outputs: Mapping[str, int],
    *,
    feeds: Sequence[int],
) -> frozenset[str]:
    """The outputs that move when what a recurrence gives is disturbed by 1e-2 of its spread.

    `exact` has the undisturbed values feed by feed, `outputs` the place of each among them. The `feeds` are
    tried in turn until an output moves.
    """
    moved: frozenset[str] = frozenset()
    source.draw.disturb([node])
    for number in feeds:
        values = answer(number)
        moved = frozenset(
            key for key, output in outputs.items() if _differ(values[output], exact[number][output])
        )
        if moved:
            break
    source.draw.disturb(())
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
class Judging:
    """How an artifact is judged: the judge, the user's options, and a recording or feeds, if any.

    `dtype` is the coarsest of the recurrences' and of what the artifact stores weights in. `scores` has, for
    each output that is a choice, the tensor that decides it and the axis of the choice.
    """

    judge: Judge
    options: Options
    golden: Golden | None
    calls: Calls | None
    dtype: np.dtype[Any]
    scores: Mapping[str, tuple[str, int]]
    seed: int

    @property
    def plan(self) -> Plan:
        """The plan of the source, its variables with the values that judge."""
        return self.judge.plan

    @property
    def trust(self) -> bool:
        """Whether the source may run more than arithmetic."""
        return self.options.trust

    @property
    def wanted(self) -> list[str]:
        """The tensors to ask the source for: outputs, then scores that decide choices."""
        return [*self.plan.signature.outputs.values(), *(name for name, _ in self.scores.values())]

    @property
    def has_bound(self) -> bool:
        """Whether the user gave a bound."""
        return (self.options.atol, self.options.rtol, self.options.max_error) != (None, None, None)

    @property
    def is_large(self) -> bool:
        """Whether a recurrence is too large to be evaluated more often than it must be."""
        return any(lazy.exceeds_memory_budget(own.sizes, own.dtype) for own in self.plan.recurrences)


#: The turns of a proof, in each of which every feed is run: the source, the artifact, the source once more
#: for its noise, and the recurrences by themselves, which take about as long.
_TURNS: Final = 4


def report_turn(turn: int, number: int, feeds: Sequence[Any]) -> None:
    """Report that `number` feeds of a turn are done."""
    context.report_progress("verifying", turn * len(feeds) + number, _TURNS * len(feeds))


def count_feeds(feeds: Sequence[dict[str, Array]], turn: int) -> Iterator[dict[str, Array]]:
    """Yields the feeds of a turn, and reports progress."""
    for number, feed in enumerate(feeds):
        report_turn(turn, number, feeds)
        yield feed


def run_judge(judging: Judging, source: Source, feed: Mapping[str, Array]) -> list[Array]:
    """The source's answers to one feed, part by part where state is kept."""
    plan, wanted = judging.plan, judging.wanted
    if len(plan.parts) == 1 or not plan.states:
        return source.run(feed, wanted)
    ends = {*plan.signature.outputs.values()}
    answers: dict[str, Array] = {}
    for part in plan.parts:
        own = {*part.signature.outputs.values()}
        names = [name for name in wanted if name in own or name not in ends]
        answers |= zip(names, source.run(feed, names), strict=True)
    return [answers[name] for name in wanted]


def run_artifact(
    plan: Plan, runner: runners.Runner, feeds: Sequence[dict[str, Array]]
) -> list[dict[str, Array]]:
    """The artifact's answers by key; state it gives is fed to the next call."""
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
class Trial:
    """Feeds by tensor, and the source's exact answers to each: the tensors `Judging.wanted`.

    `sizes` are the (time, batch) that each recurrence saw, feed by feed. `moved` has by recurrence the keys
    of the outputs that move when what it gives is disturbed. `influence` is how far other rows of a
    batch move the answer to one, by the key of an output. `other_layer` is a layer of the source that was
    traced to something else than what its Keras computes.
    """

    feeds: Sequence[dict[str, Array]]
    exact: Sequence[Sequence[Array]]
    sizes: Sequence[Sequence[tuple[int, int]]]
    moved: Mapping[str, frozenset[str]] = field(default_factory=dict)
    influence: Mapping[str, float] = field(default_factory=dict)
    other_layer: OpDifference | None = None

    def count_values(self, number: int) -> int:
        """How many values a feed has."""
        return sum(value.size for value in self.feeds[number].values())

    def find_smallest(self) -> int:
        """The number of the feed that has the fewest values."""
        return min(range(len(self.feeds)), key=self.count_values)


@dataclass(frozen=True, slots=True)
class Terms:
    """What outputs are compared by, but for the values: the tolerance of each, and which axis is time.

    `floors` has, for each tensor that decides a choice, the noise within which it may fall otherwise.
    """

    bounds: Mapping[str, compare.Tolerance]
    floors: Mapping[str, float]
    axes: Mapping[str, int | None]


@dataclass(frozen=True)
class Comparison:
    """A trial beside the artifact's `answers` by key, one a feed."""

    judging: Judging
    trial: Trial
    answers: Sequence[Mapping[str, Array]]

    @property
    def first_gaps(self) -> Sequence[list[float]] | None:
        """What rounding moves in the first evaluation of the noise, feed by feed, if that was made."""
        return None

    def shapes_of_feeds(self) -> Sequence[dict[str, tuple[int, ...]]]:
        """The shapes of the inputs by key, feed by feed."""
        return [shapes_of(self.judging.plan, feed) for feed in self.trial.feeds]

    @property
    def kinds(self) -> list[np.dtype[Any]]:
        """For each wanted tensor the type whose bound it gets."""
        return [bound_dtype(value.dtype, self.judging.dtype) for value in self.trial.exact[0]]

    @property
    def expected(self) -> Sequence[Sequence[Array]]:
        """What judges, feed by feed: the source's answers, or those that were recorded."""
        judging, exact = self.judging, self.trial.exact
        if judging.golden is None:
            return exact
        keys = {name: key for key, name in judging.plan.signature.outputs.items()}
        return judging.golden.instead(exact, judging.wanted, keys)

    def bounds(self, noise: Sequence[float]) -> dict[str, compare.Tolerance]:
        """The tolerance of each output; `noise` has the largest difference of each wanted tensor."""
        golden, given, bounds = self.judging.golden, self.judging.options, {}
        for key, kind, floor in zip(self.judging.plan.signature.outputs, self.kinds, noise, strict=False):
            margin = effort.NOISE_MARGIN_OF_HALF if kind.name in COARSE else effort.NOISE_MARGIN
            bound = compare.tolerance(
                kind, floor, atol=given.atol, rtol=given.rtol, most=given.max_error, margin=margin
            )
            bounds[key] = golden.bound(bound, kind, floor) if golden else bound
        return bounds

    def reports(self, noise: Sequence[float]) -> tuple[OutputReport, ...]:
        """Each output over all feeds."""
        terms = self.terms(noise)
        differences = self.differences(terms)
        merged = (compare.aggregate(group, terms.bounds) for group in zip(*differences, strict=True))
        return tuple(self._sharp(self._with_recurrences(report)) for report in merged)

    def _with_recurrences(self, report: OutputReport) -> OutputReport:
        """Add the recurrences that move an output to its report."""
        moved = self.trial.moved.items()
        return replace(report, moves_with=tuple(node for node, keys in moved if report.output in keys))

    def terms(self, noise: Sequence[float]) -> Terms:
        """What the outputs are compared by."""
        judging, least = self.judging, self.judging.options.max_error or 0.0
        golden = judging.golden
        floors = {
            name: max(floor if golden is None else golden.widen(floor), least)
            for name, floor in zip(judging.wanted, noise, strict=True)
        }
        deciding = {name: floors[name] for name, _ in judging.scores.values()}
        return Terms(self.bounds(noise), deciding, self._axes_of_time())

    def differences(self, terms: Terms) -> Sequence[Sequence[compare.Difference]]:
        """Each output of each feed, compared."""
        single = FORMATS[self.judging.options.format].computes is Computes.FLOAT32
        outputs = self.judging.plan.signature.outputs
        differences: list[list[compare.Difference]] = []
        for values, answers in zip(self.expected, self.answers, strict=True):
            by_name = dict(zip(self.judging.wanted, values, strict=True))
            by_key = {key: by_name[name] for key, name in outputs.items()}
            slack = self._slack(by_name, answers, terms.floors)
            differences.append(
                compare.outputs(answers, by_key, terms.bounds, slack, single=single, axes=terms.axes)
            )
        return differences

    def _slack(
        self, exact: Mapping[str, Array], answers: Mapping[str, Array], floors: Mapping[str, float]
    ) -> dict[str, Array]:
        """Where the scores behind each choice are too close to call."""
        outputs = self.judging.plan.signature.outputs
        return {
            key: _too_close(exact[name], axis, answers.get(key), exact[outputs[key]], floors[name])
            for key, (name, axis) in self.judging.scores.items()
        }

    @property
    def shapes(self) -> Sequence[Sequence[tuple[int, ...]]]:
        """The shapes of the wanted tensors, feed by feed."""
        return [[value.shape for value in values] for values in self.expected]

    def _axes_of_time(self) -> dict[str, int | None]:
        shapes = zip(*self.shapes, strict=True)
        return {
            key: compare.axis_of_time(of_output, self.trial.sizes)
            for key, of_output in zip(self.judging.plan.signature.outputs, shapes, strict=False)
        }

    def is_settled(self, noise: list[float]) -> bool:
        """Whether further evaluations of the noise can change no verdict."""
        reports = self.reports(noise)
        is_small = all(map(compare.is_small, noise, self.kinds))
        if self.judging.is_large or (is_small and all(report.passed for report in reports)):
            return True
        # More evaluations can but widen a bound: what it does not judge now it will not judge then.
        return not any(report.judged for report in reports)

    def is_doubtful(self, noise: list[float]) -> bool:
        """Whether rounding that no evaluation has shown yet may be why an output differs."""
        if self.judging.has_bound or self.judging.is_large:
            return False
        return any(
            not report.passed and report.needed < effort.DOUBTFUL_TOLERANCES for report in self.reports(noise)
        )

    def spread(self, output: str) -> float:
        """How far apart the finite values of an output lie that the source gives."""
        position = [*self.judging.plan.signature.outputs].index(output)
        values = [values[position] for values in self.expected]
        if values[0].dtype.kind not in "fV":  # judged exactly
            return 0.0
        return spread(np.concatenate([value.astype(np.float64).ravel() for value in values]))

    def _sharp(self, report: OutputReport) -> OutputReport:
        """The report, not judged where its bound is too wide to say anything, or where it has no value.

        Texts that a model decodes from noise may be empty; recurrences asked by themselves decide then.
        """
        outputs, judging = [*self.judging.plan.signature.outputs], self.judging
        is_empty = not report.compared and report.needed == 0
        if is_empty and judging.plan.recurrences and judging.golden is None:
            return replace(report, passed=True, judged=False)
        # Recordings are judged as they are, but for those with TF32 whose bound grew with the model's noise.
        golden = judging.golden
        is_plain = golden is not None and (not golden.recording.is_tf32 or report.atol <= golden.widen(0.0))
        if is_plain or judging.has_bound or report.output not in outputs:
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
        """Describe how much wider an output's bound is than its sharpness allows."""
        percent, spread = 100 * self._sharpness(report.output), self.spread(report.output)
        return f"its bound {report.atol:.1e} is more than {percent:.0f} % of its spread {spread:.1e}"

    def _sharpness(self, output: str) -> float:
        """The share of its spread that the bound of an output may have at most."""
        kind = self.kinds[[*self.judging.plan.signature.outputs].index(output)]
        is_coarse = kind.name in COARSE or self.judging.golden is not None
        return effort.SHARP_OF_HALF if is_coarse else effort.SHARP

    def disagreements(self, reports: Sequence[OutputReport]) -> list[str]:
        """Where a recording and the source differ themselves."""
        golden = self.judging.golden
        if golden is None:
            return []
        bounds = {
            report.output: compare.Tolerance(report.atol, report.rtol, report.reason) for report in reports
        }
        failed = {report.output for report in reports if not report.passed}
        listed = [(key, bounds[key]) for key in self.judging.plan.signature.outputs]
        return list(golden.disagreements(self.trial.exact, self.expected, listed, failed))


def shapes_of(plan: Plan, feed: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """The shapes of a feed by tensor, by key."""
    keys = {name: key for key, name in plan.signature.inputs.items()}
    return {keys[name]: value.shape for name, value in feed.items()}


def bound_dtype(given: np.dtype[Any], dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that sets an output's bound: the coarser of its own and `dtype`.

    Values that are not floats keep their own dtype.
    """
    if given.name not in COARSENESS:
        return given
    return max(given, dtype, key=lambda kind: COARSENESS.index(kind.name))


def spread(values: Array) -> float:
    """How far apart the finite ones of some floats lie."""
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if finite.size else 0.0


def _too_close(scores: Array, axis: int, actual: Array | None, expected: Array, noise: float) -> Array:
    """Where the score of the artifact's choice is within twice the noise of the best."""
    if actual is None or actual.shape != expected.shape or not expected.size:
        return np.zeros(expected.shape, bool)
    is_choice = (actual >= 0) & (actual < scores.shape[axis])
    places = np.expand_dims(np.where(is_choice, actual, 0).astype(int), axis)
    chosen = np.take_along_axis(scores, places, axis).squeeze(axis)
    return np.asarray(is_choice & (scores.max(axis) - chosen <= effort.CLOSE_SCORES * noise))
