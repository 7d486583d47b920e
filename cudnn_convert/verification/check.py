"""Verifies an artifact against its source: from feeds to a `Verification`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import context
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import FORMATS
from cudnn_convert.keras.config.classes import NOTHING, Vouched
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.report import GlueReport, OutputReport, PieceReport, Verification
from cudnn_convert.verification import compare, end_to_end, judges, recordings
from cudnn_convert.verification.end_to_end import COARSENESS, Bounds, Whole
from cudnn_convert.verification.judges import FEW, Sizes, Source
from cudnn_convert.weights import lazy

SEED: Final = 20240229
#: Of fewer tolerances the cause may be rounding that no evaluation has shown yet.
_DOUBTFUL: Final = 100


def verify_artifact(
    plan: Plan,
    artifact: Path | runners.Runner,
    *,
    form: str,
    weights_dtype: str = "float32",
    data: Path | None = None,
    recording: Path | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    max_error: float | None = None,
    seed: int = SEED,
    vouched: Vouched = NOTHING,
) -> Verification:
    """Runs source and artifact, a file or what runs as one, on the same feeds, drawn with `seed`.

    `form` is its format, `weights_dtype` what its matrices are stored in where that is less than they were.
    `max_error` is the bound of every float of an artifact that is not meant to be equal; its choices may
    differ where errors of that size in their scores explain it.

    A `recording` brings the feeds, and answers of the original, which judge in the place of the reference's.
    """
    trust = vouched.trust
    plan = judges.with_judging_values(plan)
    judging = judges.judge_for(plan)
    scores = judging.scores(plan)
    wanted = [*plan.signature.outputs.values(), *(name for name, _ in scores.values())]
    golden_file = recordings.open_recording(plan, recording) if recording else None
    with judging.opened(plan, trust=trust) as judge:
        fed = _choose_feeds(plan, judge, golden_file, data, more=_more(plan, form), seed=seed)
        judge.restart()
        exact, seen = [], []
        for feed in _count_feeds(fed, 0):
            exact.append(_call_judge(plan, judge, feed, wanted))
            seen.append([*judge.sizes])

        nodes, runs = [recurrence.node for recurrence in plan.recurrences], _Runs(fed, exact, wanted)
        still = not _moving(plan, judge, runs, nodes) if nodes else False
    answer = (
        runners.open_artifact(form, artifact, plan.parts, vouched) if isinstance(artifact, Path) else artifact
    )
    answers = _call_artifact(plan, answer, fed)
    dtype = _coarsest(plan, form, weights_dtype)
    given = Bounds(dtype, atol=atol, rtol=rtol, most=max_error)
    whole = Whole(plan, form, exact, answers, wanted, scores, golden_file, given, seen)
    reports = _judge_outputs(whole, fed, seed=seed, trust=trust)
    milder: list[dict[str, Array]] = []
    usual = {recurrence.output for recurrence in reports if recurrence.judged}
    if golden_file is None and not (given.is_given or plan.states or _are_large(plan)):
        values = _values(fed) if data else {}
        milder, reports = _milder(whole, reports, answer, values, seed=seed, trust=trust)
    asked: tuple[PieceReport, ...] = ()
    around: GlueReport | None = None
    if isinstance(artifact, Path) and max_error is None:
        blind = still or not all(report.judged for report in reports)
        # What does not verify needs none of it.
        from cudnn_convert.verification.pieces import ask
        from cudnn_convert.verification.pieces.piece_inputs import Artifact

        asked_of = Artifact(form, artifact, plan, answer)
        with context.on(artifact):
            asked = ask.reports(asked_of, stored=weights_dtype, seed=seed)
        is_asked = blind and bool(nodes) and not _are_large(plan) and all(report.passed for report in asked)
        if is_asked:
            feed = min(fed, key=_size)
            around = ask.glue(asked_of, feed, dtype=dtype, stored=weights_dtype, trust=trust)
    keys = {name: key for key, name in plan.signature.inputs.items()}
    shapes = tuple({keys[name]: value.shape for name, value in feed.items()} for feed in (*fed, *milder))
    # What a recurrence moves on the usual feeds shows nothing of it on milder ones.
    moving = {node: keys & usual for node, keys in _singly(plan, runs, asked, trust=trust).items()}
    overall = compare.of(reports, asked, moving, still=still, glue=around)
    return Verification(
        overall.passed,
        seed,
        shapes,
        reports,
        (*compare.warnings(reports), *whole.disagreements(reports), *overall.warnings),
        recording=golden_file.facts if golden_file else None,
        recurrences=asked,
        end_to_end=overall.end_to_end,
        unproven=overall.unproven,
        glue=around,
    )


def _judge_outputs(
    whole: Whole, fed: Sequence[dict[str, Array]], *, seed: int, trust: bool
) -> tuple[OutputReport, ...]:
    """The outputs on some feeds, held against what rounding does there."""
    plan, dtype, wanted = whole.plan, whole.given.dtype, whole.wanted
    noise = [0.0] * len(wanted)
    if dtype.name != "float64":
        with judges.judge_for(plan).opened(plan, dtype=_working(dtype), trust=trust) as rough:

            def evaluate(draw: int, number: int) -> list[Array]:
                context.report_progress("verifying", 2 * len(fed) + number, 3 * len(fed))
                rough.draw(draw)
                if number == 0:
                    rough.restart()
                return _call_judge(
                    plan, rough, end_to_end.perturb_feed(fed[number], seed=seed, draw=draw), wanted
                )

            def enough(first: list[float]) -> bool:
                is_small = all(map(compare.is_small, first, whole.kinds))
                reports = whole.reports(first)
                # More evaluations can but widen a bound: what it does not judge now it will not judge then.
                is_settled = is_small and all(report.passed for report in reports)
                return _are_large(plan) or is_settled or not any(report.judged for report in reports)

            def doubtful(worst: list[float]) -> bool:
                if whole.given.is_given or _are_large(plan):
                    return False
                return any(not report.passed and report.needed < _DOUBTFUL for report in whole.reports(worst))

            noise = end_to_end.largest(
                whole.exact, evaluate, enough=enough, doubtful=doubtful, in_order=bool(plan.states)
            )
    return whole.reports(noise)


def _values(fed: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The values of each tensor in all feeds, as rows of its last axis where that is one in all."""
    values = {}
    for name in fed[0]:
        arrays = [feed[name] for feed in fed]
        widths = {value.shape[-1] if value.ndim > 1 else 0 for value in arrays}
        rows = (-1, *widths) if len(widths) == 1 and 0 not in widths else (-1,)
        values[name] = np.concatenate([value.reshape(rows) for value in arrays])
    return values


