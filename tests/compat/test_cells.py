"""TensorFlow 1's fused LSTM cells over a sequence: numbers and gradients, by their equations in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.compat import cells
from cudnn_convert.model import Array

v1 = tf.compat.v1
STEPS, BATCH, INPUTS, UNITS = 5, 3, 4, 6
FORGET_BIAS = 0.25
LENGTHS = np.array([5, 2, 0])
WEIGHTS = ("kernel", "bias", "w_i_diag", "w_f_diag", "w_o_diag")


def draw() -> dict[str, Array]:
    """Inputs, states and weights, all of them different and none zero."""
    random = np.random.default_rng(3)
    shapes = {
        "x": (STEPS, BATCH, INPUTS), "c": (BATCH, UNITS), "h": (BATCH, UNITS),
        "kernel": (INPUTS + UNITS, 4 * UNITS), "bias": (4 * UNITS,),
        **dict.fromkeys(WEIGHTS[2:], (UNITS,)),
    }  # fmt: skip
    return {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def expected(values: dict[str, Array], lengths: Array) -> tuple[Array, Array, Array]:
    """Outputs and the final state (c, h), in float64.

    Source: tensorflow v1.15.0 contrib/rnn/python/ops/lstm_ops.py, `_lstm_block_cell`: gates i, c, f, o.
    """
    c, h, outputs = values["c"], values["h"], []
    for step in range(STEPS):
        products = np.concatenate([values["x"][step], h], 1) @ values["kernel"] + values["bias"]
        i, g, f, o = np.split(products, 4, 1)
        i = sigmoid(i + values["w_i_diag"] * c)
        f = sigmoid(f + FORGET_BIAS + values["w_f_diag"] * c)
        new = i * np.tanh(g) + f * c
        y = sigmoid(o + values["w_o_diag"] * new) * np.tanh(new)
        is_alive = (step < lengths)[:, None]
        outputs.append(np.where(is_alive, y, 0))
        c, h = np.where(is_alive, new, c), np.where(is_alive, y, h)
    return np.stack(outputs), c, h


def reverse(x: Array, lengths: Array) -> Array:
    """Each row backwards within its length."""
    result = x.copy()
    for row, length in enumerate(lengths):
        result[:length, row] = x[:length, row][::-1]
    return result


def fused() -> Any:
    return cells.LSTMBlockFusedCell(UNITS, FORGET_BIAS, use_peephole=True)


def adapted(*, use_dynamic_rnn: bool) -> Any:
    cell = cells.LSTMBlockCell(UNITS, FORGET_BIAS, use_peephole=True)
    return cells.FusedRNNCellAdaptor(cell, use_dynamic_rnn)


def feed(values: dict[str, Array]) -> dict[str, Any]:
    """The inputs and the states as tensors of the graph."""
    return {name: tf.constant(values[name], tf.float32) for name in "xch"}


def set_weights(session: Any, values: dict[str, Array]) -> dict[str, Any]:
    """Set the variables of the graph; gives them by name."""
    variables = {variable.op.name.rpartition("/")[2]: variable for variable in v1.global_variables()}
    assert set(variables) == set(WEIGHTS)
    session.run([variable.assign(values[name]) for name, variable in variables.items()])
    return variables


CELLS: dict[str, Callable[[], Any]] = {
    "one_op": fused,
    "loop": lambda: adapted(use_dynamic_rnn=True),
    "unrolled": lambda: adapted(use_dynamic_rnn=False),
}


@pytest.mark.first(
    *("one_op-backwards-list-lengths", "one_op-forwards-tensor-full", "loop-backwards-tensor-lengths"),
    *("loop-forwards-list-full", "unrolled-backwards-list-lengths", "unrolled-forwards-tensor-lengths"),
)
@pytest.mark.parametrize("is_ragged", [True, False], ids=["lengths", "full"])
@pytest.mark.parametrize("is_listed", [True, False], ids=["list", "tensor"])
@pytest.mark.parametrize("is_reversed", [True, False], ids=["backwards", "forwards"])
@pytest.mark.parametrize("name", CELLS)
def test_a_sequence_is_computed_by_the_cell_s_equations(
    name: str, is_reversed: bool, is_listed: bool, is_ragged: bool
) -> None:
    """TensorFlow 1.15 turns a list of steps whole, whatever the lengths (fused_rnn_cell.py `_reverse`)."""
    full = np.full(BATCH, STEPS)
    values, lengths = draw(), LENGTHS if is_ragged else full
    with tf.Graph().as_default(), v1.Session() as session:
        tensors = feed(values)
        cell = CELLS[name]()
        cell = cells.TimeReversedFusedRNN(cell) if is_reversed else cell
        y, state = cell(
            tf.unstack(tensors["x"]) if is_listed else tensors["x"],
            initial_state=cells.LSTMStateTuple(tensors["c"], tensors["h"]),
            sequence_length=tf.constant(lengths) if is_ragged else None,
        )
        assert isinstance(y, list) is is_listed
        set_weights(session, values)
        answers = session.run([tf.stack(y) if is_listed else y, state.c, state.h])
    if is_reversed:
        values["x"] = reverse(values["x"], full if is_listed else lengths)
    wanted = [*expected(values, lengths)]
    if is_reversed:
        wanted[0] = reverse(wanted[0], full if is_listed else lengths)
    for answer, value in zip(answers, wanted, strict=True):
        np.testing.assert_allclose(answer, value, rtol=3e-6, atol=3e-6)


def test_without_a_state_a_sequence_begins_with_zeros() -> None:
    values = draw()
    with tf.Graph().as_default(), v1.Session() as session:
        y, _ = fused()(feed(values)["x"], dtype=tf.float32)
        set_weights(session, values)
        answer = session.run(y)
    zeros = np.zeros((BATCH, UNITS))
    wanted, _, _ = expected(values | {"c": zeros, "h": zeros}, np.full(BATCH, STEPS))
    np.testing.assert_allclose(answer, wanted, rtol=3e-6, atol=3e-6)


def test_gradients_of_the_cell_are_the_slopes_of_its_equations() -> None:
    """Along a random line each: the inputs, both states, and every weight."""
    values, random = draw(), np.random.default_rng(4)
    full = np.full(BATCH, STEPS)
    factors = [random.uniform(-1, 1, output.shape) for output in expected(values, full)]
    lines = {name: random.uniform(-1, 1, value.shape) for name, value in values.items()}

    def total(name: str, by: float) -> float:
        outputs = expected(values | {name: values[name] + by * lines[name]}, full)
        return float(sum((output * factor).sum() for output, factor in zip(outputs, factors, strict=True)))

    with tf.Graph().as_default(), v1.Session() as session:
        tensors = feed(values)
        state = cells.LSTMStateTuple(tensors["c"], tensors["h"])
        y, (c, h) = adapted(use_dynamic_rnn=False)(tensors["x"], initial_state=state)
        tensors |= set_weights(session, values)
        loss = tf.add_n([tf.reduce_sum(output * f) for output, f in zip((y, c, h), factors, strict=True)])
        gradients = session.run(dict(zip(tensors, v1.gradients(loss, [*tensors.values()]), strict=True)))
    assert set(gradients) == set(values)
    for name, gradient in gradients.items():
        slope = (total(name, 1e-6) - total(name, -1e-6)) / 2e-6
        length = np.linalg.norm(gradient)
        assert length > 0
        assert abs(np.sum(gradient * lines[name]) - slope) <= 1e-5 * length, name
