"""The gate table: every row against arrays written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_convert import layouts, opaque
from cudnn_convert.model import Array, Cell, Mode

MODES = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)


def cell(mode: Mode, *, units: int = 3, inputs: int = 2, seed: int = 0, dtype: str = "float32") -> Cell:
    """Random, and so distinct, weights."""
    rng, gates = np.random.default_rng(seed), len(mode.gates)
    shapes = [(gates, units, inputs), (gates, units, units), (gates, units), (gates, units)]
    return Cell(mode, *(rng.uniform(-0.5, 0.5, shape).astype(dtype) for shape in shapes))


#: One unit, one input: W is 1, 2, ... in cuDNN's order, R ten times, bW a hundred, bR a thousand times that.
def tiny(mode: Mode) -> Cell:
    gates = np.arange(1, len(mode.gates) + 1, dtype=np.float64)
    return Cell(
        mode, gates[:, None, None], 10 * gates[:, None, None], 100 * gates[:, None], 1000 * gates[:, None]
    )


#: cuDNN's own order is i f c o and r z n; 1 to 4 below are places in it.
ORDERS = [
    pytest.param(layouts.CONTRIB, Mode.LSTM, [1, 3, 2, 4], id="contrib-lstm-icfo"),
    pytest.param(layouts.CONTRIB, Mode.GRU, [1, 2, 3], id="contrib-gru-rzn"),
    pytest.param(layouts.CONTRIB, Mode.RNN_TANH, [1], id="contrib-tanh"),
    pytest.param(layouts.KERAS, Mode.LSTM, [1, 2, 3, 4], id="keras-lstm-ifco"),
    pytest.param(layouts.KERAS, Mode.GRU, [2, 1, 3], id="keras-gru-zrn"),
    pytest.param(layouts.BLOCK_LSTM, Mode.LSTM, [1, 2, 3, 4], id="block_lstm-ifco"),
    pytest.param(layouts.BLOCK_LSTM_V1, Mode.LSTM, [1, 3, 2, 4], id="block_lstm_v1-icfo"),
    pytest.param(layouts.LSTM_CELL, Mode.LSTM, [1, 3, 2, 4], id="lstm_cell-icfo"),
    pytest.param(layouts.BASIC_LSTM_CELL, Mode.LSTM, [1, 3, 2, 4], id="basic_lstm_cell-icfo"),
    pytest.param(layouts.LOOP, Mode.LSTM, [1, 2, 4, 3], id="loop-lstm-ifoc"),
    pytest.param(layouts.LOOP, Mode.GRU, [1, 2, 3], id="loop-gru-rzn"),
    pytest.param(layouts.LOOP, Mode.RNN_RELU, [1], id="loop-relu"),
    pytest.param(layouts.ONNX, Mode.LSTM, [1, 4, 2, 3], id="onnx-lstm-iofc"),
    pytest.param(layouts.ONNX, Mode.GRU, [2, 1, 3], id="onnx-gru-zrn"),
    pytest.param(layouts.ONNX, Mode.RNN_TANH, [1], id="onnx-tanh"),
]


@pytest.mark.parametrize(("layout", "mode", "order"), ORDERS)
def test_the_order_of_the_gates(layout: layouts.Layout, mode: Mode, order: list[int]) -> None:
    found, expected = tiny(mode), np.array(order, np.float64)
    kernel, recurrent = layouts.columns(found, layout)
    np.testing.assert_array_equal(kernel, expected[None])
    np.testing.assert_array_equal(recurrent, 10 * expected[None])
    kernel, recurrent = layouts.rows(found, layout)
    np.testing.assert_array_equal(kernel, expected[:, None])
    np.testing.assert_array_equal(recurrent, 10 * expected[:, None])
    bias, recurrent_bias = layouts.biases(found, layout)
    np.testing.assert_array_equal(bias, 100 * expected)
    np.testing.assert_array_equal(recurrent_bias, 1000 * expected)
    np.testing.assert_array_equal(layouts.summed_bias(found, layout), 1100 * expected)


def test_every_row_names_its_source_and_is_tried_above() -> None:
    tried = {(case.values[0].name, case.values[1]) for case in ORDERS}
    plain = {Mode.RNN_TANH, Mode.RNN_RELU}  # one gate: one order
    for layout in layouts.LAYOUTS:
        assert layout.source
        assert {(layout.name, mode) for mode in set(layout.gates) - plain} <= tried


def test_columns_multiply_from_the_right_and_rows_from_the_left() -> None:
    kernel = np.arange(1.0, 7.0).reshape(1, 2, 3)  # a cuDNN matrix [units 2, inputs 3]
    recurrent = np.arange(10.0, 14.0).reshape(1, 2, 2)
    found = Cell(Mode.RNN_TANH, kernel, recurrent, np.zeros((1, 2)), np.zeros((1, 2)))
    columns, recurrent_columns = layouts.columns(found, layouts.LOOP)
    np.testing.assert_array_equal(columns, [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(recurrent_columns, [[10, 12], [11, 13]])
    np.testing.assert_array_equal(layouts.rows(found, layouts.ONNX)[0], [[1, 2, 3], [4, 5, 6]])
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


def saved_by_tensorflow(found: Cell) -> dict[str, Array]:
    """The variables of TensorFlow 1's compatible cells, spelled out gate by gate."""
    w, r, b, c = found.kernel, found.recurrent_kernel, found.bias, found.recurrent_bias
    both = [np.vstack([w[g].T, r[g].T]) for g in range(len(found.mode.gates))]
    if found.mode is Mode.LSTM:
        i, f, g, o = range(4)
        return {
            "kernel": np.hstack([both[i], both[g], both[f], both[o]]),
            "bias": np.concatenate([b[i] + c[i], b[g] + c[g], b[f] + c[f], b[o] + c[o]]),
        }
    if found.mode is Mode.GRU:
        return {
            "gates/kernel": np.hstack([both[0], both[1]]),
            "gates/bias": np.concatenate([b[0] + c[0], b[1] + c[1]]),
            "candidate/input_projection/kernel": w[2].T,
            "candidate/input_projection/bias": b[2],
            "candidate/hidden_projection/kernel": r[2].T,
            "candidate/hidden_projection/bias": c[2],
        }
    return {"kernel": both[0], "bias": b[0] + c[0]}