def _milder(
    whole: Whole,
    reports: tuple[OutputReport, ...],
    answer: runners.Runner,
    values: Mapping[str, Array],
    *,
    seed: int,
    trust: bool,
) -> tuple[list[dict[str, Array]], tuple[OutputReport, ...]]:
    """Outputs that are not judged on the usual feeds, tried on milder ones; which of those judged some.

    Where the user gave `values`, by tensor, these are of them, in fewer steps.
    """
    judged_on: list[dict[str, Array]] = []
    plan = whole.plan
    for spread, size in judges.MILDER:
        if all(report.judged for report in reports) or not all(report.passed for report in reports):
            break
        with judges.judge_for(plan).opened(plan, trust=trust) as judge:
            try:
                floats = judges.Floats(spread, values)
                fed = judges.judge_for(plan).generated(plan, judge, seed=seed, usual=(size,), floats=floats)
            except UnsupportedModelError:  # a model may take no other sizes
                continue
            judge.restart()
            exact = [_call_judge(plan, judge, feed, whole.wanted) for feed in fed]
            sizes = [*judge.sizes]
        again = replace(whole, exact=exact, found=_call_artifact(plan, answer, fed), seen=[sizes])
        what = "fewer steps of values of --data" if values else f"of standard deviation {spread:g}"
        on_these = _judge_outputs(again, fed, seed=seed, trust=trust)
        new = tuple(
            _instead(
                other, what=what, why=whole.describe_bound(report), feed=len(whole.exact) + len(judged_on)
            )
            if not report.judged and other.judged and again.spread(other.output)
            else report
            for report, other in zip(reports, on_these, strict=True)
        )
        judged_on += fed if new != reports else []
        reports = new
    return judged_on, reports


def _instead(other: OutputReport, *, what: str, why: str, feed: int) -> OutputReport:
    """The report on a milder feed, the number `feed` of all; `why` that on others judges nothing."""
    message = f"judged on milder inputs, {what}; on others {why}"
    worst = None if other.worst_element is None else replace(other.worst_element, feed=feed)
    return replace(other, message=other.message or message, worst_element=worst)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Feeds by tensor, and the source's exact answers to each: the tensors `wanted`."""

    fed: Sequence[Mapping[str, Array]]
    exact: Sequence[Sequence[Array]]
    wanted: Sequence[str]


def _singly(
    plan: Plan, runs: _Runs, asked: Sequence[PieceReport], *, trust: bool
) -> dict[str, frozenset[str]]:
    """The outputs that move with each recurrence that was not asked by itself."""
    alone = compare.proven_alone(asked)
    others = [recurrence.node for recurrence in plan.recurrences if recurrence.node not in alone]
    if not others:
        return {}
    with judges.judge_for(plan).opened(plan, trust=trust) as judge:
        return {node: _moving(plan, judge, runs, [node]) for node in others}


