"""Runs an artifact in chunks of steps with carried states, judged as a single call.

A sequence in one call must equal the same sequence in chunks of 1, of 7 and of ragged sizes. The answers of
all chunks together are compared with what the source gives for the whole sequence, under the bounds of a
whole call: a state that is not carried, or that is another's, shows, and so does an op that looks across
chunks. This is asked twice: of random states, and of the states that the artifact itself begins with, where
the source begins as it does. What an artifact begins with is compared with the source's too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.model import Array, Signature
from cudnn_convert.plan import Plan, Streaming
from cudnn_convert.report.values import StreamReport
from cudnn_convert.values import StreamState
from cudnn_convert.verification import effort
from cudnn_convert.verification.end_to_end import Comparison
from cudnn_convert.verification.settings import Settings, open_runner
from cudnn_convert.verification.trials import by_key

#: What the keys of states, and of what an encoder makes, get for what the source has of them.
_BEGIN, _ENCODE = "begin/", "encode/"
_FROM_THE_START: Final = "that begins as the source does, "


@dataclass(frozen=True, slots=True)
class Chunked:
    """The answers of an artifact to feeds in chunks; `chunks` describes the sizes.

    `what` describes the sequence where it does not begin with random states, `beside` what judges it.
    """

    chunks: str
    comparison: Comparison
    what: str = ""
    beside: str = "the whole"


@dataclass(frozen=True, slots=True)
class Before:
    """The artifact's parts run before the first step, or None for missing parts."""

    begin: runners.Runner | None
    encode: runners.Runner | None


def open_before(settings: Settings, artifact: Path | runners.Runner, streaming: Streaming) -> Before:
    """Open the artifact's parts for runs before the first step. Raises as `open_artifact`."""
    parts = (streaming.begin, streaming.encode)
    if not isinstance(artifact, Path):
        return Before(None, None)
    return Before(*(None if part is None else open_runner(settings, artifact, [part]) for part in parts))


def run_in_chunks(comparison: Comparison, runner: runners.Runner) -> tuple[Chunked, ...]:
    """Run the feeds of a comparison in chunks of each kind.

    Returns an empty tuple for a plan that is not streamed.
    """
    plan = comparison.settings.plan
    streaming = plan.streaming
    if streaming is None:
        return ()
    chunked = []
    for what, sizes in list_kinds(comparison.settings.seed, streaming.chunk).items():
        feeds = [by_key(plan, feed) for feed in comparison.trial.feeds]
        answers = [answer_in_chunks(streaming, runner, feed, sizes) for feed in feeds]
        chunked.append(Chunked(what, replace(comparison, answers=answers)))
    return tuple(chunked)


def list_kinds(seed: int, chunk: int | None = None) -> dict[str, list[int]]:
    """Return the sizes of chunks of each kind; the sizes repeat.

    An artifact that takes `chunk` steps alone has one kind.
    """
    if chunk is not None:
        return {f"of {chunk}": [chunk]}
    rng = np.random.default_rng(seed)
    ragged = [int(size) for size in rng.integers(1, effort.MOST_RAGGED_STEPS + 1, effort.RAGGED_CHUNKS)]
    return {f"of {size}": [size] for size in effort.CHUNK_STEPS} | {"of ragged sizes": ragged}


def plan_whole(plan: Plan) -> Plan | None:
    """Return the source's plan with initial states as outputs instead of inputs.

    None for weights without a graph, which begin with zeros or with what they are given.
    """
    streaming = plan.streaming
    if streaming is None or streaming.whole is None:
        return None
    from cudnn_convert.graph.graph import (  # TensorFlow, which weights without a graph do not need
        Graph,
        copy_graph,
    )
    from cudnn_convert.verification import graph_judge

    whole = streaming.whole
    graph = copy_graph(whole.whole)
    graph_judge.keep_begins(graph, plan)
    outputs = dict(whole.signature.outputs) | {begin_key(state): state.begin for state in streaming.states}
    outputs |= {_ENCODE + each.key: each.tensor for each in streaming.encoded}
    return replace(whole, whole=Graph(graph), signature=Signature(whole.signature.inputs, outputs))


def list_beginnings(plan: Plan, comparison: Comparison) -> list[dict[str, Array]]:
    """Return the feeds of whole sequences with the source's initial states.

    The feeds are by the keys of a streamed `plan`. `comparison` is of `plan_whole`.
    """
    whole, streaming = comparison.settings.plan, plan.streaming
    assert streaming is not None
    names = {begin_key(state): state.key for state in streaming.states}
    names |= {_ENCODE + each.key: each.key for each in streaming.encoded}
    feeds = [by_key(whole, feed) for feed in comparison.trial.feeds]
    exact = [dict(zip(whole.signature.outputs, values, strict=False)) for values in comparison.trial.exact]
    return [
        feed | {names[key]: value for key, value in values.items() if key in names}
        for feed, values in zip(feeds, exact, strict=True)
    ]


def begin_key(state: StreamState) -> str:
    """Return the key of a state among the outputs of `plan_whole`."""
    return _BEGIN + state.key


