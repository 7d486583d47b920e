"""Verifies an artifact against the source: from feeds to a `Verification`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cudnn_convert import context
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.model import Array
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.report import Verification
from cudnn_convert.report.values import DecodingReport, GlueReport, OpsReport, OutputReport, PieceReport
from cudnn_convert.verification import (
    compare,
    effort,
    end_to_end,
    neighbours,
    newer_kernels,
    rounding,
    shards,
    source_runs,
    streaming,
    trials,
)
from cudnn_convert.verification.calls_in_a_row import call_in_a_row
from cudnn_convert.verification.end_to_end import Comparison
from cudnn_convert.verification.judges import Floats
from cudnn_convert.verification.settings import Settings, choose_judge, make_settings, open_runner
from cudnn_convert.verification.trials import Trial


def verify_artifact(
    plan: Plan,
    artifact: Path | runners.Runner,
    options: Options,
    measure: shards.Measure | None = None,
    *,
    is_copy: bool = False,
    is_fresh: bool = False,
) -> Verification:
    """Run source and artifact on the same feeds, and judge the artifact's answers.

    The artifact is a file, or what runs as one. Of the `options`, `format` is the artifact's, and
    `weights_dtype` what its matrices are stored in. A recording, `golden`, brings the feeds, and its answers
    judge in the place of the reference's. `max_error` is the bound of every float of an artifact that is not
    meant to be equal; its choices may differ where errors of that size in their scores explain it. `measure`
    compares shards of the user's feeds elsewhere. `is_copy`: this tool wrote the
    artifact; `is_fresh`: just now. Raises the errors of `cudnn_convert.errors`.
    """
    whole = streaming.plan_whole(plan)
    beside = make_settings(whole, options) if whole else None
    # What was recorded of the source are calls of its own, which begin with its own states.
    own = replace(options, golden=None) if beside else options
    settings = make_settings(plan, own, shared=measure is not None)
    if measure is not None:
        comparison = shards.compare_shards(settings, measure)
        settings = comparison.settings  # what was drawn of the data is known now
        trial = source_runs.find_dependence(settings, comparison.trial)
        comparison = replace(comparison, trial=trial)
        runner = open_runner(settings, artifact)
    else:
        trial = source_runs.run_source(settings)
        runner = open_runner(settings, artifact)
        comparison = Comparison(settings, trial, end_to_end.run_artifact(settings.plan, runner, trial.feeds))
    chunked = streaming.run_in_chunks(comparison, runner)
    noise = measure_noise(comparison, *(kind.comparison for kind in chunked))
    usual = comparison.reports(noise)
    comparison, usual, rewritten = accept_rewriting(comparison, noise, usual)
    begun, served = judge_whole(beside, plan, artifact, runner) if beside else ((), ())
    beginnings = streaming.list_beginnings(plan, begun[0][0].comparison) if begun else []
    called = [(kind, measure_noise(kind.comparison)) for kind in call_in_a_row(comparison, runner)]
    in_chunks = streaming.judge_chunks([*((kind, noise) for kind in chunked), *begun, *called])
    milder, outputs = judge_on_milder_feeds(comparison, usual, runner)
    pieces, glue = ask_pieces(settings, trial, artifact, runner, outputs)
    ops = ask_ops(settings, trial, artifact, runner, is_copy=is_copy, is_fresh=is_fresh)
    outputs += served
    searched = judge_search(comparison, artifact, runner, beginnings)
    moving = find_judged_moves(trial, usual)
    still = [node for node, keys in trial.moved.items() if not keys]
    verdict = compare.combine(outputs, pieces, moving, still=still, glue=glue, ops=ops)
    return Verification(
        verdict.passed and all(each is None or each.passed for each in (in_chunks, searched)),
        settings.seed,
        (*comparison.shapes_of_feeds(), *(end_to_end.shapes_of(settings.plan, feed) for feed in milder)),
        outputs,
        (
            *compare.warnings(outputs),
            *comparison.disagreements(outputs),
            *verdict.warnings,
            *rewritten,
            *_warn_of_neighbours(comparison, noise),
            *_warn_of_end(searched, plan),
        ),
        recording=golden.facts if (golden := (beside or settings).golden) else None,
        recurrences=pieces,
        end_to_end=verdict.end_to_end,
        unproven=verdict.unproven,
        glue=glue,
        ops=ops,
        streaming=in_chunks,
        data=None if settings.calls is None else settings.calls.summary,
        decoding=searched,
        remarks=(*compare.remarks(outputs), *verdict.remarks, *newer_kernels.describe(plan)),
    )


def judge_search(
    comparison: Comparison,
    artifact: Path | runners.Runner,
    step: runners.Runner,
    beginnings: Sequence[Mapping[str, Array]],
) -> DecodingReport | None:
    """Judge an artifact's search over the artifact's steps, if any.

    `beginnings` are whole sequences with what the source begins with, for a search that begins by itself.
    """
    settings, plan = comparison.settings, comparison.settings.plan
    if plan.decoder is None or not isinstance(artifact, Path):
        return None
    from cudnn_convert.verification import decoding  # few proofs need it, and what judges it

    form = settings.options.format
    decode = open_runner(settings, artifact, [plan.decoder.part])
    feeds = [trials.by_key(plan, feed) for feed in comparison.trial.feeds]
    own = [*beginnings] if plan.decoder.begun else feeds
    report = decoding.judge_decoder(plan, step, decode, own, seed=settings.seed)
    if report.passed and Keeps.ONE_FILE not in FORMATS[form].keeps:
        difference = decoding.find_other_weight(runners.read_arrays(form, artifact), plan.decoder)
        report = replace(report, passed=not difference, message=difference)
    return report


def _warn_of_end(searched: DecodingReport | None, plan: Plan) -> Iterator[str]:
    """Yield a warning where all sequences of a proof missed the end."""
    end = None if searched is None or plan.decoder is None else plan.decoder.end
    if searched is not None and end is not None and searched.passed and not searched.ended:
        yield f"decode: no sequence chose the end {end} on these inputs, so it is not shown"


def judge_whole(
    settings: Settings, plan: Plan, artifact: Path | runners.Runner, runner: runners.Runner
) -> tuple[tuple[tuple[streaming.Chunked, Sequence[float]], ...], tuple[OutputReport, ...]]:
    """Judge a streamed artifact on whole sequences, begun like the source.

    `settings` is of `streaming.plan_whole`. Returns the answers in chunks with the noise of their outputs,
    and the reports of the signature without states, if the artifact has one. Feeds of the user may have the
    keys of states, which the source does not take.
    """
    assert plan.streaming is not None
    without = [
        *(state.key for state in plan.streaming.states),
        *(each.key for each in plan.streaming.encoded),
    ]
    with settings.judge.open(trust=settings.trust) as source:
        feeds = source_runs.choose_feeds(settings, source, without=without)
        trial = trials.try_feeds(settings, source, feeds)
    before = streaming.open_before(settings, artifact, plan.streaming)
    comparison = Comparison(settings, trial, [{} for _ in feeds])
    chunked = streaming.run_from_the_start(comparison, plan, runner, before)
    every = [kind.comparison for kind in chunked]
    if plan.serving:
        # The signature has no states as outputs: those that chunks began with stand in for them.
        begun = [
            {key: value for key, value in answer.items() if key not in plan.serving.signature.outputs}
            for answer in every[0].answers
        ]
        serving = replace(settings, judge=choose_judge(plan.serving))
        answers = end_to_end.run_artifact(plan.serving, open_runner(serving, artifact), feeds)
        pairs = zip(begun, answers, strict=True)
        every.append(replace(comparison, answers=[states | answer for states, answer in pairs]))
    noise = measure_noise(*every)
    judged = tuple((kind, noise) for kind in chunked)
    if not plan.serving:
        return judged, ()
    name, keys = plan.serving.parts[0].name, plan.serving.signature.outputs
    served = (output for output in every[-1].reports(noise) if output.output in keys)
    return judged, tuple(replace(output, output=f"{name}/{output.output}") for output in served)


def _warn_of_neighbours(comparison: Comparison, noise: Sequence[float]) -> list[str]:
    """Return a warning for each output with rows dependent on neighbour rows."""
    influence = comparison.trial.influence
    spreads = {key: comparison.spread(key) for key in influence}
    floors = dict(zip(comparison.settings.plan.signature.outputs, noise, strict=False))
    return neighbours.describe(influence, spreads, floors)


def find_judged_moves(trial: Trial, outputs: Sequence[OutputReport]) -> dict[str, frozenset[str]]:
    """Select, per recurrence, the judged outputs influenced by the recurrence.

    What a recurrence moves on the usual feeds shows nothing of it on milder ones.
    """
    judged = frozenset(output.output for output in outputs if output.judged)
    return {node: keys & judged for node, keys in trial.moved.items()}


def measure_noise(comparison: Comparison, *others: Comparison) -> list[float]:
    """Measure the movement of each wanted tensor of the source by rounding.

    `others` are the same trial with other answers. Further evaluations are made while a verdict on any of
    them may hang on it.
    """
    settings, trial, every = comparison.settings, comparison.trial, (comparison, *others)
    if settings.dtype.name == "float64":
        return [0.0] * len(settings.wanted)
    with settings.judge.open(dtype=settings.dtype.type, trust=settings.trust) as source:

        def evaluate(draw: int, number: int) -> list[Array]:
            trials.report_turn(2, number, trial.feeds)
            source.draw.number = draw
            if number == 0:
                source.restart()
            feed = rounding.perturb_feed(trial.feeds[number], seed=settings.seed, draw=draw)
            return trials.run_judge(settings, source, feed)

        return rounding.largest(
            trial.exact,
            evaluate,
            enough=lambda noise: all(each.is_settled(noise) for each in every),
            doubtful=lambda noise: any(each.is_doubtful(noise) for each in every),
            in_order=bool(settings.plan.states),
            first=comparison.first_gaps,
        )


def accept_rewriting(
    comparison: Comparison, noise: Sequence[float], outputs: tuple[OutputReport, ...]
) -> tuple[Comparison, tuple[OutputReport, ...], tuple[str, ...]]:
    """Judge differing outputs by the source as rewritten by TensorFlow's optimizer.

    The optimizer makes `x` of `(x + 1e10) - 1e10`, in the artifact as in the source, wherever a user runs
    them. Returns the comparison, the outputs, and a warning for each that is equal so and not as it is
    written.
    """
    settings, trial = comparison.settings, comparison.trial
    differing = {output.output for output in outputs if not output.passed}
    if not differing or isinstance(settings.plan, RecurrencesPlan) or settings.golden or settings.plan.states:
        return comparison, outputs, ()
    import tensorflow as tf  # a source with a graph has loaded it

    from cudnn_convert.verification import graph_judge

    try:
        with graph_judge.open_source(settings.plan, trust=settings.trust, rewrite=True) as source:
            answers = [trials.run_judge(settings, source, feed) for feed in trial.feeds]
    except (tf.errors.OpError, ValueError):  # an op that no run reaches has no kernel
        return comparison, outputs, ()
    positions = {
        number for key, number in source_runs.find_positions(settings.plan).items() if key in differing
    }
    mixed = [
        [new if k in positions else old for k, (old, new) in enumerate(zip(exact, values, strict=True))]
        for exact, values in zip(trial.exact, answers, strict=True)
    ]
    other = replace(comparison, trial=replace(trial, exact=mixed))
    reports = other.reports(noise)
    if not all(report.passed for report in reports):
        return comparison, outputs, ()
    what = "equal to the source as TensorFlow's optimizer rewrites its arithmetic, not as it is written"
    return other, reports, tuple(f"output {key}: {what}" for key in sorted(differing))


def judge_on_milder_feeds(
    comparison: Comparison, outputs: tuple[OutputReport, ...], runner: runners.Runner
) -> tuple[list[dict[str, Array]], tuple[OutputReport, ...]]:
    """Try unjudged outputs on milder feeds; return the milder feeds and all outputs.

    Where the user gave values, these are of them, in fewer steps.
    """
    settings, feeds = comparison.settings, comparison.trial.feeds
    if settings.golden or settings.has_bound or settings.plan.states or settings.is_large:
        return [], outputs
    values = _pool_values(feeds) if settings.calls is not None else {}
    judged_on: list[dict[str, Array]] = []
    for spread, size in effort.MILDER_FEEDS:
        if all(output.judged for output in outputs) or not all(output.passed for output in outputs):
            break
        milder = _compare_on(settings, runner, Floats(spread, values), size)
        if milder is None:
            continue
        what = "fewer steps of values of --data" if values else f"of standard deviation {spread:g}"
        new = tuple(
            _replace_report(
                other, what=what, why=comparison.describe_bound(output), feed=len(feeds) + len(judged_on)
            )
            if not output.judged and other.judged and milder.spread(other.output)
            else output
            for output, other in zip(outputs, milder.reports(measure_noise(milder)), strict=True)
        )
        judged_on += milder.trial.feeds if new != outputs else []
        outputs = new
    return judged_on, outputs


def _pool_values(feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Join the values of each tensor over all feeds, for sampling.

    Rows of the last axis where all feeds have the same width, else a flat array.
    """
    values = {}
    for name in feeds[0]:
        arrays = [feed[name] for feed in feeds]
        widths = {value.shape[-1] if value.ndim > 1 else 0 for value in arrays}
        rows = (-1, *widths) if len(widths) == 1 and 0 not in widths else (-1,)
        values[name] = np.concatenate([value.reshape(rows) for value in arrays])
    return values


