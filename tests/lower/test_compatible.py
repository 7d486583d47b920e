"""TensorFlow 1's CPU cells: their variables against arrays written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cudnn_convert import layouts
from cudnn_convert.model import Cell, Mode


def tiny(mode: Mode) -> Cell:
    """One unit, two inputs: W is 1.1, 1.2, 2.1, ... in cuDNN's order, R 10, 20, ..., biases 100 and 1000."""
    gates = np.arange(1, len(mode.gates) + 1, dtype=np.float64)
    kernel = gates[:, None, None] + np.array([[[0.1, 0.2]]])
    return Cell(mode, kernel, 10 * gates[:, None, None], 100 * gates[:, None], 1000 * gates[:, None])


@pytest.mark.parametrize("layout", [layouts.CONTRIB, layouts.LSTM_CELL, layouts.BASIC_LSTM_CELL])
@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_an_lstm_is_icfo(layout: layouts.Layout, forget_bias: float) -> None:
    found = layouts.pack_cell(tiny(Mode.LSTM), layout, forget_bias=forget_bias)
    assert list(found) == ["kernel", "bias"]
    np.testing.assert_allclose(
        found["kernel"], [[1.1, 3.1, 2.1, 4.1], [1.2, 3.2, 2.2, 4.2], [10, 30, 20, 40]], rtol=1e-15
    )
    np.testing.assert_array_equal(found["bias"], [1100, 3300, 2200 - forget_bias, 4400])


def test_a_gru_keeps_the_candidates_tensors_apart() -> None:
    found = layouts.pack_cell(tiny(Mode.GRU), layouts.CONTRIB)
    expected = {
        "gates/kernel": [[1.1, 2.1], [1.2, 2.2], [10, 20]],
        "gates/bias": [1100, 2200],
        "candidate/input_projection/kernel": [[3.1], [3.2]],
        "candidate/input_projection/bias": [300],
        "candidate/hidden_projection/kernel": [[30]],
        "candidate/hidden_projection/bias": [3000],
    }
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


@pytest.mark.parametrize("mode", [Mode.RNN_TANH, Mode.RNN_RELU])
def test_a_plain_cell(mode: Mode) -> None:
    found = layouts.pack_cell(tiny(mode), layouts.CONTRIB)
    np.testing.assert_array_equal(found["kernel"], [[1.1], [1.2], [10]])
    np.testing.assert_array_equal(found["bias"], [1100])


@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
def test_reads_back_what_it_packs(mode: Mode) -> None:
    cell = tiny(mode)
    again = layouts.unpack_contrib(mode, layouts.pack_cell(cell, layouts.CONTRIB))
    for name in ("kernel", "recurrent_kernel"):
        np.testing.assert_array_equal(getattr(again, name), getattr(cell, name))
    np.testing.assert_array_equal(again.bias + again.recurrent_bias, cell.bias + cell.recurrent_bias)


def test_one_of_two_biases_is_left_where_cells_have_one() -> None:
    lstm, gru = layouts.one_bias(tiny(Mode.LSTM)), layouts.one_bias(tiny(Mode.GRU))
    np.testing.assert_array_equal(lstm.bias, tiny(Mode.LSTM).bias)
    np.testing.assert_array_equal(lstm.recurrent_bias, np.zeros((4, 1)))
    np.testing.assert_array_equal(gru.recurrent_bias, [[0], [0], [3000]])


def test_moves_say_where_a_gate_stands() -> None:
    assert layouts.moves(Mode.LSTM, layouts.CONTRIB, layouts.LOOP) == [0, 2, 3, 1]
    assert layouts.moves(Mode.LSTM, layouts.LOOP, layouts.CONTRIB) == [0, 3, 1, 2]
