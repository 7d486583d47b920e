"""Which way the gate table turns a matrix, with the numbers written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudnn_convert.model import Array, Cell, Convention, Mode
from cudnn_convert.weights import layouts

# Which way the gate table turns a matrix, with the numbers written out; `properties` tries its rows.


def test_columns_multiply_from_the_right_and_rows_from_the_left() -> None:
    kernel = np.arange(1.0, 7.0).reshape(1, 2, 3)  # a cuDNN matrix [units 2, inputs 3]
    recurrent = np.arange(10.0, 14.0).reshape(1, 2, 2)
    found = Cell(Mode.RNN_TANH, kernel, recurrent, np.zeros((1, 2)), np.zeros((1, 2)))
    columns, recurrent_columns = layouts.columns(found, layouts.LOOP)
    np.testing.assert_array_equal(columns, [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(recurrent_columns, [[10, 12], [11, 13]])
    np.testing.assert_array_equal(layouts.rows(found, layouts.ONNX)[0], [[[1, 2, 3], [4, 5, 6]]])
    np.testing.assert_array_equal(
        layouts.stack_columns(found, layouts.LOOP), [[1, 4], [2, 5], [3, 6], [10, 12], [11, 13]]
    )


def test_two_gates_of_two_units_stand_side_by_side() -> None:
    kernel = np.arange(12.0).reshape(3, 2, 2)
    gru = Cell(Mode.GRU, kernel, kernel + 100, np.arange(6.0).reshape(3, 2), np.zeros((3, 2)))
    np.testing.assert_array_equal(
        layouts.columns(gru, layouts.ONNX)[0], [[4, 6, 0, 2, 8, 10], [5, 7, 1, 3, 9, 11]]
    )
    np.testing.assert_array_equal(layouts.biases(gru, layouts.ONNX)[0], [2, 3, 0, 1, 4, 5])


def counted(mode: Mode, **more: Any) -> Cell:
    """One unit, one input: gate k has kernel k, recurrent kernel 10 + k and biases 20 + k and 30 + k."""
    gates = np.arange(float(len(mode.gates)))
    matrices = (gates + 0).reshape(-1, 1, 1), (gates + 10).reshape(-1, 1, 1)
    return Cell(mode, *matrices, gates.reshape(-1, 1) + 20, gates.reshape(-1, 1) + 30, **more)


def parts(cell: Cell) -> list[list[float]]:
    held = (cell.kernel, cell.recurrent_kernel, cell.bias, cell.recurrent_bias)
    return [part.ravel().tolist() for part in held]


@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU, Mode.RNN_TANH])
def test_pytorch_keeps_cudnn_s_own_order(mode: Mode) -> None:
    """Its documentation: W_ii, W_if, W_ig, W_io and W_ir, W_iz, W_in."""
    cell = counted(mode)
    kernel, recurrent = layouts.rows(cell, layouts.TORCH)
    found = [np.concatenate(part).ravel() for part in (kernel, recurrent)]
    for ours, theirs in zip([*found, *layouts.biases(cell, layouts.TORCH)], parts(cell), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("layout", "mode", "places"),
    [
        (layouts.FLAX, Mode.LSTM, [0, 1, 2, 3]),
        (layouts.FLAX, Mode.GRU, [0, 1, 2]),
        (layouts.HAIKU, Mode.LSTM, [0, 2, 1, 3]),  # i, g, f, o
        (layouts.HAIKU, Mode.RNN_RELU, [0]),
    ],
)
def test_columns_of_jaxs_libraries_are_gates_side_by_side(
    layout: layouts.Layout, mode: Mode, places: list[int]
) -> None:
    """Two units, three inputs: each column of a kernel is a unit of a gate."""
    wide = 2 * len(places)
    kernel, recurrent = np.arange(3.0 * wide).reshape(3, wide), -np.arange(2.0 * wide).reshape(2, wide)
    bias, recurrent_bias = np.arange(100.0, 100 + wide), np.arange(200.0, 200 + wide)
    found = layouts.unpack_columns(mode, layout, (kernel, recurrent), (bias, recurrent_bias), forget_bias=0.5)
    for gate, place in enumerate(places):
        columns = slice(2 * place, 2 * place + 2)
        np.testing.assert_array_equal(found.kernel[gate], kernel[:, columns].T)
        np.testing.assert_array_equal(found.recurrent_kernel[gate], recurrent[:, columns].T)
        added = 0.5 if (mode, gate) == (Mode.LSTM, 1) else 0
        np.testing.assert_array_equal(found.bias[gate], bias[columns] + added)
        np.testing.assert_array_equal(found.recurrent_bias[gate], recurrent_bias[columns])
    np.testing.assert_array_equal(bias, np.arange(100.0, 100 + wide))


@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU, Mode.RNN_TANH])
def test_mxnet_keeps_cudnn_s_own_order(mode: Mode) -> None:
    """FusedRNNCell's: i, f, c, o and r, z, o."""
    cell = counted(mode)
    kernels = cell.kernel.reshape(-1, 1), cell.recurrent_kernel.reshape(-1, 1)
    biases = cell.bias.ravel(), cell.recurrent_bias.ravel()
    assert parts(layouts.unpack_rows(mode, layouts.MXNET, kernels, biases)) == parts(cell)


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize(
    ("order", "mode", "places"),
    [
        ("miopen", Mode.LSTM, [0, 1, 3, 2]),  # i, f, o, c
        ("miopen", Mode.GRU, [1, 0, 2]),  # z, r, n
        ("miopen", Mode.RNN_TANH, [0]),
        ("lingvo", Mode.LSTM, [2, 1, 0, 3]),  # c, f, i, o
        ("lingvo", Mode.GRU, [0, 1, 2]),
        ("tf", Mode.LSTM, [0, 1, 2, 3]),
    ],
)
def test_gates_that_stand_where_others_write_them(
    order: str, mode: Mode, places: list[int], canonical: bool
) -> None:
    """Each gate is fetched from its place; Lingvo's is one of canonical kernels alone."""
    found = layouts.conventional(counted(mode), Convention(order), canonical=canonical)
    if order == "lingvo" and not canonical:
        places = sorted(places)
    assert parts(found) == [[start + place for place in places] for start in (0, 10, 20, 30)]


