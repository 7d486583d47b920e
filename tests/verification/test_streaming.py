"""Chunks of a feed: what each takes, what is carried, what is joined, and what is judged of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.samples import fixture

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.plan import Streaming
from cudnn_convert.report.values import StreamReport
from cudnn_convert.values import StreamState
from cudnn_convert.verification import streaming

STATE = StreamState("rnn", "h", True, "h", "h_next", "h:0", "h_next:0", 1, 1)
PLAN = Streaming((STATE,), {"x": 1}, {"sums": 1}, frozenset({"lengths"}))


def sums(given: Mapping[str, Any]) -> dict[str, Any]:
    """A sum that goes on: of the first `lengths` steps of each row."""
    x, lengths, h = given["x"], given["lengths"], given["h"][0, :, 0]
    alive = np.arange(x.shape[1]) < lengths[:, None]
    total = h[:, None] + np.cumsum(np.where(alive, x, 0), axis=1)
    end = total[:, -1]
    return {"sums": np.where(alive, total, 0), "last": end, "h_next": end[None, :, None], "x_seen": x}


FEED = {
    "x": np.arange(1.0, 25.0).reshape(2, 12),
    "lengths": np.array([12, 5], np.int32),
    "h": np.array([[[100.0], [-50.0]]]),
}


@pytest.mark.parametrize("sizes", [[1], [7], [5, 1, 3], [12], [100]])
def test_chunks_of_a_sum_are_the_whole(sizes: list[int]) -> None:
    whole = sums(FEED)
    chunked = streaming.answer_in_chunks(PLAN, sums, FEED, sizes)
    for key in ("sums", "last", "h_next"):
        np.testing.assert_array_equal(chunked[key], whole[key])


def test_each_chunk_takes_its_steps_and_what_is_left_of_the_lengths() -> None:
    calls: list[dict[str, Any]] = []

    def noted(given: Mapping[str, Any]) -> dict[str, Any]:
        calls.append({key: value.tolist() for key, value in given.items()})
        return sums(given)

    streaming.answer_in_chunks(PLAN, noted, FEED, [5, 4])
    assert [call["lengths"] for call in calls] == [[5, 5], [4, 0], [3, 0]]
    assert [len(call["x"][0]) for call in calls] == [5, 4, 3]
    assert [call["x"][0][0] for call in calls] == [1.0, 6.0, 10.0]
    assert calls[1]["h"] == [[[115.0], [25.0]]]


def test_an_output_that_an_artifact_lacks_stays_missing() -> None:
    def lacking(given: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in sums(given).items() if key not in ("sums", "h_next")}

    assert {*streaming.answer_in_chunks(PLAN, lacking, FEED, [5])} == {"last", "x_seen"}


def test_what_no_chunk_can_be_judged_by_is_not_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = StreamReport(True, ("of 1",), compared=0, worst=0.0, needed=0.0, unjudged=("probs",))
    monkeypatch.setattr(streaming, "judge_chunks", lambda kinds: blind)
    with pytest.raises(UnsupportedModelError) as refused:
        cudnn_convert.convert(
            fixture("1.15.5-lstm_uni_3l").prefix, tmp_path / "out", format="onnx", states=True
        )
    [reason] = refused.value.reasons
    assert reason.startswith("streaming: not proven: expected an output of a sequence in chunks")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow("cudnn_convert/verification")
def test_the_report_has_what_was_compared(tmp_path: Path) -> None:
    report = cudnn_convert.convert(
        fixture("1.15.5-op_auto_gru").prefix, tmp_path / "out", format="onnx", states=True
    )
    proof = report.verification
    assert proof is not None
    assert proof.streaming is not None
    assert proof.streaming.chunks == ("of 1", "of 7", "of ragged sizes")
    steps, rows = zip(*((feed["x"][0], feed["x"][1]) for feed in proof.feeds), strict=True)
    units, layers = report.recurrences[0].units, report.recurrences[0].layers
    # The outputs of all steps; of each layer the final state, which is an output of the source too.
    outputs = sum(t * b * units for t, b in zip(steps, rows, strict=True))
    states = layers * units * sum(rows)
    # From random states, and from the source's own, which are compared as well.
    assert proof.streaming.compared == 3 * (outputs + 2 * states) + 3 * (outputs + 2 * states)
    assert cudnn_convert.verify(fixture("1.15.5-op_auto_gru").prefix, tmp_path / "out").streaming is not None
