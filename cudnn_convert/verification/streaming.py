"""Runs an artifact in chunks of steps, with its states carried, and judges that as one call.

A sequence in one call must equal the same sequence in chunks of 1, of 7 and of ragged sizes. The answers of
all chunks together are compared with what the source gives for the whole sequence, under the bounds of a
whole call: a state that is not carried, or that is another's, shows, and so does an op that looks across
chunks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cudnn_convert.artifacts import runners
from cudnn_convert.model import Array
from cudnn_convert.plan import Streaming
from cudnn_convert.report import StreamReport
from cudnn_convert.verification.end_to_end import Comparison

#: The sizes of chunks that are tried beside ragged ones.
SIZES: Final = (1, 7)
#: The most steps of a ragged chunk.
_MOST: Final = 5
#: How many ragged chunks there are before their sizes repeat.
_RAGGED: Final = 11


@dataclass(frozen=True, slots=True)
class Chunked:
    """The answers of an artifact that got each feed in chunks; `chunks` says of which sizes."""

    chunks: str
    comparison: Comparison


def run_in_chunks(comparison: Comparison, runner: runners.Runner) -> tuple[Chunked, ...]:
    """Run the feeds of a comparison in chunks of each kind; empty for a plan that is not streamed."""
    plan = comparison.judging.plan
    if plan.streaming is None:
        return ()
    keys = {name: key for key, name in plan.signature.inputs.items()}
    feeds = [{keys[name]: value for name, value in feed.items()} for feed in comparison.trial.feeds]
    rng = np.random.default_rng(comparison.judging.seed)
    ragged = [int(size) for size in rng.integers(1, _MOST + 1, _RAGGED)]
    kinds = {f"of {size}": [size] for size in SIZES} | {"of ragged sizes": ragged}
    chunked = []
    for what, sizes in kinds.items():
        answers = [answer_in_chunks(plan.streaming, runner, feed, sizes) for feed in feeds]
        chunked.append(Chunked(what, replace(comparison, answers=answers)))
    return tuple(chunked)


def answer_in_chunks(
    streaming: Streaming, runner: runners.Runner, feed: Mapping[str, Array], sizes: Sequence[int]
) -> dict[str, Array]:
    """The answers to a feed by key, given in chunks of `sizes`, which repeat, one after the other.

    What has steps is joined along them; of all else the last chunk's value holds.
    """
    carried = {state.key: feed[state.key] for state in streaming.states}
    answers: list[dict[str, Array]] = []
    steps = max(feed[key].shape[axis] for key, axis in streaming.inputs.items())
    for begin, end in _spans(steps, sizes):
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
    """What a chunk takes of a feed: its steps, and what is left of the lengths."""
    given = dict(feed)
    for key, axis in streaming.inputs.items():
        given[key] = feed[key][(slice(None),) * axis + (slice(begin, end),)]
    for key in streaming.lengths:
        given[key] = np.clip(feed[key] - begin, 0, end - begin).astype(feed[key].dtype)
    return given


def _spans(steps: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    begin, number = 0, 0
    while begin < steps:
        end = min(steps, begin + sizes[number % len(sizes)])
        yield begin, end
        begin, number = end, number + 1


def judge_chunks(chunked: Sequence[Chunked], noise: Sequence[float]) -> StreamReport | None:
    """Judge the answers in chunks by the bounds of a whole call; None where nothing was run in chunks."""
    if not chunked:
        return None
    reports = {kind.chunks: kind.comparison.reports(noise) for kind in chunked}
    every = [report for outputs in reports.values() for report in outputs]
    worst = max(every, key=lambda report: (not report.passed, report.needed))
    failed = [
        f"output {report.output} of a sequence in chunks {chunks}: {report.message}"
        for chunks, outputs in reports.items()
        for report in outputs
        if not report.passed
    ]
    judged = [report for report in every if report.judged]
    return StreamReport(
        passed=not failed,
        chunks=tuple(reports),
        compared=sum(report.compared for report in judged),
        worst=worst.worst,
        needed=worst.needed,
        unjudged=tuple(dict.fromkeys(report.output for report in every if not report.judged)),
        message="; ".join(failed[:1]),
    )
