"""What the loop is given of TensorFlow 1's variables, against columns written out by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.lower.tensorflow import layer_stack
from cudnn_convert.model import Array, Cell, Mode
from cudnn_convert.weights import layouts


def cell(mode: Mode) -> Cell:
    """One unit, two inputs: only its sizes are looked at."""
    gates = len(mode.gates)
    return Cell(
        mode, np.ones((gates, 1, 2)), np.ones((gates, 1, 1)), np.ones((gates, 1)), np.ones((gates, 1))
    )


def looped(mode: Mode, *variables: Sequence[object], forget_bias: float = 0.0) -> list[Array]:
    arrays = [tf.constant(value, tf.float64) for value in variables]
    return [found.numpy() for found in layer_stack.loop(cell(mode), arrays, forget_bias=forget_bias)]


@pytest.mark.parametrize("forget_bias", [0.0, 1.5])
def test_an_lstm_of_icfo_becomes_ifoc_with_the_cells_own_forget_bias(forget_bias: float) -> None:
    kernel = [[11, 12, 13, 14], [21, 22, 23, 24], [31, 32, 33, 34]]
    given, recurrent, bias = looped(Mode.LSTM, kernel, [1, 2, 3, 4], forget_bias=forget_bias)
    np.testing.assert_array_equal(given, [[11, 13, 14, 12], [21, 23, 24, 22]])
    np.testing.assert_array_equal(recurrent, [[31, 33, 34, 32]])
    np.testing.assert_array_equal(bias, [1, 3 + forget_bias, 4, 2])


def test_a_grus_candidate_stays_apart() -> None:
    candidate = ([[13], [23]], [3], [[33]], [30])
    found = looped(Mode.GRU, [[11, 12], [21, 22], [31, 32]], [1, 2], *candidate)
    expected = [[[11, 12], [21, 22]], [[31, 32]], [1, 2], [[13], [23]], [[33]], [3], [30]]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_gru_s_columns_are_those_that_the_cell_s_own_row_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for order, expected in (((1, 0, 2), [[2, 1], 3]), ((2, 1, 0), [[3, 2], 1]), ((0, 2, 1), [[1, 3], 2])):
        gates = tuple(layouts.LOOP.gates[Mode.GRU][place] for place in order)
        row = dataclasses.replace(layouts.COMPATIBLE_GRU, gates={Mode.GRU: gates})
        monkeypatch.setattr(layouts, "COMPATIBLE_GRU", row)
        given = ([[1, 2], [1, 2], [1, 2]], [1, 2], [[3], [3]], [3], [[3]], [3])
        kernel, recurrent, bias, candidate, other, candidate_bias, _ = looped(Mode.GRU, *given)
        assert [*map(list, (kernel[0], recurrent[0], bias))] == [expected[0]] * 3
        assert [candidate[0, 0], other[0, 0], candidate_bias[0]] == [expected[1]] * 3


@pytest.mark.parametrize("mode", [Mode.RNN_TANH, Mode.RNN_RELU])
def test_a_plain_kernel_is_taken_apart(mode: Mode) -> None:
    given, recurrent, bias = looped(mode, [[11], [21], [31]], [1])
    np.testing.assert_array_equal(given, [[11], [21]])
    np.testing.assert_array_equal(recurrent, [[31]])
    np.testing.assert_array_equal(bias, [1])


def test_gates_move_as_blocks_of_columns() -> None:
    found = layer_stack.permute_gates(tf.range(8), Mode.LSTM, layouts.BLOCK_LSTM_V1, layouts.LOOP)
    np.testing.assert_array_equal(found.numpy(), [0, 1, 4, 5, 6, 7, 2, 3])
