"""Where the steps are, and which ops look at other steps than their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, INPUTS, UNITS, drawing, lstm, placeholder, variable

from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.time_axis import TimeAxis, find_time_axis

Change = Callable[[Any], Any]
#: Of a matrix that multiplies each step.
WEIGHTS = np.array([[0.5, -0.25, 1.0], [0.125, 2.0, -1.5]], np.float32)


def judged(after: Change, before: Change = tf.identity, shape: Any = (None, None, INPUTS)) -> TimeAxis:
    """`x` -> `before` -> recurrence `rnn` -> `after`, whose steps are looked for."""
    with drawing() as graph:
        y = lstm(before(placeholder("x", shape)), variable("blob", BLOB.shape)).output
        tf.identity(after(y), "scores")
    whole = Graph(graph.as_graph_def())
    time = find_time_axis(whole, {"x:0": ()}, ["scores:0", "rnn:1"], {"rnn": True})
    assert time is not None
    return time


def batch_first(y: Any) -> Any:
    return tf.transpose(y, [1, 0, 2])


def flat(y: Any) -> Any:
    shape = tf.shape(y)
    rows = tf.reshape(y, [-1, UNITS]) @ WEIGHTS
    return tf.reshape(rows, [shape[0], shape[1], 3])


def masked(y: Any) -> Any:
    """Padding by what the rows of steps hold, not by their number."""
    return tf.where(tf.reduce_any(y > 0.5, axis=2, keepdims=True), y, tf.zeros_like(y))


@pytest.mark.parametrize(
    ("after", "axis"),
    [
        (tf.tanh, 0),
        (batch_first, 1),
        (flat, 0),
        (lambda y: tf.tensordot(y, WEIGHTS, 1), 0),
        (tf.nn.softmax, 0),
        (lambda y: tf.reduce_mean(y, axis=-1), 0),
        (lambda y: tf.concat([y, 2 * y], axis=2), 0),
        (lambda y: tf.stack([y, -y], axis=0), 1),
        (lambda y: tf.argmax(batch_first(y), axis=2), 1),
        (lambda y: tf.reverse(y, [2]), 0),
        (lambda y: y[:, :, 1:], 0),
        (lambda y: tf.gather(y, [1, 0], axis=2), 0),
        (lambda y: tf.nn.conv2d(y[:, None], tf.ones([1, 1, UNITS, 3]), 1, "SAME")[:, 0], 0),
        (lambda y: tf.nn.conv1d(y, tf.ones([2, UNITS, 3]), 1, "SAME"), 0),
        (lambda y: tf.split(y, 2, axis=2)[1], 0),
        (masked, 0),
        (lambda y: y[-1], None),
        (lambda y: batch_first(y)[:, -1], None),
        (lambda y: batch_first(y)[:, -1:] * 2, None),
        (lambda y: tf.zeros([tf.shape(y)[1], 4]), None),
    ],
)
def test_each_step_is_taken_by_itself(after: Change, axis: int | None) -> None:
    """The convolution over axis 1 of `[time, batch, units]` looks at other rows, which are no steps."""
    time = judged(after)
    assert time.mixing == ()
    assert time.strange == ()
    assert dict(time.inputs) == {"x:0": 0}
    assert dict(time.outputs) == ({} if axis is None else {"scores:0": axis})


@pytest.mark.parametrize(
    ("after", "what"),
    [
        (lambda y: tf.reduce_mean(y, axis=0), "a mean over time"),
        (tf.reduce_max, "a maximum over time"),
        (lambda y: tf.nn.softmax(tf.transpose(y, [1, 2, 0])), "a softmax over time"),
        (lambda y: tf.cumsum(y, axis=0), "Cumsum, which is not known to take each step by itself"),
        (
            lambda y: tf.matmul(batch_first(y), batch_first(y), transpose_b=True),
            "a product over time (attention)",
        ),
        (lambda y: y[:, :, None] * tf.transpose(y, [1, 0, 2])[None, :, :, :], "pairs of steps (attention)"),
        (
            lambda y: tf.nn.conv1d(batch_first(y), tf.ones([3, UNITS, 3]), 1, "SAME"),
            "a convolution over 3 steps",
        ),
        (
            lambda y: tf.nn.conv1d(batch_first(y), tf.ones([1, UNITS, 3]), 2, "SAME"),
            "a convolution over 1 steps",
        ),
        (lambda y: tf.nn.max_pool2d(batch_first(y)[..., None], [2, 1], 1, "SAME"), "a pooling over 2 steps"),
        (lambda y: tf.reverse(y, [0]), "its steps in reverse"),
        (lambda y: y[::-1], "its steps in reverse"),
        (lambda y: y[tf.shape(y)[0] - 1], "steps chosen by their position"),  # the last one, by its number
        (lambda y: y[0], "steps chosen by their position"),
        (lambda y: y[:-1], "steps chosen by their position"),
        (lambda y: tf.gather(y, [0]), "steps chosen by their position"),
        (lambda y: tf.concat([y, y], axis=0), "what is joined or cut along time"),
        (lambda y: tf.pad(y, [[1, 0], [0, 0], [0, 0]]), "what is joined or cut along time"),
        (lambda y: tf.tile(y, [2, 1, 1]), "repeated steps"),
        (lambda y: y / tf.cast(tf.shape(y)[0], tf.float32), "the number of steps, read as a number"),
        (
            lambda y: y + tf.cast(tf.range(tf.shape(y)[0]), tf.float32)[:, None, None],
            "the numbers of the steps",
        ),
        (lambda y: tf.one_hot(tf.range(tf.shape(y)[0]), UNITS), "the numbers of the steps"),
        (lambda y: tf.map_fn(tf.tanh, y), "a loop over the steps"),
        (lambda y: tf.reshape(y, [-1, UNITS]), "steps and rows in one axis of an output"),
    ],
)
def test_an_op_that_looks_at_other_steps_is_named(after: Change, what: str) -> None:
    time = judged(after)
    assert what in [op.what for op in time.mixing]


def test_of_a_chain_the_convolution_before_the_recurrence_is_named() -> None:
    def convolved(x: Any) -> Any:
        return tf.nn.conv1d(tf.transpose(x, [1, 0, 2]), tf.ones([3, INPUTS, INPUTS]), 1, "VALID")

    time = judged(tf.identity, lambda x: tf.transpose(convolved(x), [1, 0, 2]))
    assert [op.what for op in time.mixing] == ["a convolution over 3 steps"]
    assert time.strange == ("rnn",)  # whose steps are fewer


@pytest.mark.parametrize("is_given", [True, False])
def test_lengths_may_be_compared_with_the_numbers_of_the_steps(is_given: bool) -> None:
    """`tf.sequence_mask` of the input's own steps; not where the number of a length is added."""
    with drawing() as graph:
        x, lengths = placeholder("x"), placeholder("lengths", [None], tf.int32)
        y = lstm(x, variable("blob", BLOB.shape)).output
        mask = tf.sequence_mask(lengths, tf.shape(x)[0], dtype=tf.float32)
        mask = tf.transpose(mask)[:, :, None]
        mask = mask if is_given else mask / tf.cast(lengths, tf.float32)[None, :, None]
        tf.identity(y * mask, "scores")
    whole = Graph(graph.as_graph_def())
    time = find_time_axis(whole, {"x:0": (), "lengths:0": ()}, ["scores:0"], {"rnn": True})
    assert time is not None
    assert time.lengths == {"lengths:0"}
    assert dict(time.rows) == {"x:0": 1, "lengths:0": 0}
    assert ["lengths, read as numbers" in op.what for op in time.mixing] == [True] * (not is_given)


@pytest.mark.parametrize(
    ("shape", "axis"), [((None, 4, INPUTS), 0), ((None, None, INPUTS), 0), ((7, None, 3), None)]
)
def test_an_axis_of_known_size_is_no_time(shape: Any, axis: int | None) -> None:
    time = judged(tf.identity, shape=shape)
    assert time.inputs.get("x:0") == axis