def _compare_on(
    settings: Settings, runner: runners.Runner, floats: Floats, size: tuple[int, int]
) -> Comparison | None:
    """Run both on a feed of the given size, if the model takes any.

    Returns None else.
    """
    with settings.judge.open(trust=settings.trust) as source:
        try:
            feeds = settings.judge.make_feeds(source, seed=settings.seed, usual=(size,), floats=floats)
        except UnsupportedModelError:
            return None
        trial = trials.try_feeds(settings, source, feeds)
    return Comparison(settings, trial, end_to_end.run_artifact(settings.plan, runner, feeds))


def _replace_report(other: OutputReport, *, what: str, why: str, feed: int) -> OutputReport:
    """Return the report of milder feed number `feed`, with a message about the inputs.

    `what` describes the milder inputs, `why` says why the other feeds do not judge the output.
    """
    message = f"judged on milder inputs, {what}; on others {why}"
    worst = None if other.worst_element is None else replace(other.worst_element, feed=feed)
    return replace(other, message=other.message or message, worst_element=worst)


def ask_pieces(
    settings: Settings,
    trial: Trial,
    artifact: Path | runners.Runner,
    runner: runners.Runner,
    outputs: Sequence[OutputReport],
) -> tuple[tuple[PieceReport, ...], GlueReport | None]:
    """Ask each recurrence of a file, and the glue where outputs may hide the glue."""
    plan, options = settings.plan, settings.options
    if not isinstance(artifact, Path) or options.quantize is not None:
        return (), None
    # What does not verify needs none of it.
    from cudnn_convert.verification.pieces import ask
    from cudnn_convert.verification.pieces.piece_inputs import Artifact

    trials.report_turn(3, 0, trial.feeds)
    asked = Artifact(options.format, artifact, plan, runner)
    with context.on(artifact):
        pieces = ask.reports(asked, stored=options.weights_dtype, seed=settings.seed)
    is_blind = not any(trial.moved.values()) or not all(output.judged for output in outputs)
    # Nothing else asks a layer of Keras for the state that it keeps.
    has_states = any(state.stays for state in plan.states)
    all_passed = all(piece.passed for piece in pieces)
    if not ((is_blind or has_states) and plan.recurrences and all_passed) or settings.is_large:
        return pieces, None
    return pieces, ask.glue(asked, settings, trial.feeds[trial.find_smallest()])


def ask_ops(
    settings: Settings,
    trial: Trial,
    artifact: Path | runners.Runner,
    runner: runners.Runner,
    *,
    is_copy: bool,
    is_fresh: bool,
) -> OpsReport | None:
    """Compare the ops around the recurrences of a file, if any."""
    if not isinstance(artifact, Path) or isinstance(settings.plan, RecurrencesPlan):
        return None
    # What does not verify needs none of it.
    from cudnn_convert.verification.ops import ask
    from cudnn_convert.verification.pieces.piece_inputs import Artifact

    if trial.other_layer is not None:
        return OpsReport(asked=True, difference=trial.other_layer)
    with context.on(artifact):
        asked = Artifact(settings.options.format, artifact, settings.plan, runner)
        return ask.report(asked, settings, trial.feeds, is_copy=is_copy, is_fresh=is_fresh)
