"""Graphs that hide parts: a gate, branch, loop or table keeps weights from the outputs on ordinary inputs.

Each body takes `x [steps, batch, 4]` unless its row in `sources.py` says otherwise, and has a recurrence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from containers import Net

from cudnn_convert.model import Mode

v1 = tf.compat.v1
Outputs = Mapping[str, Any]


def beside_visible(net: Net) -> Outputs:
    """A visible head, and one that a single rare value adds."""
    x = net.inputs["x"]
    y = net.recurrence(x)
    hidden = net.dense(y, 3)
    gate = tf.reduce_any(x > 50.0)
    return {"answer": net.dense(y, 3) + tf.where(gate, hidden, tf.zeros_like(hidden))}


def second_output(net: Net) -> Outputs:
    """The second output is zero but for rows with a rare value."""
    x = net.inputs["x"]
    y = net.recurrence(x, Mode.LSTM, directions=2)
    hidden, gate = net.dense(y, 3), tf.reduce_max(x, -1, keepdims=True) >= 9.0
    return {"visible": net.dense(y, 2), "hidden": tf.where(gate, hidden, tf.zeros_like(hidden))}


def between_recurrences(net: Net) -> Outputs:
    """A dense layer that stands between two recurrences and is skipped by ordinary steps."""
    x = net.inputs["x"]
    inner = net.dense(net.recurrence(x), 4)
    between = tf.where(x[..., :1] > 30.0, inner, tf.tanh(x))
    return {"answer": net.dense(net.recurrence(between, Mode.LSTM), 3)}


def gated_state(net: Net) -> Outputs:
    """A learned initial state that only very negative first steps ask for."""
    x = net.inputs["x"]
    learned = tf.tile(net.weight(1, 1, 5), [1, tf.shape(x)[1], 1])
    gate = tf.reduce_all(x[0] < -20.0)
    return {"answer": net.dense(net.recurrence(x, h=tf.where(gate, learned, tf.zeros_like(learned))), 3)}


def choice_of_scores(net: Net) -> Outputs:
    """The choice is always the constant score, until an input makes the others large."""
    x = net.inputs["x"]
    scores = net.dense(net.recurrence(x, Mode.RNN_TANH), 3) * (1.0 + tf.nn.relu(x[..., :1] - 40.0))
    constant = 25.0 + 0.0 * scores[..., :1]
    return {"choice": tf.argmax(tf.concat([scores, constant], -1), -1, output_type=tf.int32)}


def masked_output(net: Net) -> Outputs:
    """Ordinary rows are masked to zero; rows of zeros get a vector of their own."""
    x = net.inputs["x"]
    kept = tf.cast(tf.reduce_sum(tf.square(x), -1, keepdims=True) > 1e3, tf.float32)
    empty = tf.cast(tf.reduce_all(tf.equal(x, 0.0), -1, keepdims=True), tf.float32)
    return {"answer": net.dense(net.recurrence(x), 3) * kept + net.weight(3) * empty}


def tiny_scale(net: Net) -> Outputs:
    """Weights of 1e-20 around the recurrence, and an output of 1e-6 behind a gate."""
    x = net.inputs["x"]
    y = net.recurrence(x * 1e-3, Mode.LSTM)
    tiny = tf.tensordot(y, net.weight(5, 3, low=-1e-20, high=1e-20), 1)
    gate = tf.cast(tf.reduce_max(x) > 20.0, tf.float32)
    return {"tiny": tiny, "small": net.dense(y, 2) * 1e-6 * gate}


def many_rows(net: Net) -> Outputs:
    """A dense layer that is used for more than 40 rows alone."""
    x = net.inputs["x"]
    hidden = net.dense(net.recurrence(x, directions=2), 3)
    count = tf.shape(x)[0] * tf.shape(x)[1]
    return {"answer": tf.where(count > 40, hidden, tf.zeros_like(hidden))}


def exact_value(net: Net) -> Outputs:
    """A head that is used where an element is exactly 3."""
    x = net.inputs["x"]
    y = net.recurrence(x)
    gate = tf.reduce_any(tf.equal(x, 3.0), -1, keepdims=True)
    return {"answer": tf.where(gate, net.dense(y, 3), 0.1 * net.dense(y, 3))}


def branch(net: Net) -> Outputs:
    """A branch with a recurrence and a dense layer inside, taken for a large sum."""
    x = net.inputs["x"]
    y = net.recurrence(x)

    def taken() -> Any:
        return tf.tanh(net.dense(net.recurrence(y, Mode.LSTM), 3))

    return {"answer": tf.cond(tf.reduce_sum(x) > 100.0, taken, lambda: tf.zeros_like(y[..., :3]))}


def loop(net: Net) -> Outputs:
    """A loop whose body runs once for ordinary inputs and up to four times for large ones."""
    x = net.inputs["x"]
    y = net.recurrence(x, Mode.LSTM)
    kernel, bias, other = net.weight(5, 5), net.weight(5), net.weight(5)
    count = tf.cast(tf.clip_by_value(tf.reduce_max(x) / 10.0, 1.0, 4.0), tf.int32)

    def step(k: Any, h: Any) -> Any:
        late = tf.cast(k > 1, tf.float32)
        return k + 1, tf.tanh(tf.tensordot(h, kernel, 1) + bias + late * other)

    shapes = [tf.TensorShape([]), tf.TensorShape([None, None, 5])]
    _, found = tf.while_loop(lambda k, _: k < count, step, [tf.constant(0), y], shapes)
    return {"answer": found}


def branch_in_loop(net: Net) -> Outputs:
    """A loop over three parts of the input, each of which may take a branch."""
    x = net.inputs["x"]
    y = net.recurrence(x)
    kernel, bias, limits = net.weight(5, 5), net.weight(5), tf.constant([12.0, 25.0, 60.0])

    def step(k: Any, h: Any) -> Any:
        gate = tf.reduce_max(x) > tf.gather(limits, k)
        changed = tf.cond(gate, lambda: tf.tensordot(h, kernel, 1) + bias, lambda: h * 0.5)
        return k + 1, changed

    shapes = [tf.TensorShape([]), tf.TensorShape([None, None, 5])]
    _, found = tf.while_loop(lambda k, _: k < 3, step, [tf.constant(0), y], shapes)
    return {"answer": found}


def embedding(net: Net) -> Outputs:
    """A table of which ordinary ids ask for a few rows; id 0 is padding."""
    ids = net.inputs["ids"]
    table = net.weight(60, 4)
    y = net.recurrence(tf.gather(table, ids))
    return {"answer": net.dense(y, 3) * tf.cast(tf.not_equal(ids, 0), tf.float32)[..., tf.newaxis]}


def bounded_lengths(net: Net) -> Outputs:
    """Lengths above 6 are 6, and a bias is added to rows that reach it."""
    x, lengths = net.inputs["x"], net.inputs["lengths"]
    y = net.recurrence(x, lengths=tf.minimum(lengths, 6))
    full = tf.cast(tf.greater_equal(lengths, 6), tf.float32)[:, tf.newaxis]
    return {"answer": net.dense(y, 3) + full * net.weight(3)}


def lookup(net: Net) -> Outputs:
    """A hash table from ids to rows of a table, with a row for unknown ids."""
    ids = net.inputs["ids"]
    pairs = tf.lookup.KeyValueTensorInitializer(np.int64([1, 2, 3, 11, 29]), np.int64([4, 1, 5, 2, 3]))
    rows = tf.lookup.StaticHashTable(pairs, np.int64(0)).lookup(tf.cast(ids, tf.int64))
    return {"answer": net.dense(net.recurrence(tf.gather(net.weight(6, 4), rows)), 3)}


def booleans(net: Net) -> Outputs:
    """A gate of three: any above 12 and all below 30, or none above -15."""
    x = net.inputs["x"]
    y = net.recurrence(x, Mode.LSTM)
    high, low = tf.reduce_any(x > 12.0), tf.reduce_all(x < 30.0)
    gate = tf.logical_or(tf.logical_and(high, low), tf.logical_not(tf.reduce_any(x > -15.0)))
    return {"answer": tf.where(gate, net.dense(y, 3), net.dense(y, 3) * 0.25)}


def chosen_steps(net: Net) -> Outputs:
    """The last step, or the first where the last input is large; every other step is an output too."""
    x = net.inputs["x"]
    y = net.recurrence(x, directions=2)
    first, last = net.dense(y[0], 3), net.dense(y[-1], 3)
    return {"answer": tf.where(x[-1, :, :1] > 15.0, first, last), "every_other": tf.tanh(y[1::2, :, 2:7])}


def norms(net: Net) -> Outputs:
    """A layer normalisation, replaced by a dense layer where the input's norm is tiny."""
    x = net.inputs["x"]
    y = net.recurrence(x)
    mean = tf.reduce_mean(y, -1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(y, mean), -1, keepdims=True)
    normed = (y - mean) * tf.math.rsqrt(variance + 1e-3) * net.weight(5) + net.weight(5)
    norm = tf.sqrt(tf.reduce_sum(tf.square(x), -1, keepdims=True))
    return {"answer": tf.where(norm <= 1e-3, net.dense(y, 5), normed)}


