"""Lengths that say nothing are told from those that do: ragged ones taken for full would change answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from cudnn_convert.graph.index import Index
from cudnn_convert.recurrences.resolve import lengths_are_trivial

v1 = tf.compat.v1


def full(lengths: Callable[[Any], Any], *, time_major: bool = False, change: Any = tf.identity) -> bool:
    """Whether the lengths, made of the model's input `[?, ?, 3]`, are full for a node that reads `change`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 3], "x")
        state = tf.zeros([1, 2, 4] if time_major else [2, 1, 4])
        tf.raw_ops.CudnnRNNV3(
            input=change(x),
            input_h=state,
            input_c=state,
            params=tf.zeros([4 * 4 * (3 + 4 + 2)]),
            sequence_lengths=lengths(x),
            time_major=time_major,
            name="node",
        )
    index = Index(graph.as_graph_def())
    return lengths_are_trivial(index, index.nodes["node"])


def steps(axis: int) -> Callable[[Any], Any]:
    """All rows as long as an axis of the input."""
    return lambda x: tf.fill([tf.shape(x)[1 - axis]], tf.shape(x)[axis])


@pytest.mark.parametrize("time_major", [False, True])
def test_the_axis_of_time_is_full(time_major: bool) -> None:
    assert full(steps(0 if time_major else 1), time_major=time_major)


@pytest.mark.parametrize("time_major", [False, True])
def test_the_axis_of_the_batch_is_not(time_major: bool) -> None:
    assert not full(steps(1 if time_major else 0), time_major=time_major)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: tf.reverse(x, [1]),
        lambda x: tf.reverse_sequence(x, tf.constant([1, 2]), 1),
        tf.stop_gradient,
    ],
    ids=["reverse", "reverse_sequence", "stop_gradient"],
)
def test_what_keeps_the_steps_keeps_them_full(change: Callable[[Any], Any]) -> None:
    assert full(steps(1), change=change)


@pytest.mark.parametrize(
    "lengths",
    [
        lambda x: v1.placeholder(tf.int32, [None]),
        lambda x: tf.fill([tf.shape(x)[0]], 2),
        lambda x: tf.fill([tf.shape(x)[0]], tf.shape(x)[1] - 1),
        lambda x: tf.reduce_sum(tf.ones_like(x[:, :, 0], tf.int32), 1),
        lambda x: tf.fill([tf.shape(x)[0]], tf.shape(v1.placeholder(tf.float32, [None, None, 3]))[1]),
    ],
    ids=["fed", "constant", "one less", "counted", "of another tensor"],
)
def test_any_other_lengths_are_not(lengths: Callable[[Any], Any]) -> None:
    assert not full(lengths)


def test_a_part_of_the_input_is_not_the_input() -> None:
    assert not full(steps(1), change=lambda x: x[:, 1:])
