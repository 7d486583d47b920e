"""Every row of the gate table, there and back, against the same weights spelled out gate by gate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from properties import by_hand
from properties.budget import examples
from properties.by_hand import ROWS, Parts
from properties.strategies import INPUTS, MODES, PROJECTIONS, SEEDS, UNITS

from cudnn_convert.model import Array, Cell, Mode, Sizes
from cudnn_convert.weights import layouts

ROW_OF = {row.name: row for row in layouts.LAYOUTS}
MODE_AND_ROW = st.sampled_from([(mode, row) for row in ROWS for mode in ROWS[row]])
KERAS_MODES = st.sampled_from([Mode.LSTM, Mode.GRU])
BIASES = st.sampled_from([0.0, 1.0, 0.3])


@st.composite
def parts_of(draw: st.DrawFn, mode: Mode, *, projected: bool = True) -> Parts:
    units, projection = draw(UNITS), 0
    if projected and mode is Mode.LSTM:
        projection = min(draw(PROJECTIONS), units)
    sizes = Sizes(mode, 1, 1, units, draw(INPUTS), projection=projection)
    dtype = draw(st.sampled_from(["float16", "float32", "float64"]))
    return by_hand.drawn(sizes, draw(SEEDS), dtype)[0][0]


def same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key, strict=True)


def same_cell(found: Cell, expected: Cell, *, summed: bool = False) -> None:
    """`summed`: the biases as far as a source keeps them apart, only a GRU's candidate's."""
    for part in ("kernel", "recurrent_kernel", "projection", "peepholes"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part), err_msg=part)
    assert found.kernel.dtype == expected.kernel.dtype
    if summed:
        total = expected.bias + expected.recurrent_bias
        np.testing.assert_array_equal(found.bias + found.recurrent_bias, total, strict=True)
    apart = slice(2, 3) if expected.mode is Mode.GRU else slice(0)
    kept = apart if summed else slice(None)
    np.testing.assert_array_equal(found.bias[kept], expected.bias[kept])
    np.testing.assert_array_equal(found.recurrent_bias[kept], expected.recurrent_bias[kept])


def test_the_rows_are_these() -> None:
    assert {name: set(row.gates) for name, row in ROW_OF.items()} == {name: set(ROWS[name]) for name in ROWS}
    assert all(row.source for row in layouts.LAYOUTS)


@given(st.data(), MODE_AND_ROW)
@examples(200, runs=False)
def test_a_cell_in_the_order_of_a_row(data: st.DataObject, named: tuple[Mode, str]) -> None:
    (mode, name), row = named, ROW_OF[named[1]]
    parts = data.draw(parts_of(mode))
    cell, order = by_hand.cell(mode, parts), ROWS[name][mode]
    W, R = (np.vstack([part[gate] for gate in order]) for part in (parts.W, parts.R))
    found = dict(zip(["rows", "recurrent rows"], map(np.vstack, layouts.rows(cell, row)), strict=True))
    found |= zip(["columns", "recurrent columns"], layouts.columns(cell, row), strict=True)
    found |= zip(["bias", "recurrent bias"], layouts.biases(cell, row), strict=True)
    found |= {"stacked": layouts.stack_columns(cell, row), "sum": layouts.sum_biases(cell, row)}
    found |= zip(["projection"], layouts.projection_columns(cell), strict=False)
    expected = {"rows": W, "recurrent rows": R, "columns": W.T, "recurrent columns": R.T}
    expected |= {
        name: np.hstack([part[gate] for gate in order])
        for name, part in {"bias": parts.b, "recurrent bias": parts.d}.items()
    }
    expected |= {"stacked": np.vstack([W.T, R.T]), "sum": np.hstack([parts.sums[gate] for gate in order])}
    same(found, expected | ({} if parts.Q is None else {"projection": parts.Q.T}))


@given(st.data(), MODE_AND_ROW, MODE_AND_ROW)
@examples(100, runs=False)
def test_moves_take_the_columns_of_one_row_to_another(
    data: st.DataObject, named: tuple[Mode, str], other: tuple[Mode, str]
) -> None:
    mode, source = named
    target = other[1] if mode in ROWS[other[1]] else source
    order = layouts.moves(mode, ROW_OF[source], ROW_OF[target])
    assert "".join(ROWS[source][mode][place] for place in order) == ROWS[target][mode]
    cell = by_hand.cell(mode, data.draw(parts_of(mode)))
    blocks = np.split(layouts.columns(cell, ROW_OF[source])[0], len(order), axis=1)
    moved = np.hstack([blocks[place] for place in order])
    np.testing.assert_array_equal(moved, layouts.columns(cell, ROW_OF[target])[0])


@given(st.data(), MODES)
@examples(100, runs=False)
def test_the_variables_of_tensorflow_1(data: st.DataObject, mode: Mode) -> None:
    parts = data.draw(parts_of(mode, projected=False))
    stored, cell = by_hand.canonical(mode, parts), by_hand.cell(mode, parts)
    found = layouts.unpack_contrib(mode, stored)
    same_cell(found, cell, summed=True)
    sums = slice(2) if mode is Mode.GRU else slice(None)
    np.testing.assert_array_equal(found.bias[sums], found.recurrent_bias[sums])  # a sum comes back in halves
    same(layouts.pack_cell(cell, layouts.CONTRIB), stored)
    same(layouts.pack_cell(found, layouts.CONTRIB), stored)
    units, inputs = cell.kernel.shape[1:]
    shapes = {key: value.shape for key, value in stored.items()}
    assert layouts.contrib_shapes(mode, units=units, inputs=inputs) == shapes


@given(st.data(), st.sampled_from([name for name in ROWS if Mode.LSTM in ROWS[name]]), BIASES)
@examples(60, runs=False)
def test_a_forget_bias_is_not_stored(data: st.DataObject, name: str, added: float) -> None:
    parts = data.draw(parts_of(Mode.LSTM, projected=False))
    cell, order = by_hand.cell(Mode.LSTM, parts), ROWS[name][Mode.LSTM]
    stored = by_hand.canonical(Mode.LSTM, parts, order)
    sums = {**parts.sums, "f": parts.sums["f"] - parts.sums["f"].dtype.type(added)}
    same(
        layouts.pack_cell(cell, ROW_OF[name], forget_bias=added),
        {**stored, "bias": np.hstack([sums[gate] for gate in order])},
    )


@given(st.data(), st.sampled_from(["block_lstm", "block_lstm_v1", "lstm_cell"]), BIASES, st.booleans(), SEEDS)
@examples(100, runs=False)
def test_the_weights_of_a_block(data: st.DataObject, name: str, added: float, peeps: bool, seed: int) -> None:
    parts = data.draw(parts_of(Mode.LSTM, projected=False))
    stored = by_hand.canonical(Mode.LSTM, parts, ROWS[name][Mode.LSTM])
    shape = (3, len(parts.b["i"]))
    peepholes = np.random.default_rng(seed).uniform(-1, 1, shape).astype(stored["bias"].dtype)
    found = layouts.unpack_block(
        stored["kernel"],
        stored["bias"],
        ROW_OF[name],
        forget_bias=added,
        peepholes=peepholes if peeps else None,
    )
    sums = {**parts.sums, "f": parts.sums["f"] + parts.sums["f"].dtype.type(added)}
    np.testing.assert_array_equal(found.bias, np.stack([sums[gate] for gate in "ifgo"]))
    assert not found.recurrent_bias.any()
    np.testing.assert_array_equal(found.kernel, np.stack([parts.W[gate] for gate in "ifgo"]))
    np.testing.assert_array_equal(found.recurrent_kernel, np.stack([parts.R[gate] for gate in "ifgo"]))
    row = layouts.peephole_row(found, layouts.ONNX)
    assert (row is not None) == peeps
    if row is not None:
        np.testing.assert_array_equal(row, np.hstack([peepholes["ifo".index(gate)] for gate in "iof"]))


@given(st.data(), KERAS_MODES)
@examples(60, runs=False)
def test_the_variables_of_keras(data: st.DataObject, mode: Mode) -> None:
    """From those of a CuDNN layer to those of the CPU layer that stands for it."""
    parts = data.draw(parts_of(mode, projected=False))
    stored = by_hand.keras(mode, parts)
    found = layouts.unpack_keras(mode, stored)
    same_cell(found, by_hand.cell(mode, parts))
    same(layouts.pack_keras(found), by_hand.on_cpu(mode, parts))
    units, inputs = found.kernel.shape[1:]
    shapes = {key: value.shape for key, value in stored.items()}
    assert layouts.keras_shapes(mode, units=units, inputs=inputs) == shapes


@given(st.data(), KERAS_MODES, st.sampled_from([0.2, 0.5, 2.0]))
@examples(80, runs=False)
def test_the_sigmoid_gates_of_keras_scaled(data: st.DataObject, mode: Mode, factor: float) -> None:
    parts = data.draw(parts_of(mode, projected=False))

    def scaled(group: Mapping[str, Array]) -> dict[str, Array]:
        return {
            gate: value if gate in "gn" else value * value.dtype.type(factor) for gate, value in group.items()
        }

    wanted = by_hand.on_cpu(mode, Parts(*map(scaled, parts.groups)))
    for key, value in by_hand.on_cpu(mode, parts).items():
        found = layouts.scale_keras(mode, value, factor)
        close = float(np.finfo(value.dtype).eps) * 4  # a sum is rounded before or after it is scaled
        np.testing.assert_allclose(found, wanted[key], rtol=close, atol=close)
