"""How many axes a tensor has behind a loop, whose shapes TensorFlow forgets as it imports it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from support.graphs import drawing

from cudnn_convert.verification.ops.graphs import TensorGraph
from cudnn_convert.verification.ops.ranks import find_rank

v1 = tf.compat.v1


def no_variable(name: str) -> Any:
    raise AssertionError(f"expected no variable, found {name}")


@pytest.fixture(scope="module")
def graph() -> TensorGraph:
    with drawing() as drawn:
        images = v1.placeholder(tf.float32, [None, 3, 5, 4], "x")
        _, looped = tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, tf.tanh(y)), [0, images])
        turned = tf.identity(looped, "looped")
        tf.reduce_sum(turned, [2, 3], name="sums")
        largest = tf.reduce_max(turned, [1], keepdims=True, name="largest")
        scaled = tf.divide(turned, largest, name="scaled")
        tf.nn.bias_add(scaled, tf.ones([3]), data_format="NCHW", name="shifted")
        tf.nn.conv2d(scaled, tf.ones([1, 1, 3, 2]), 1, "SAME", data_format="NCHW", name="convolved")
        tf.concat([scaled, turned], 1, name="joined")
    return TensorGraph(drawn.as_graph_def(), frozenset({"x:0"}), {}, no_variable)


@pytest.mark.parametrize("name", ["x", "looped", "largest", "scaled", "shifted", "convolved"])
def test_images_have_four_axes(name: str, graph: TensorGraph) -> None:
    assert find_rank(graph, f"{name}:0") == 4


@pytest.mark.parametrize("name", ["sums", "joined"])
def test_what_is_not_known_is_not_guessed(name: str, graph: TensorGraph) -> None:
    assert graph.shapes.get_tensor_by_name(f"{name}:0").shape.rank is None
    assert find_rank(graph, f"{name}:0") is None
