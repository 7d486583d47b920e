"""Which numbers of a graph are read as its number of steps, and which keep another meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.graph.graph import Graph, import_graph, open_session
from cudnn_convert.graph.passes.open_steps import open_steps

STEPS, COUNT, ROWS = 10, 1009, 1061


def read(shape: tuple[int | None, ...], axis: int, change: Callable[[Any], Any]) -> tuple[list[Any], str]:
    """The shapes of `change` of an input, by each reading of its numbers, and the op that holds the size."""
    with drawing() as drawn:
        tf.identity(change(placeholder("x", shape)), "y")
    graph = Graph(drawn.as_graph_def())
    opened, held = open_steps(
        graph, {"x:0": axis}, STEPS, count=COUNT, needed=graph.index.ancestors(["y"]), known={}
    )
    shapes = []
    for each in opened:
        shapes.append([*each.shapes.values()][-1] if each.shapes else ())
        assert each.graph.shapes.get_tensor_by_name("x:0").shape[axis] is None
    return shapes, held.node if held else ""


@pytest.mark.parametrize(
    ("shape", "axis", "change", "expected"),
    [
        ((10, None, 5), 0, lambda x: tf.reshape(x, [10, -1, 5]), [(COUNT, ROWS, 5)]),
        ((10, None, 10), 0, lambda x: tf.reshape(x, [-1, 10]), [(COUNT * ROWS, 10)]),
        ((None, 10, 10), 1, lambda x: tf.reshape(x, [-1, 10, 10]), [(ROWS, COUNT, 10)]),
        ((None, 10, 20), 1, lambda x: tf.reshape(x, [-1, 20]), [(ROWS * COUNT, 20)]),
        ((None, 10, 20), 1, lambda x: tf.reshape(x, [-1, 200]), [(ROWS, COUNT * 20)]),
        ((10, 4, 5), 0, lambda x: tf.reshape(x, [40, 5]), [(COUNT * 4, 5)]),
        ((10, 4, 5), 0, lambda x: tf.reshape(tf.reshape(x, [-1, 5]), [10, 4, 5]), [(COUNT, 4, 5)]),
        ((10, None, 5), 0, lambda x: x + tf.tile([[[1.0]]], [10, 1, 1]), [(COUNT, 1, 1)]),
        ((10, None, 5), 0, lambda x: x + tf.fill([10, 1, 5], 0.5), [(COUNT, 1, 5)]),
        ((None, 10, 5), 1, lambda x: x + tf.broadcast_to(0.5, [1, 10, 5]), [(1, COUNT, 5)]),
    ],
)
def test_a_number_is_read_as_steps_where_nothing_else_fits(
    shape: Any, axis: int, change: Any, expected: Any
) -> None:
    assert read(shape, axis, change) == (expected, "")


def test_a_number_with_two_meanings_is_read_both_ways() -> None:
    shapes, _ = read((10, 10, 5), 0, lambda x: tf.reshape(tf.reshape(x, [-1, 5]), [10, -1, 5]))
    assert sorted(shapes) == [(10, COUNT, 5), (COUNT, 10, 5)]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: tf.reshape(x, [5, -1, 2, 5], name="held"),
        lambda x: tf.reshape(x, [-1, 10, 5], name="held"),
        lambda x: tf.add(x, tf.ones([10, 1, 1]) * tf.constant([1.0] * 10)[:, None, None], name="held"),
        lambda x: tf.unstack(x, 10, name="held")[0],
    ],
    ids=["halves", "rows in the place of steps", "table", "unstack"],
)
def test_an_op_that_holds_the_size_is_named(change: Any) -> None:
    assert read((10, None, 5), 0, change) == ([], "held")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda x: x[:10], lambda x: x),
        (lambda x: x[9], lambda x: x[-1]),
        (lambda x: x[9:10], lambda x: x[-1:]),
        (lambda x: x[..., 1:], lambda x: x[..., 1:]),
        (lambda x: tf.slice(x, [0, 0, 1], [10, -1, 3]), lambda x: x[:, :, 1:4]),
        (lambda x: tf.ensure_shape(x, [10, None, 5]), lambda x: x),
    ],
)
def test_parts_of_the_steps_are_of_any_number(change: Any, expected: Any) -> None:
    with drawing() as drawn:
        tf.identity(change(placeholder("x", (10, None, 5))), "y")
    graph = Graph(drawn.as_graph_def())
    needed = graph.index.ancestors(["y"])
    [opened], _ = open_steps(graph, {"x:0": 0}, STEPS, count=COUNT, needed=needed, known={})
    x = np.arange(7 * 2 * 5, dtype=np.float32).reshape([7, 2, 5])
    with open_session(import_graph(opened.graph)) as session:
        assert np.array_equal(session.run("y:0", {"x:0": x}), expected(x))
