"""A recurrence in TensorFlow ops against the float64 reference."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import UNITS, Case, swapped
from support.lowered_recurrences import cells, judged, run, stored
from support.tiers import combinations

from cudnn_convert.lower.tensorflow import layer_stack, lower, while_loop
from cudnn_convert.lower.tensorflow.layer_stack import Making
from cudnn_convert.model import Array, Cell, Convention, Mode, Sizes
from cudnn_convert.verification import effort
from cudnn_convert.weights import layouts
from cudnn_convert.weights.layouts import Layout
from cudnn_convert.weights.lazy import LazyLayers

# One computation in TensorFlow ops against the float64 reference, as a function of its weights.

EVERY_MODE = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
SEVERAL = Sizes(Mode.LSTM, 2, 1, 3, 4)


@pytest.mark.parametrize("time_major", [True, False], ids=["time_major", "batch_major"])
@pytest.mark.parametrize("projection", [0, 3])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 2)])
def test_the_block(layers: int, directions: int, projection: int, time_major: bool) -> None:
    case = Case(Mode.LSTM, layers, directions, "CudnnRNNV3", time_major, projection=projection)
    judged(case, layer_stack.stack(case.recurrence(), "fast"), stored(case, block=True))


def test_the_block_without_lengths() -> None:
    case = Case(Mode.LSTM, 2, 2)
    judged(case, layer_stack.stack(case.recurrence(), "fast"), stored(case, block=True))


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that the block is asked for, call by call."""
    asked: list[int] = []

    def block(**given: Any) -> Any:
        asked.append(int(given["seq_len_max"]))
        return tf.raw_ops.BlockLSTM(**given)

    monkeypatch.setattr(layer_stack, "BLOCK", partial(block, cell_clip=-1.0))
    return asked