def convolution(net: Net) -> Outputs:
    """A convolution over the steps of what exceeds 10, whose result is added."""
    x = net.inputs["x"]
    y = net.recurrence(x)
    large = tf.transpose(tf.nn.relu(x - 10.0), [1, 0, 2])
    found = tf.nn.conv1d(large, net.weight(3, 4, 3), stride=1, padding="SAME")
    return {"answer": net.dense(y, 3) + tf.transpose(found, [1, 0, 2])}


def plain_head(net: Net) -> Outputs:
    """Nothing is hidden."""
    return {"answer": net.dense(net.recurrence(net.inputs["x"]), 3)}


def chosen_weights(net: Net) -> Outputs:
    """A kernel that a branch chooses: another one where three values are above 6."""
    x = net.inputs["x"]
    usual, rare = net.weight(5, 3), net.weight(5, 3)
    gate = tf.reduce_sum(tf.cast(x > 6.0, tf.int32)) >= 3
    kernel = tf.cond(gate, lambda: tf.identity(rare), lambda: tf.identity(usual))
    return {"answer": tf.tensordot(net.recurrence(x, Mode.LSTM), kernel, 1)}


def switch(net: Net) -> Outputs:
    """Three heads, of which an input chooses one."""
    x, head = net.inputs["x"], net.inputs["head"]
    y = net.recurrence(x)
    kernels, bias = [net.weight(5, 3) for _ in range(3)], net.weight(3)
    heads = [
        lambda: tf.tensordot(y, kernels[0], 1),
        lambda: tf.tensordot(y, kernels[1], 1) + bias,
        lambda: tf.nn.relu(tf.tensordot(y, kernels[2], 1)),
    ]
    return {"answer": tf.switch_case(tf.cast(tf.abs(head), tf.int32), heads)}


