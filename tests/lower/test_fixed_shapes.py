"""Graphs of fixed sizes without shapes, and without lengths of rows that are full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import ops

from cudnn_convert.graph.graph import Graph, import_graph
from cudnn_convert.lower import fixed_shapes

v1 = tf.compat.v1


def reversing(shape: list[int | None], lengths: str) -> Graph:
    """A graph that turns round the steps of `x [rows, steps, width]`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", shape, "x")
        rows, steps = tf.shape(x)[0], tf.shape(x)[1]
        given = {
            "full": lambda: tf.fill([rows], steps),
            "shorter": lambda: tf.fill([rows], steps - 1),
            "ragged": lambda: tf.constant([4, 5], tf.int32),
            "fed": lambda: v1.placeholder("int32", [shape[0]], "lengths"),
        }[lengths]()
        tf.reverse_sequence(x, given, seq_axis=1, batch_axis=0, name="y")
    return Graph.of(graph.as_graph_def())


def simplify(graph: Graph) -> Graph:
    return fixed_shapes.reverse_whole_rows(fixed_shapes.fold_shapes(graph))


def run(graph: Graph, x: Any) -> Any:
    with v1.Session(graph=import_graph(graph)) as session:
        return session.run("y:0", {"x:0": x})


def test_full_rows_are_turned_round_whole() -> None:
    made = simplify(reversing([2, 5, 3], "full"))
    assert "Shape" not in ops(made).values()
    assert ops(made)["y"] == "ReverseV2"
    x = np.random.default_rng(3).normal(size=(2, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(run(made, x), x[:, ::-1])


@pytest.mark.parametrize(
    ("shape", "lengths"),
    [([2, 5, 3], "shorter"), ([2, 5, 3], "ragged"), ([2, 5, 3], "fed"), ([2, None, 3], "full")],
)
def test_other_rows_stay(shape: list[int | None], lengths: str) -> None:
    assert ops(simplify(reversing(shape, lengths)))["y"] == "ReverseSequence"


@pytest.mark.parametrize(
    ("op", "condition", "is_replaced"),
    [("SelectV2", [2, 3], True), ("SelectV2", [3], True), ("Select", [2, 3], True), ("Select", [2], False)],
)
def test_a_choice_between_integers_is_a_sum(op: str, condition: list[int], is_replaced: bool) -> None:
    """The differences overflow; a condition of rows does not broadcast as a product does."""
    with tf.Graph().as_default() as graph:
        c = v1.placeholder("bool", condition, "c")
        first, second = (v1.placeholder("int32", [2, 3], name) for name in "ab")
        if op == "Select":
            tf.raw_ops.Select(condition=c, x=first, y=second, name="y")
        else:
            tf.raw_ops.SelectV2(condition=c, t=first, e=second, name="y")
    made = fixed_shapes.replace_selects(Graph.of(graph.as_graph_def()))
    assert (op not in ops(made).values()) is is_replaced
    random = np.random.default_rng(5)
    low, high = (
        random.integers(*bounds, (2, 3), np.int32)
        for bounds in ((-(2**31), 9 - 2**31), (2**31 - 9, 2**31 - 1))
    )
    chosen = np.arange(np.prod(condition)).reshape(condition) % 2 == 0
    with v1.Session(graph=import_graph(made)) as session:
        answer = session.run("y:0", {"c:0": chosen, "a:0": high, "b:0": low})
    rows = chosen[:, None] if condition == [2] else chosen
    np.testing.assert_array_equal(answer, np.where(rows, high, low))


def test_of_other_types_a_choice_stays() -> None:
    with tf.Graph().as_default() as graph:
        c, a = v1.placeholder("bool", [2], "c"), v1.placeholder("float32", [2], "a")
        tf.raw_ops.SelectV2(condition=c, t=a, e=a + 1, name="y")
    assert ops(fixed_shapes.replace_selects(Graph.of(graph.as_graph_def())))["y"] == "SelectV2"


def test_a_shape_keeps_its_type_and_its_branch() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", [2, 3], "x")
        side, _ = tf.raw_ops.Switch(data=x, pred=v1.placeholder("bool", [], "p"), name="switch")
        tf.raw_ops.Shape(input=side, out_type=tf.int64, name="y")
        v1.placeholder("float32", [None, 3], "open")
        tf.raw_ops.Shape(input=graph.get_tensor_by_name("open:0"), name="open_shape")
    made = fixed_shapes.fold_shapes(Graph.of(graph.as_graph_def()))
    node = made.index.nodes["y"]
    assert (node.op, [*node.input]) == ("Const", ["^switch"])
    value = tf.make_ndarray(node.attr["value"].tensor)
    assert value.dtype == np.int64
    assert [*value] == [2, 3]
    assert made.index.nodes["open_shape"].op == "Shape"
