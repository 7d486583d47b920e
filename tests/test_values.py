"""What a plan says of an artifact: the names and sizes of a state, and where a search begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from support.cases import Case

from cudnn_convert.model import Mode, Part, Signature
from cudnn_convert.values import Decoder, StreamState

RULES = {
    "kind": "beam", "steps": 3, "width": 2, "end": 1, "pad": 0, "length_penalty": 0.0, "top_k": None,
    "temperature": 1.0, "history": False, "scale": "logits", "vocabulary": 7, "masked": (),
}  # fmt: skip


def state(kind: str, key: str) -> StreamState:
    recurrence = Case(Mode.LSTM, op="CudnnRNNV3", projection=3).recurrence("rnn")
    names = {"key": key, "next_key": f"{key}_next", "start": f"{key}:0", "end": f"{key}_end:0"}
    return StreamState.of(recurrence, kind, time_major=True, **names)


def test_a_projected_state_is_narrower_than_the_cell_state() -> None:
    sizes = Case(Mode.LSTM, op="CudnnRNNV3", projection=3).recurrence("rnn").sizes
    hidden, cell = state("h", "a"), state("c", "b")
    assert (hidden.width, cell.width) == (3, sizes.units) and sizes.units != 3
    assert hidden.depth == cell.depth == sizes.layers * sizes.directions
    assert (hidden.node, hidden.begin) == ("rnn", "")


def test_a_search_takes_the_states_that_nothing_begins() -> None:
    states = (state("h", "a"), state("c", "b"))
    call = Signature({"tokens": "t:0"}, {"sequences": "s:0"})
    search = Decoder(
        **RULES, token="t", token_axis=1, logits="y", logits_axis=1, lengths=(), beside={},  # type: ignore[arg-type]
        states=states, signature=call,
    )  # fmt: skip
    assert search.takes_states and search.begun == set()
    assert search.part == Part("decode", call)
    begin = Part("begin", Signature({}, {"a": "a:0", "b": "b:0"}))
    assert not replace(search, before=(begin,)).takes_states
    valued = replace(search, values={"b": np.zeros((1, 1, 4))})
    assert valued.begun == {"b"} and not valued.takes_states
