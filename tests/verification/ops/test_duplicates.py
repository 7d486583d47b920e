"""Nodes that compute what an earlier node does."""

from __future__ import annotations

import tensorflow as tf

from cudnn_convert.graph.index import Index
from cudnn_convert.verification.ops.duplicates import find_duplicates

v1 = tf.compat.v1


def test_the_same_op_of_the_same_values_is_found() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.int32, [None], "x")
        first = tf.expand_dims(tf.not_equal(x, 0, "first/mask"), 0, "first")
        second = tf.expand_dims(tf.not_equal(x, 0, "second/mask"), 0, "second")
        tf.concat([first, second, tf.expand_dims(tf.not_equal(x, 1), 0, "another")], 0, "all")
    duplicates = find_duplicates(Index(graph.as_graph_def()))
    assert duplicates["second:0"] == "first:0"
    assert duplicates["second/mask:0"] == "first/mask:0"
    assert "another:0" not in {*duplicates, *duplicates.values()}


def test_random_numbers_and_other_attributes_are_none() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 2], "x")
        for name in ("a", "b"):
            v1.random_uniform([2], name=f"{name}/random", seed=1)
        tf.matmul(x, x, name="plain")
        tf.matmul(x, x, transpose_a=True, name="turned")
        v1.placeholder(tf.float32, [2, 2], "y")
    found = find_duplicates(Index(graph.as_graph_def()))
    assert not [name for name in (*found, *found.values()) if name.startswith(("x", "y", "plain", "turned"))]
    assert "b/random/RandomUniform:0" not in found


def test_a_loop_is_left_alone() -> None:
    with tf.Graph().as_default() as graph:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [], "x")
        tf.while_loop(lambda i: i < 3.0, lambda i: tf.sin(x) + tf.sin(x) + i + 1.0, [x])
        v1.enable_control_flow_v2()
    index = Index(graph.as_graph_def())
    sines = [f"{node.name}:0" for node in index.nodes.values() if node.op == "Sin"]
    assert len(sines) == 2
    assert not {*sines} & {*find_duplicates(index)}
