"""Loops of TensorFlow Lite ops in blocks of steps, before its converter sees them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import UNITS, Case, swapped
from support.tiers import combinations, some
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from cudnn_convert.lower.tflite_loops import FORM
from cudnn_convert.model import Array, Mode, Recurrence

# Run step by step in Python, against the float64 reference.
#
# TensorFlow has `XlaDynamicUpdateSlice` in functions compiled by XLA alone: NumPy does its work here.
# The files that become of the loop are run in tests/properties/test_tflite.py.

#: Steps around the ends of blocks of 32: none, one, a full block and one more, two blocks, three.
NUMBERS_OF_STEPS = (0, 1, 32, 33, 64, 70)
#: How many rows there were to write into, by all updates of a test.
HELD: set[int] = set()
GENUINE = gen_xla_ops.xla_dynamic_update_slice


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """xla/xla_data.proto, DynamicUpdateSlice: an update that would reach over the end begins earlier."""

    def updated(*, input: Any, update: Any, indices: Any) -> Any:  # noqa: A002 - the op's own name
        held = input.numpy().copy()
        HELD.add(len(held))
        first, *others = (int(k) for k in indices)
        assert others == [0, 0]
        first = min(max(first, 0), len(held) - len(update))
        held[first : first + len(update)] = update
        return tf.constant(held)

    monkeypatch.setattr(gen_xla_ops, "xla_dynamic_update_slice", updated)


def computed(recurrence: Recurrence, given: list[Any]) -> list[Array]:
    weights = [tf.constant(value) for value in FORM.weights(recurrence).values()]
    return [value.numpy() for value in FORM.compute(recurrence)(*given, *weights)]


def judged(case: Case, steps: int) -> None:
    turn = (lambda value: value) if case.time_major else swapped
    feeds = case.feeds(steps)
    given = [tf.constant(turn(feeds[key])) for key in ("x", "h", "c")]
    found = computed(case.recurrence(), [*given, feeds.get("lengths")])
    for got, expected in zip(found, case.expected(feeds), strict=False):
        assert turn(got).shape == expected.shape
        np.testing.assert_allclose(turn(got), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("written")
@combinations(
    lambda op, steps: op == "CudnnRNNV3" or steps == 33, op=["CudnnRNN", "CudnnRNNV3"], steps=NUMBERS_OF_STEPS
)
def test_blocks_of_steps(op: str, steps: int) -> None:
    judged(Case(Mode.GRU, 1, 2, op), steps)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize(("steps", "rows"), [(1, 32), (31, 32), (32, 32), (33, 64), (65, 96)])
def test_no_more_rows_are_kept_than_whole_blocks_need(steps: int, rows: int) -> None:
    HELD.clear()
    judged(Case(Mode.GRU), steps)
    assert {32, rows, steps} == HELD  # and the inputs, which are written into themselves


@pytest.mark.usefixtures("written")
@combinations(
    lambda mode, time_major: time_major == (mode in (Mode.LSTM, Mode.RNN_TANH)),
    ids=lambda value: {True: "time_major", False: "batch_major"}[value] if isinstance(value, bool) else None,
    mode=Mode,
    time_major=[True, False],
)
def test_every_mode(mode: Mode, time_major: bool) -> None:
    judged(Case(mode, 2, 2, "CudnnRNNV3", time_major), 35)
    judged(Case(mode, 2, 1, time_major=time_major), 3)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("projection", some([3], 1))
def test_a_projection(projection: int) -> None:
    judged(Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=projection), 34)


@pytest.mark.usefixtures("written")
def test_peepholes() -> None:
    """The equations of TensorFlow's BlockLSTM (core/ops/rnn_ops.cc)."""
    case, random = Case(Mode.LSTM), np.random.default_rng(5)
    recurrence = case.recurrence()
    cell = dataclasses.replace(recurrence.cells[0][0], peepholes=random.normal(size=(3, UNITS)).astype("f4"))
    feeds = case.feeds(5)
    given = [tf.constant(feeds[key]) for key in ("x", "h", "c")]
    y, h_n, c_n = computed(dataclasses.replace(recurrence, cells=((cell,),)), [*given, None])
    h, c = feeds["h"][0].astype(float), feeds["c"][0].astype(float)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    rows = []
    for x in feeds["x"]:
        i, f, j, o = (
            x @ cell.kernel[k].T + h @ cell.recurrent_kernel[k].T + cell.bias[k] + cell.recurrent_bias[k]
            for k in range(4)
        )
        at_input, at_forget, at_output = cell.peepholes
        c = sigmoid(f + at_forget * c) * c + sigmoid(i + at_input * c) * np.tanh(j)
        h = sigmoid(o + at_output * c) * np.tanh(c)
        rows.append(h)
    np.testing.assert_allclose(y, np.stack(rows), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h_n[0], h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c_n[0], c, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("written")
def test_each_pseudo_layer_has_weights_of_its_own_name() -> None:
    case = Case(Mode.GRU, 2, 2, dtype="float16")
    found = FORM.weights(dataclasses.replace(case.recurrence(), shared="scope/blob"))
    stems = [f"scope/blob/layer_{layer}/{way}_float16" for layer in (0, 1) for way in ("forward", "backward")]
    gates = ("kernel", "recurrent_kernel", "bias")
    arrays = [
        *(f"gates_{name}" for name in gates),
        *(f"candidate_{name}" for name in (*gates, "recurrent_bias")),
    ]
    assert [*found] == [f"{stem}/{name}" for stem in stems for name in arrays]
    for stem, cell in zip(stems, (cell for layer in case.recurrence().cells for cell in layer), strict=True):
        np.testing.assert_array_equal(
            found[f"{stem}/gates_bias"], (cell.bias + cell.recurrent_bias)[:2].reshape(-1)
        )  # r, z, n as cuDNN has them
    plain = FORM.weights(Case(Mode.LSTM, 1, 1).recurrence())
    assert {name.rpartition("/")[0] for name in plain} == {"rnn/blob/layer_0/forward_float32"}


@pytest.mark.usefixtures("written")
def test_graphs_know_the_shape_of_what_comes_out() -> None:
    """The batch of the states may be known where the input's is not."""
    case = Case(Mode.LSTM, 1, 2)
    recurrence = case.recurrence()
    weights = [tf.constant(value) for value in FORM.weights(recurrence).values()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gen_xla_ops, "xla_dynamic_update_slice", GENUINE)
        specs = [tf.TensorSpec(shape) for shape in ([None, None, 4], [2, 1, UNITS], [2, 1, UNITS])]
        traced = tf.function(
            lambda x, h, c: FORM.compute(recurrence)(x, h, c, None, *weights), autograph=False
        ).get_concrete_function(*specs)
    assert traced.output_shapes[0].as_list() == [None, None, 2 * UNITS]
    assert [shape.as_list()[-1] for shape in traced.output_shapes[1:]] == [UNITS, UNITS]


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("mode", [Mode.GRU, Mode.LSTM])
def test_no_product_of_all_steps_reads_a_reshape(mode: Mode) -> None:
    """XNNPACK read an earlier call's input there."""
    case = Case(mode, 2, 2)
    recurrence = case.recurrence()
    weights = [tf.constant(value) for value in FORM.weights(recurrence).values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gen_xla_ops, "xla_dynamic_update_slice", GENUINE)
        specs = [tf.TensorSpec(shape) for shape in ([None, None, 4], [4, None, UNITS], [4, None, UNITS])]
        traced = tf.function(
            lambda x, h, c: FORM.compute(recurrence)(x, h, c, None, *weights), autograph=False
        ).get_concrete_function(*specs)
    products = [op for op in traced.graph.get_operations() if "MatMul" in op.type]
    assert len(products) == 4 * (2 if mode is Mode.GRU else 1)
    assert not [op.name for op in products if op.inputs[0].op.type == "Reshape"]
