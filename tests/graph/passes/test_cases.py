"""A Case that is laid flat has branches of two, and answers as it did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, copy_graph, import_graph
from cudnn_convert.graph.index import all_nodes
from cudnn_convert.graph.passes.cases import split_cases
from cudnn_convert.graph.passes.inlining import inline_functions, needs_inlining

v1 = tf.compat.v1
X = np.array([0.5, -1.25, 2.0], np.float32)


def branches(x: Any, k: Any) -> Any:
    """Four branches, of which one reads nothing of the graph but an index."""
    few = [
        lambda: tf.tanh(x),
        lambda: tf.tanh(x) * 2,
        lambda: x - tf.cast(k, tf.float32),
        lambda: -tf.tanh(x),
    ]
    return tf.switch_case(k, few)


def one_index_twice(x: Any, k: Any) -> Any:
    """Of two branches and of three."""
    first = tf.switch_case(k, [lambda: tf.tanh(x), lambda: x + 1])
    return first + tf.switch_case(k, [lambda: tf.tanh(x) * 3, lambda: x, lambda: tf.tanh(first)])


def one_in_another(x: Any, k: Any) -> Any:
    def inner() -> Any:
        return tf.switch_case(k - 1, [lambda: tf.tanh(x), lambda: tf.tanh(x) - 3, lambda: x * 4])

    return tf.switch_case(k, [lambda: tf.tanh(x + 1), inner, lambda: inner() * 2])


def one_branch(x: Any, k: Any) -> Any:
    return tf.switch_case(k, [lambda: tf.tanh(x) + 1])


def several_outputs(x: Any, k: Any) -> Any:
    """Of different types; one of them is the same in all branches."""
    pairs = [lambda: (tf.tanh(x), k), lambda: (x * 2, k + 1), lambda: (tf.tanh(x) - x, k)]
    y, n = tf.switch_case(k, pairs)
    return y + tf.cast(n, tf.float32)


def in_a_loop(x: Any, k: Any) -> Any:
    def body(step: Any, y: Any) -> Any:
        few = [lambda: tf.tanh(y), lambda: y * 2, lambda: tf.tanh(y) - x]
        return step + 1, tf.switch_case(step, few)

    return tf.while_loop(lambda step, y: step < k, body, [0, x])[1]


@pytest.mark.first("branches", "one_branch")
@pytest.mark.parametrize(
    "build", [branches, one_index_twice, one_in_another, one_branch, several_outputs, in_a_loop]
)
def test_each_branch_and_what_is_none(build: Any) -> None:
    with tf.Graph().as_default() as graph:
        x, k = v1.placeholder(tf.float32, [3], "x"), v1.placeholder(tf.int32, [], "k")
        tf.identity(build(x, k), name="y")
    before = graph.as_graph_def()
    assert any(node.op in ("Case", "StatelessCase") for node in all_nodes(before))
    assert needs_inlining(Graph(before), ["y"])
    after = copy_graph(inline_functions(before, ["y"]))
    assert not {"Case", "StatelessCase", "_SwitchN"} & {node.op for node in after.node}
    assert all(node.attr["N"].i == 2 for node in after.node if node.op == "Merge")
    for index in (-1, 0, 1, 2, 3, 7):
        answers = []
        for definition in (before, after):
            with v1.Session(graph=import_graph(definition)) as session:
                answers.append(session.run("y:0", {"x:0": X, "k:0": index}))
        np.testing.assert_array_equal(*answers)


def test_a_graph_without_a_case_is_the_same_object() -> None:
    graph = Graph(tf.Graph().as_graph_def())
    assert split_cases(graph) is graph


def test_what_waits_for_a_switch_waits_for_the_first() -> None:
    nodes = [
        node_defs.placeholder("x", tf.float32, tf.TensorShape([3])),
        node_defs.placeholder("k", tf.int32, tf.TensorShape([])),
        node_defs.node("s", "_SwitchN", ["x", "k"], T=tf.float32, num_outs=3),
        node_defs.constant("late", X, control=["^s"]),
    ]
    after = split_cases(Graph(tf.Graph().as_graph_def(), nodes))
    [wait] = after.index.nodes["late"].input
    assert after.index.nodes[wait.removeprefix("^")].input[:] == ["x"]