@given(
    mode=st.sampled_from(list(Mode)),
    units=st.integers(1, 5),
    inputs=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(["float16", "float32", "float64"]),
)
def test_what_tensorflow_saved_comes_back(mode: Mode, units: int, inputs: int, seed: int, dtype: str) -> None:
    wanted = cell(mode, units=units, inputs=inputs, seed=seed, dtype=dtype)
    found = layouts.unpack_contrib(mode, saved_by_tensorflow(wanted))
    np.testing.assert_array_equal(found.kernel, wanted.kernel)
    np.testing.assert_array_equal(found.recurrent_kernel, wanted.recurrent_kernel)
    np.testing.assert_array_equal(found.bias + found.recurrent_bias, wanted.bias + wanted.recurrent_bias)
    assert found.kernel.dtype == dtype


@given(seed=st.integers(0, 2**32 - 1))
def test_the_candidate_of_a_gru_keeps_its_two_biases(seed: int) -> None:
    wanted = cell(Mode.GRU, seed=seed)
    found = layouts.unpack_contrib(Mode.GRU, saved_by_tensorflow(wanted))
    np.testing.assert_array_equal(found.bias[2], wanted.bias[2])
    np.testing.assert_array_equal(found.recurrent_bias[2], wanted.recurrent_bias[2])
    np.testing.assert_array_equal(found.bias[:2], found.recurrent_bias[:2])  # a sum comes back in halves


@MODES
def test_packing_again_gives_the_same_tensors(mode: Mode) -> None:
    stored = saved_by_tensorflow(cell(mode))
    found = layouts.unpack_contrib(mode, stored)
    kernel, bias = (
        layouts.stacked_columns(found, layouts.CONTRIB),
        layouts.summed_bias(found, layouts.CONTRIB),
    )
    gates = stored["gates/kernel" if mode is Mode.GRU else "kernel"]
    np.testing.assert_array_equal(kernel[:, : gates.shape[1]], gates)
    sums = stored["gates/bias" if mode is Mode.GRU else "bias"]
    np.testing.assert_array_equal(bias[: sums.size], sums)


@MODES
def test_the_shapes_that_unpacking_takes(mode: Mode) -> None:
    stored = saved_by_tensorflow(cell(mode, units=5, inputs=4))
    assert layouts.contrib_shapes(mode, units=5, inputs=4) == {key: t.shape for key, t in stored.items()}


def packed_by_keras(mode: Mode, tensors: dict[str, Array], units: int) -> Array:
    """The blob that Keras's CuDNN layers make of their variables, spelled out gate by gate."""
    order = range(4) if mode is Mode.LSTM else (1, 0, 2)
    kernels = [tensors[name] for name in ("kernel", "recurrent_kernel")]
    blocks = [kernel[:, k * units : (k + 1) * units].ravel() for kernel in kernels for k in order]
    halves = tensors["bias"].reshape(2, -1)
    return np.concatenate(blocks + [half[k * units : (k + 1) * units] for half in halves for k in order])


@given(
    mode=st.sampled_from([Mode.LSTM, Mode.GRU]),
    units=st.integers(1, 5),
    inputs=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_keras_variables_hold_the_blob_that_keras_makes_of_them(
    mode: Mode, units: int, inputs: int, seed: int
) -> None:
    rng, shapes = np.random.default_rng(seed), layouts.keras_shapes(mode, units=units, inputs=inputs)
    tensors = {name: rng.uniform(-0.5, 0.5, shape).astype("float32") for name, shape in shapes.items()}
    blob = opaque.join([[layouts.unpack_keras(mode, tensors)]])
    np.testing.assert_array_equal(blob, packed_by_keras(mode, tensors, units))