def nested_branches(net: Net) -> Outputs:
    """A branch in a branch."""
    x = net.inputs["x"]
    y = net.recurrence(x, directions=2)
    outer, inner, bias = net.weight(10, 3), net.weight(10, 3), net.weight(3)
    largest = tf.reduce_max(x)

    def large() -> Any:
        return tf.cond(
            largest >= 40.0,
            lambda: tf.tensordot(y, inner, 1) + bias,
            lambda: tf.nn.relu(tf.tensordot(y, outer, 1)),
        )

    return {"answer": tf.cond(largest > 8.0, large, lambda: 0.1 * y[..., :3])}


def positions(net: Net) -> Outputs:
    """A row of a table for each step, of which short inputs read the first."""
    x = net.inputs["x"]
    rows = tf.gather(net.weight(24, 5), tf.minimum(tf.range(tf.shape(x)[0]), 23))
    return {"answer": net.dense(net.recurrence(x) + rows[:, tf.newaxis], 3)}


def saturated(net: Net) -> Outputs:
    """A clipped head, and a sigmoid that is 1 until an input is large."""
    x = net.inputs["x"]
    y = net.recurrence(x)
    clipped = tf.clip_by_value(net.dense(y, 3) * (1.0 + tf.nn.relu(x[..., :1] - 8.0)), -2.0, 2.0)
    return {"clipped": clipped, "sure": tf.sigmoid(net.dense(y, 3) + 60.0 - tf.nn.relu(x[..., :1] - 10.0))}


def best_rows(net: Net) -> Outputs:
    """The two best scores, and the rows of a table that they stand for."""
    x = net.inputs["x"]
    y = net.recurrence(x)
    scores = (
        net.dense(y, 6) + tf.constant([9.0, 8.0, 7.0, 0.0, 0.0, 0.0]) + net.dense(tf.nn.relu(x - 20.0), 6)
    )
    best, places = tf.nn.top_k(scores, 2)
    return {"best": best, "rows": tf.gather(net.weight(6, 3), places)}


def whole_tens(net: Net) -> Outputs:
    """Weights that whole tens of the input multiply, and what is left above 7 of each ten."""
    x = net.inputs["x"]
    y = net.recurrence(x, Mode.LSTM)
    tens = tf.floor(tf.abs(x) / 10.0)
    rest = tf.maximum(tf.abs(x) - 10.0 * tens - 7.0, 0.0)
    return {"answer": net.dense(y, 3) + net.dense(tens, 3) * tf.pow(1.0 + rest[..., :1], 2.0)}


def parity(net: Net) -> Outputs:
    """Ids divided by 7: the remainder chooses a row, the quotient a gate."""
    ids = net.inputs["ids"]
    rows = tf.gather(net.weight(7, 4), tf.math.floormod(ids, 7))
    y = net.recurrence(rows)
    gate = tf.equal(tf.math.floordiv(ids, 7), 3)[..., tf.newaxis]
    return {"answer": tf.where(gate, net.dense(y, 3), net.dense(y, 3) * 0.5)}