@pytest.mark.parametrize("canonical", [True, False])
@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU, Mode.RNN_TANH])
@pytest.mark.parametrize("value", [0.0, 0.75])
def test_a_forget_bias_is_for_the_forget_gate_of_canonical_lstms(
    mode: Mode, canonical: bool, value: float
) -> None:
    cell = counted(mode)
    found = layouts.conventional(cell, Convention("tf", value), canonical=canonical)
    expected = parts(cell)
    if mode is Mode.LSTM and canonical:
        expected[2][1] += value
    assert parts(found) == expected
    assert parts(cell) == parts(counted(mode))


def test_a_projection_multiplies_a_row() -> None:
    """Two units, one projected value: stored `[1, 2]`."""
    recurrent = np.ones((4, 2, 1))
    bias = np.ones((4, 2))
    cell = Cell(Mode.LSTM, np.ones((4, 2, 3)), recurrent, bias, bias, projection=np.array([[5.0, 7.0]]))
    (found,) = layouts.projection_columns(cell)
    np.testing.assert_array_equal(np.array([[1.0, 2.0]]) @ found, [[19.0]])
    assert layouts.projection_columns(counted(Mode.LSTM)) == []


def test_peepholes_stand_in_the_order_of_the_gates_that_have_one() -> None:
    """Input, forget and output gate in a cell; ONNX has input, output, forget."""
    cell = counted(Mode.LSTM, peepholes=np.array([[1.0], [2.0], [3.0]]))
    for layout, expected in ((layouts.ONNX, [1, 3, 2]), (layouts.KERAS, [1, 2, 3])):
        found = layouts.peephole_row(cell, layout)
        assert found is not None
        np.testing.assert_array_equal(found, expected)
    assert layouts.peephole_row(counted(Mode.LSTM), layouts.ONNX) is None


# What kernels without projections are given in the place of one.

UNITS, WIDTH, INPUTS = 5, 3, 4


def cell(matrix: Array | None, dtype: str = "float32") -> Cell:
    rng, width = np.random.default_rng(2), UNITS if matrix is None else len(matrix)
    shapes = [(4, UNITS, INPUTS), (4, UNITS, width), (4, UNITS), (4, UNITS)]
    parts = [rng.uniform(-0.5, 0.5, shape).astype(dtype) for shape in shapes]
    return Cell(Mode.LSTM, *parts, projection=None if matrix is None else matrix.astype(dtype))


def matrix(width: int = WIDTH) -> Array:
    return np.random.default_rng(3).uniform(-1, 1, (width, UNITS))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_state_through_the_inverse_feeds_the_gates_what_it_did(dtype: str) -> None:
    projected = cell(matrix(), dtype)
    plain, inverse = layouts.fold_projection(projected), layouts.invert_projection(projected)
    assert inverse is not None
    assert (inverse.shape, inverse.dtype) == ((WIDTH, UNITS), np.float32)
    assert plain.projection is None
    assert plain.recurrent_kernel.dtype == np.float32
    state = np.random.default_rng(4).normal(size=(2, WIDTH))
    for gate in range(4):
        found = state @ inverse @ plain.recurrent_kernel[gate].T
        expected = state @ projected.recurrent_kernel[gate].T.astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for part in ("kernel", "bias", "recurrent_bias"):
        np.testing.assert_array_equal(getattr(plain, part), getattr(projected, part).astype(np.float32))


def test_a_cell_without_a_projection_stays_as_it_is() -> None:
    plain = cell(None)
    assert layouts.fold_projection(plain) is plain
    assert layouts.invert_projection(plain) is None
    assert layouts.inverts_accurately(plain)
    assert layouts.can_invert_projection(plain)


@pytest.mark.parametrize(
    ("epsilon", "accurate", "solvable"), [(1.0, True, True), (1e-3, False, True), (0.0, False, False)]
)
def test_rows_that_depend_on_each_other(epsilon: float, accurate: bool, solvable: bool) -> None:
    rows = matrix(2)
    near = cell(np.stack([rows[0], rows[0] + epsilon * rows[1]]))
    assert layouts.inverts_accurately(near) == accurate
    assert layouts.can_invert_projection(near) == solvable
    assert (layouts.invert_projection(near) is not None) == solvable


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_projection_has_no_inverse(value: float) -> None:
    broken = matrix()
    broken[1, 2] = value
    assert layouts.invert_projection(cell(broken)) is None
