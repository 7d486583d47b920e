"""Which way the gate table turns a matrix, with the numbers written out; `properties` tries its rows."""

from __future__ import annotations

import numpy as np

from cudnn_convert import layouts
from cudnn_convert.model import Cell, Mode


def test_columns_multiply_from_the_right_and_rows_from_the_left() -> None:
    kernel = np.arange(1.0, 7.0).reshape(1, 2, 3)  # a cuDNN matrix [units 2, inputs 3]
    recurrent = np.arange(10.0, 14.0).reshape(1, 2, 2)
    found = Cell(Mode.RNN_TANH, kernel, recurrent, np.zeros((1, 2)), np.zeros((1, 2)))
    columns, recurrent_columns = layouts.columns(found, layouts.LOOP)
    np.testing.assert_array_equal(columns, [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(recurrent_columns, [[10, 12], [11, 13]])
    np.testing.assert_array_equal(layouts.rows(found, layouts.ONNX)[0], [[[1, 2, 3], [4, 5, 6]]])
    np.testing.assert_array_equal(
        layouts.stacked_columns(found, layouts.LOOP), [[1, 4], [2, 5], [3, 6], [10, 12], [11, 13]]
    )


def test_two_gates_of_two_units_stand_side_by_side() -> None:
    kernel = np.arange(12.0).reshape(3, 2, 2)
    gru = Cell(Mode.GRU, kernel, kernel + 100, np.arange(6.0).reshape(3, 2), np.zeros((3, 2)))
    np.testing.assert_array_equal(
        layouts.columns(gru, layouts.ONNX)[0], [[4, 6, 0, 2, 8, 10], [5, 7, 1, 3, 9, 11]]
    )
    np.testing.assert_array_equal(layouts.biases(gru, layouts.ONNX)[0], [2, 3, 0, 1, 4, 5])
