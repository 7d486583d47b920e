"""The inputs that a recurrence is asked on, and which pieces stand for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from support.cases import Case

from cudnn_convert.model import Array, Mode
from cudnn_convert.verification.pieces.ask import read_gates
from cudnn_convert.verification.pieces.piece_inputs import Piece, Pieces, Stack

F32 = np.dtype(np.float32)
LSTM = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3")


def test_inputs_have_the_sums_of_gates_near_one_and_rows_of_all_lengths() -> None:
    cells = read_gates(LSTM.recurrence(), (0,))
    large = [replace(one, kernel=tuple(100 * m for m in one.kernel)) for one in cells[:2]]
    asked = Stack(large, 2).draw(np.random.default_rng(0), steps=3, batch=200, dtype=F32)
    sums = large[0].weigh(asked.x[0])
    assert 0.5 < np.std(sums[0]) < 2
    assert 0.5 < np.std(cells[0].recur(asked.h[0])[0]) < 2
    assert sorted(set(asked.lengths.tolist())) == [1, 2, 3]
    assert asked.lengths[-1] == 3
    for value in (asked.x, asked.h, asked.c):
        np.testing.assert_array_equal(value, value.astype(np.float32))


def test_a_recurrence_of_the_same_weights_is_asked_in_the_others_place() -> None:
    one, twin = LSTM.recurrence(), replace(LSTM.recurrence(), node="twin")
    other = replace(LSTM.recurrence("other"), node="other")
    piece: Any = Piece("rnn", (0,), "node", lambda _: (Array, Array, None))
    found = Pieces((piece,))
    assert found.of(twin, [one, twin, other]) == [piece]
    assert found.of(other, [one, twin, other]) == []