@pytest.fixture
def taken(asked_for: list[int], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The same where no cache holds anything."""
    monkeypatch.setattr(layer_stack, "_CACHED", 0)
    return asked_for


@pytest.mark.parametrize(
    ("sizes", "dtype", "expected"),
    [
        (Sizes(Mode.LSTM, 1, 1, 128, 384), "float32", 1),
        (Sizes(Mode.LSTM, 1, 1, 128, 385), "float32", 0),
        (Sizes(Mode.LSTM, 1, 1, 384, 128), "float32", 0),
        (Sizes(Mode.LSTM, 1, 1, 128, 896), "float16", 1),
        (Sizes(Mode.LSTM, 1, 1, 128, 897), "float16", 0),
        (Sizes(Mode.LSTM, 2, 2, 147, 8), "float32", 4),
        (Sizes(Mode.LSTM, 2, 2, 170, 8), "float32", 0),
    ],
)
def test_what_a_cache_holds_takes_the_block_for_many_steps(
    asked_for: list[int], sizes: Sizes, dtype: str, expected: int
) -> None:
    """Of the widest layer both kernels, `[inputs + units, 4*units]`: a MiB, and more."""
    recurrence = replace(Case(Mode.LSTM, dtype=dtype).recurrence(), sizes=sizes)
    arrays: list[Any] = []
    for layer in range(sizes.layers):
        for _ in range(sizes.directions):
            shapes = [sizes.inputs(layer) + sizes.units, 4 * sizes.units], [4 * sizes.units]
            arrays += [tf.zeros(shape, dtype) for shape in shapes]
    state = tf.zeros([sizes.layers * sizes.directions, 1, sizes.units], dtype)
    compute = layer_stack.stack(recurrence, "fast")
    compute(tf.zeros([17, 1, sizes.input_size], dtype), state, state, None, *arrays)
    assert asked_for == [17] * expected


@combinations(
    lambda *case: case in {(True, "CudnnRNNV3", 0.75), (False, "CudnnRNN", 0.0)},
    ids=lambda value: {True: "time_major", False: "batch_major"}[value] if isinstance(value, bool) else None,
    time_major=[True, False],
    op=["CudnnRNN", "CudnnRNNV3"],
    forget_bias=[0.0, 0.75],
)
def test_matrices_that_no_cache_holds_take_the_block_for_few_steps(
    taken: list[int], time_major: bool, op: str, forget_bias: float
) -> None:
    """16 at most; what the block adds to its forget gate the loop adds too."""
    case = Case(Mode.LSTM, 2, 2, op, time_major)
    arrays = stored(case, block=True)
    for number, cell in enumerate(cells(case)):
        arrays[2 * number + 1] -= layouts.forget_row(cell, layouts.BLOCK_LSTM_V1, forget_bias)
    compute = layer_stack.stack(case.recurrence(), "fast", forget_bias=forget_bias)
    judged(case, compute, arrays, ((1, 2), (16, 2), (17, 3), (0, 2), (27, 1)))
    assert taken == [1] * 4 + [16] * 4 + [0] * 4
    assert max(time for time, _ in effort.FEED_SIZES) > 16


def test_the_loop_beside_a_block_takes_several_steps_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_stack, "_CACHED", 0)
    case = Case(Mode.LSTM)
    with tf.Graph().as_default() as graph:
        arrays = map(tf.constant, stored(case, block=True))
        layer_stack.stack(case.recurrence(), "fast")(*case.placeholders()[:3], None, *arrays)
        library = graph.as_graph_def().library
    # A list for the loop of ten steps an iteration, one for the odd steps, and one for many rows.
    bodies = [node.op for function in library.function for node in function.node_def]
    assert bodies.count("TensorListStack") == 3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_larger_a_kernel_the_fewer_steps_take_the_block(
    taken: list[int], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Of the input's kernel alone, which the loop reads once; that of a second layer is another."""
    case = Case(Mode.LSTM, 2, 2, dtype=dtype)
    second = 2 * UNITS * 4 * UNITS * np.dtype(dtype).itemsize
    compute = layer_stack.stack(case.recurrence(), "fast")
    for read, ways in ((1, [2, 2]), (4 * second, [2, 2]), (4 * second - 1, [2, 0])):
        monkeypatch.setattr(layer_stack, "_READ", read)
        steps = 1 if read == 1 else 4
        run(case, compute, stored(case, block=True), (steps, 3))
        assert taken == [steps] * sum(ways)
        taken.clear()
    run(case, compute, stored(case, block=True), (16, 3))
    assert taken == []


def test_readings_of_24_mib_are_few(taken: list[int]) -> None:
    """Two of a kernel of 12 MiB are, of a larger one they are not; one always is."""
    cases = ((2048, 2, [2]), (2048, 3, []), (2049, 2, []), (4097, 2, []), (4097, 1, [1]))
    for inputs, time, expected in cases:
        sizes = Sizes(Mode.LSTM, 1, 1, 384, inputs)
        compute = layer_stack.stack(replace(Case(Mode.LSTM).recurrence(), sizes=sizes), "fast")
        x, state = np.zeros((time, 1, inputs), np.float32), np.zeros((1, 1, 384), np.float32)
        compute(x, state, state, None, tf.zeros([inputs + 384, 4 * 384]), tf.zeros([4 * 384]))
        assert taken == expected
        taken.clear()


@pytest.mark.parametrize("lowering", ["fast", "portable"])
def test_a_large_cell_state_is_not_clipped(lowering: str) -> None:
    case = Case(Mode.LSTM)
    compute = layer_stack.stack(case.recurrence(), lowering)
    feeds = case.feeds()
    feeds["c"] = feeds["c"] * 20
    found = compute(feeds["x"], feeds["h"], feeds["c"], None, *stored(case, block=lowering == "fast"))
    for got, expected in zip(found, case.expected(feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_what_is_no_lstm_hands_its_cell_state_on() -> None:
    for time_major in (True, False):
        case = Case(Mode.GRU, time_major=time_major)
        compute = layer_stack.stack(case.recurrence(), "fast")
        x, h = (case.feeds()[key] if time_major else swapped(case.feeds()[key]) for key in ("x", "h"))
        for given in (np.float32(2.5), np.ones((2, 3, 4), np.float32)):
            _, _, c = compute(x, h, given, None, *stored(case, block=False))
            np.testing.assert_array_equal(c, given, strict=True)


@pytest.mark.parametrize(
    ("mode", "lowering"),
    [(Mode.LSTM, "fast"), (Mode.LSTM, "portable"), pytest.param(Mode.GRU, "fast", marks=pytest.mark.every)],
)
def test_shapes_known_beforehand_are_no_hindrance(mode: Mode, lowering: str) -> None:
    """The batch may be known of the states and not of the input; what comes out is known as far as it is."""
    case = Case(mode, 1, 2)
    compute = layer_stack.stack(case.recurrence(), lowering)
    arrays = stored(case, block=layer_stack.uses_block(case.recurrence(), lowering))
    specs = [tf.TensorSpec(shape) for shape in ([None, None, 4], [2, 1, UNITS], [2, 1, UNITS])]
    traced = tf.function(
        lambda x, h, c: compute(x, h, c, None, *arrays), autograph=False
    ).get_concrete_function(*specs)
    assert traced.output_shapes[0].as_list() == [None, None, 2 * UNITS]
    feeds = case.feeds(batch=1)
    right = case.expected(feeds)
    found = traced(*(tf.constant(feeds[key]) for key in ("x", "h", "c")))[: len(right)]
    for got, expected in zip(found, right, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_gru_s_candidate_has_matrices_of_its_own() -> None:
    case = Case(Mode.GRU)
    (cell,) = cells(case)
    found = while_loop.weights(cell)
    reset, update, candidate = cell.kernel
    np.testing.assert_array_equal(found["gates_kernel"], np.concatenate([reset, update]).T)
    np.testing.assert_array_equal(found["candidate_kernel"], candidate.T)
    np.testing.assert_array_equal(found["candidate_recurrent_kernel"], cell.recurrent_kernel[2].T)
    bias = cell.bias + cell.recurrent_bias
    np.testing.assert_array_equal(found["gates_bias"], np.concatenate([bias[0], bias[1]]))
    np.testing.assert_array_equal(found["candidate_bias"], cell.bias[2])
    np.testing.assert_array_equal(found["candidate_recurrent_bias"], cell.recurrent_bias[2])


def taken_apart(case: Case, layout: Layout) -> list[Array]:
    """The form of the loop with gates in another order."""
    found: list[Array] = []
    for cell in cells(case):
        found += layouts.columns(cell, layout)
        pair = layouts.biases(cell, layout)
        found += pair if case.mode is Mode.GRU else [sum(pair)]
    return found


@pytest.mark.first("Mode.LSTM-fast-CudnnRNNV3")
@combinations(
    lambda *case: case in {(Mode.LSTM, "fast", "CudnnRNNV3"), (Mode.GRU, "portable", "CudnnRNN")},
    mode=[Mode.LSTM, Mode.GRU],
    lowering=["fast", "portable"],
    op=["CudnnRNN", "CudnnRNNV3"],
)
def test_a_switch_takes_gates_in_any_order(mode: Mode, lowering: str, op: str) -> None:
    for layout in (layouts.KERAS, layouts.LOOP):
        case = Case(mode, 2, 2, op)
        arrays = taken_apart(case, layout)
        compute = layer_stack.switch_at_runtime(
            case.sizes, np.dtype("float32"), layout,
            time_major=True, each=4 if mode is Mode.GRU else 3, lowering=lowering,
        )  # fmt: skip
        judged(case, compute, arrays)


def test_few_steps_take_the_loop_and_many_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the batch: what is put into one array for the block pays from 4 steps on."""
    case = Case(Mode.LSTM)
    compute = layer_stack.switch_at_runtime(
        case.sizes, np.dtype("float32"), layouts.LOOP, time_major=True, each=3, lowering="fast"
    )
    taken = []

    def block(**given: Any) -> Any:
        taken.append(given["seq_len_max"].numpy())
        return tf.raw_ops.BlockLSTM(**given, forget_bias=0.0, cell_clip=-1.0)

    monkeypatch.setattr(layer_stack, "BLOCK", block)
    for time in (1, 3, 4, 5):
        for batch in (1, 5):
            for found, expected in zip(
                *run(case, compute, taken_apart(case, layouts.LOOP), (time, batch)), strict=True
            ):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert taken == [4, 4, 5, 5]


def ops(sizes: Sizes, dtype: str = "float32", lowering: str = "fast") -> collections.Counter[str]:
    """How often each op stands in what `switched` makes for a recurrence of such sizes."""
    each = lower.count(sizes)
    compute = layer_stack.switch_at_runtime(
        sizes, np.dtype(dtype), layouts.LOOP, time_major=True, each=each, lowering=lowering
    )
    found: collections.Counter[str] = collections.Counter()
    with tf.Graph().as_default() as graph:
        blob = tf.compat.v1.placeholder(dtype, [None])
        arrays = lower.slice_blob(blob, sizes, Convention())
        depth = sizes.layers * sizes.directions
        shapes = ([None, None, sizes.input_size], [depth, None, sizes.width], [depth, None, sizes.units])
        compute(*(tf.compat.v1.placeholder(dtype, shape) for shape in shapes), None, *arrays)
        definition = graph.as_graph_def()
        bodies = [node for function in definition.library.function for node in function.node_def]
        found.update(node.op for node in [*definition.node, *bodies])
    return found


@pytest.mark.parametrize(
    ("sizes", "dtype", "lowering", "expected"),
    [
        (SEVERAL, "float32", "fast", 2),
        pytest.param(SEVERAL, "float16", "fast", 2, marks=pytest.mark.every),
        (SEVERAL, "float64", "fast", 0),
        (SEVERAL, "float32", "portable", 0),
        (Sizes(Mode.GRU, 1, 1, 3, 4), "float32", "fast", 0),
        (Sizes(Mode.LSTM, 1, 1, 3, 4, projection=2), "float32", "fast", 0),
        # What both kernels of the widest layer take: a MiB, and more.
        (Sizes(Mode.LSTM, 1, 1, 128, 384), "float32", "fast", 1),
        (Sizes(Mode.LSTM, 1, 1, 128, 385), "float32", "fast", 0),
        pytest.param(Sizes(Mode.LSTM, 1, 1, 128, 896), "float16", "fast", 1, marks=pytest.mark.every),
        pytest.param(Sizes(Mode.LSTM, 1, 1, 128, 897), "float16", "fast", 0, marks=pytest.mark.every),
        pytest.param(Sizes(Mode.LSTM, 2, 2, 170, 8), "float32", "fast", 4 * 0, marks=pytest.mark.every),
        pytest.param(Sizes(Mode.LSTM, 2, 2, 147, 8), "float32", "fast", 4, marks=pytest.mark.every),
    ],
)
def test_a_switch_is_for_what_the_block_is_faster_for(
    sizes: Sizes, dtype: str, lowering: str, expected: int
) -> None:
    assert ops(sizes, dtype, lowering)["BlockLSTM"] == expected


@pytest.mark.usefixtures("shipped_loops")
@pytest.mark.parametrize(("lowering", "steps"), [("fast", 16 + 4 + 1 + 1), ("portable", 1)])
def test_a_switch_takes_as_many_steps_at_once(lowering: str, steps: int) -> None:
    """16 in an iteration, four in another, an odd one, and a single one without a loop; or one by one."""
    assert ops(Sizes(Mode.GRU, 1, 1, 3, 4), lowering=lowering)["Tanh"] == steps


def test_gates_that_stand_side_by_side_go_through_one_sigmoid() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder("float32", [None, None, 2])
        state = tuple(tf.compat.v1.placeholder("float32", [None, UNITS]) for _ in range(2))
        arrays = [np.ones(shape, np.float32) for shape in ([2, 4 * UNITS], [UNITS, 4 * UNITS], [4 * UNITS])]
        sums, step = while_loop.cell_steps(Mode.LSTM, x, arrays, layouts.LOOP)
        step([part[0] for part in sums], state)
        found = collections.Counter(node.op for node in graph.as_graph_def().node)
    assert (found["Sigmoid"], found["Tanh"], found["Split"] + found["SplitV"]) == (1, 2, 2)


@pytest.mark.parametrize("layout", [layouts.LOOP, layouts.KERAS, layouts.BLOCK_LSTM_V1, layouts.ONNX])
def test_a_step_of_an_lstm_by_hand(layout: Layout) -> None:
    random = np.random.default_rng(3)
    kernels, recurrents = (
        {gate: random.normal(size=(size, UNITS)) for gate in Mode.LSTM.gates} for size in (2, UNITS)
    )
    biases = {gate: random.normal(size=UNITS) for gate in Mode.LSTM.gates}
    x, (h, c) = random.normal(size=(1, 3, 2)), random.normal(size=(2, 3, UNITS))
    order = layout.gates[Mode.LSTM]
    arrays = [np.concatenate([part[gate] for gate in order], -1) for part in (kernels, recurrents, biases)]
    i, f, j, o = (x[0] @ kernels[gate] + h @ recurrents[gate] + biases[gate] for gate in Mode.LSTM.gates)
    expected = sigmoid(f) * c + sigmoid(i) * np.tanh(j)
    projection = random.normal(size=(UNITS, 2))
    for more, last in (([], np.eye(UNITS)), ([projection], projection)):
        sums, step = while_loop.cell_steps(Mode.LSTM, tf.constant(x), [*arrays, *more], layout)
        h_next, c_next = step([part[0] for part in sums], (h, c))
        np.testing.assert_allclose(c_next, expected, rtol=1e-12)
        np.testing.assert_allclose(h_next, (sigmoid(o) * np.tanh(expected)) @ last, rtol=1e-12)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


# What the loop is given of TensorFlow 1's variables, against columns written out by hand.


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


# Arrays that are made when they are written: their shapes are known before, each layer is made once.

CASES = [
    *(Case(mode, 2, ways) for mode in Mode for ways in (1, 2)),
    Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=3),
    Case(Mode.GRU, 2, 1, dtype="float64"),
    Case(Mode.LSTM, 1, 1, dtype="float16"),
    Case(Mode.RNN_RELU, 2, 1, input_mode="skip_input"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shapes_are_those_of_the_arrays(case: Case) -> None:
    recurrence = case.recurrence()
    making = Making(recurrence)
    for layer, directions in enumerate(recurrence.cells):
        for way, cell in enumerate(directions):
            found, arrays = making.tensors(layer, way), while_loop.weights(cell)
            assert [*found] == [*arrays]  # which are handed over in that order
            for name, value in arrays.items():
                assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
                np.testing.assert_array_equal(found[name].read(), value)


def test_a_layer_is_decoded_once_where_its_arrays_are_read_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recurrence, asked = Case(Mode.GRU, 3, 2).recurrence(), []

    def decode(layer: int) -> tuple[Cell, ...]:
        asked.append(layer)
        return recurrence.cells[layer]

    made, weights = [], while_loop.weights
    monkeypatch.setattr(while_loop, "weights", lambda cell: made.append(cell) or weights(cell))
    making = Making(replace(recurrence, cells=LazyLayers(3, decode)))
    tensors = [
        tensor for layer in range(3) for way in range(2) for tensor in making.tensors(layer, way).values()
    ]
    assert asked == []
    assert all(tensor.read().size for tensor in tensors)
    assert asked == [0, 1, 2]
    assert [*map(id, made)] == [id(cell) for layer in recurrence.cells for cell in layer]  # each pair once
    again = tensors[0]
    np.testing.assert_array_equal(again.read(), again.read())  # made anew, for nobody keeps it


def test_dropout_lies_between_layers_alone() -> None:
    """It gets the outputs of both directions, before every layer but the first."""
    case = Case(Mode.RNN_TANH, 3, 2)
    shapes: list[tuple[int, ...]] = []

    def triple(x: Any) -> Any:
        shapes.append(tuple(x.shape))
        return 3 * x

    def echo(mode: Mode, x: Any, state: Any, lengths: Any, arrays: Any, *, backward: bool) -> Any:
        return x[..., : case.units] + state[0] * (2 if backward else 1), *state

    sizes = case.recurrence().sizes
    stack = layer_stack.stack_layers(sizes, echo, 0, time_major=True, between=triple)
    x = np.random.default_rng(1).standard_normal((4, 3, case.units)).astype(np.float32)
    states = np.random.default_rng(2).standard_normal((6, 3, case.units)).astype(np.float32)
    y, h, _ = stack(x, states, np.float32(0), None)
    expected = x
    for layer in range(3):
        first = (3 if layer else 1) * expected[..., : case.units]
        expected = np.concatenate([first + states[2 * layer], first + 2 * states[2 * layer + 1]], 2)
    assert shapes == [(4, 3, 2 * case.units)] * 2
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(h, states)