def run_from_the_start(
    comparison: Comparison, plan: Plan, runner: runners.Runner, before: Before
) -> tuple[Chunked, ...]:
    """Run the feeds of whole sequences in chunks, from the artifact's beginnings.

    `comparison` is of `plan_whole`, `plan` the streamed one; its answers are replaced.
    """
    streaming = plan.streaming
    assert streaming is not None
    whole = comparison.settings.plan
    chunked = []
    for what, sizes in list_kinds(comparison.settings.seed, streaming.chunk).items():
        answers = []
        for by_tensor, values in zip(comparison.trial.feeds, comparison.trial.exact, strict=True):
            feed, exact = by_key(whole, by_tensor), dict(zip(whole.signature.outputs, values, strict=False))
            starts = {state.key: exact[begin_key(state)] for state in streaming.states}
            fed = dict(feed) if before.encode is None else feed | before.encode(feed)
            first = _chunk(streaming, fed, 0, sizes[0])
            states = begin(streaming, before, first, starts)
            answer = answer_in_chunks(streaming, runner, fed | states, sizes)
            if before.encode is not None:  # outputs of the source that need no step
                answer = {key: fed[key] for key in whole.signature.outputs if key in fed} | answer
            begun = {begin_key(each): states[each.key] for each in streaming.states}
            begun |= {_ENCODE + each.key: fed[each.key] for each in streaming.encoded if each.key in fed}
            own = {key: value for key, value in answer.items() if key in whole.signature.outputs}
            answers.append(own | begun)
        chunked.append(Chunked(what, replace(comparison, answers=answers), _FROM_THE_START))
    return tuple(chunked)


def begin(
    streaming: Streaming, before: Before, first: Mapping[str, Array], starts: Mapping[str, Array]
) -> dict[str, Array]:
    """Return a user's initial states by key, for the `first` chunk of a sequence.

    `starts` are the source's own: a user gives those that are inputs of the source.
    """
    zeros = {key: np.zeros_like(value) for key, value in starts.items()}
    if before.begin is not None:
        return {**zeros, **before.begin(first)}
    if streaming.begin_outputs:  # which are judged as outputs; these stand in the metadata
        values = streaming.values.items()
        return {
            key: np.broadcast_to(value, starts[key].shape).astype(starts[key].dtype) for key, value in values
        }
    return zeros | {key: starts[key] for key in streaming.given}


def answer_in_chunks(
    streaming: Streaming, runner: runners.Runner, feed: Mapping[str, Array], sizes: Sequence[int]
) -> dict[str, Array]:
    """Return the answers to a feed by key, run in chunks of repeating `sizes`.

    The chunks come one after the other. What has steps is joined along them; of all else the last chunk's
    value holds.
    """
    carried = {state.key: feed[state.key] for state in streaming.states}
    answers: list[dict[str, Array]] = []
    steps = max(feed[key].shape[axis] for key, axis in streaming.inputs.items())
    for begin, end in spans(steps, sizes):
        answers.append(runner({**_chunk(streaming, feed, begin, end), **carried}))
        carried |= {
            state.key: answers[-1][state.next_key]
            for state in streaming.states
            if state.next_key in answers[-1]  # a missing output is told as one
        }
    joined = dict(answers[-1])
    for key, axis in streaming.outputs.items():
        parts = [answer[key] for answer in answers if key in answer]
        joined |= {key: np.concatenate(parts, axis)} if len(parts) == len(answers) else {}
    return joined


def _chunk(streaming: Streaming, feed: Mapping[str, Array], begin: int, end: int) -> dict[str, Array]:
    """Return the chunk of a feed: the steps, and the rest of the lengths."""
    given = dict(feed)
    for key, axis in streaming.inputs.items():
        given[key] = feed[key][(slice(None),) * axis + (slice(begin, end),)]
    for key in streaming.lengths:
        given[key] = np.clip(feed[key] - begin, 0, end - begin).astype(feed[key].dtype)
    return given


def spans(steps: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield each chunk's first step and end (exclusive); `sizes` repeat."""
    begin, number = 0, 0
    while begin < steps:
        end = min(steps, begin + sizes[number % len(sizes)])
        yield begin, end
        begin, number = end, number + 1


def judge_chunks(kinds: Sequence[tuple[Chunked, Sequence[float]]]) -> StreamReport | None:
    """Judge the answers in chunks by the bounds of a whole call, if any.

    Returns None where nothing was run in chunks. Each answer comes with the noise of its outputs.
    """
    if not kinds:
        return None
    reports = [(kind, kind.comparison.reports(noise)) for kind, noise in kinds]
    every = [report for _, outputs in reports for report in outputs]
    worst = max(every, key=lambda report: (not report.passed, report.needed))
    failed = [
        f"output {report.output} of a sequence {kind.what}in chunks {kind.chunks}: {report.message}"
        for kind, outputs in reports
        for report in outputs
        if not report.passed
    ]
    judged = [report for report in every if report.judged]
    return StreamReport(
        passed=not failed,
        chunks=tuple(dict.fromkeys(kind.chunks for kind, _ in kinds)),
        compared=sum(report.compared for report in judged),
        worst=worst.worst,
        needed=worst.needed,
        unjudged=tuple(dict.fromkeys(report.output for report in every if not report.judged)),
        message="; ".join(failed[:1]),
        beside=kinds[0][0].beside,
    )