def _moving(plan: Plan, judge: Source, runs: _Runs, nodes: Sequence[str]) -> frozenset[str]:
    """The outputs that move with some recurrences, on the smallest feed on which any does."""
    fed, exact, wanted = runs.fed, runs.exact, runs.wanted

    def again(number: int) -> list[Array]:
        judge.restart()
        return _call_judge(plan, judge, fed[number], wanted)

    # The state that a later call finds depends on those before it.
    order = [0] if plan.states else sorted(range(len(fed)), key=lambda k: _size(fed[k]))
    places = {key: position for position, key in enumerate(plan.signature.outputs)}
    return end_to_end.find_dependent_outputs(judge, again, exact, nodes, places, feeds=order)


def _size(feed: Mapping[str, Array]) -> int:
    return sum(value.size for value in feed.values())


def _count_feeds(fed: Sequence[dict[str, Array]], turn: int) -> Iterator[dict[str, Array]]:
    """The feeds of one of three turns: the source exactly, the artifact, the source in a working type."""
    for number, feed in enumerate(fed, turn * len(fed)):
        context.report_progress("verifying", number, 3 * len(fed))
        yield feed


def _more(plan: Plan, form: str) -> Sizes:
    """The (time, batch) that an artifact computes in another way than those that are always tried."""
    return (*FORMATS[form].sizes, FEW) if plan.model.saved is not None else FORMATS[form].sizes


def _choose_feeds(
    plan: Plan, judge: Source, told: recordings.Golden | None, data: Path | None, *, more: Sizes, seed: int
) -> list[dict[str, Array]]:
    """The feeds by tensor: recorded, given or made up; a recording's are as many calls as it had."""
    if told:
        recordings.require_accepted(plan, judge, told)
        return [*told.feeds]
    if data:
        fed = recordings.accept_feeds(plan, judge, data)
    else:
        fed = judges.judge_for(plan).generated(plan, judge, seed=seed, more=more)
    # What stays in variables shows from the second call on.
    return fed * 2 if len(fed) == 1 and any(state.stays for state in plan.states) else fed


def _call_artifact(
    plan: Plan, answer: runners.Runner, fed: Sequence[dict[str, Array]]
) -> list[dict[str, Array]]:
    """The artifact's answers by key. State that it takes and gives goes on to the next call unless fed."""
    keys = {name: key for key, name in plan.signature.inputs.items()}
    ends, answers = {name: key for key, name in plan.signature.outputs.items()}, []
    leaving = [
        (keys[state.start], ends[state.end], plan.model.variables[state.state.key])
        for state in plan.states
        if state.start is not None and state.end is not None
    ]
    carried = {start: value.read() for start, _, value in leaving}
    for feed in _count_feeds(fed, 1):
        answers.append(answer(carried | {keys[name]: value for name, value in feed.items()}))
        carried |= {start: answers[-1][end] for start, end, _ in leaving if end in answers[-1]}
    return answers


def _call_judge(plan: Plan, judge: Source, feed: Mapping[str, Array], wanted: Sequence[str]) -> list[Array]:
    """The judge's answers to one feed: each part is a call of its own, which the state sees as one."""
    if len(plan.parts) == 1 or not plan.states:
        return judge.run(feed, wanted)
    answers: dict[str, Array] = {}
    for part in plan.parts:
        others = {
            name
            for other_part in plan.parts
            if other_part is not part
            for name in other_part.signature.outputs.values()
        }
        names = [name for name in wanted if name in part.signature.outputs.values() or name not in others]
        answers |= zip(names, judge.run(feed, names), strict=True)
    return [answers[name] for name in wanted]


def _coarsest(plan: Plan, form: str, stored: str) -> np.dtype[Any]:
    """The type to judge by: the coarsest of the recurrences' and of what the artifact stores weights in.

    ONNX and TFLite compute doubles as float32.
    """
    kinds = {recurrence.dtype.name: recurrence.dtype for recurrence in plan.recurrences}
    kinds |= {kind.name: kind for kind in judges.judge_for(plan).dtypes(plan)}
    if stored != "float32":
        kinds |= {stored: np.dtype(stored)}
    coarsest = max(kinds, key=COARSENESS.index, default="float32")
    if coarsest == "float64" and FORMATS[form].computes_single:
        coarsest = "float32"
    return kinds.get(coarsest, np.dtype(np.float32))


def _working(dtype: np.dtype[Any]) -> Any:
    return np.float32 if dtype.name == "float64" else dtype.type


def _are_large(plan: Plan) -> bool:
    """Whether a recurrence is too large to be evaluated more often than it must be."""
    return any(
        lazy.exceeds_memory_budget(recurrence.sizes, recurrence.dtype) for recurrence in plan.recurrences
    )
