"""Which tensor has the value of another in a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, variational_dropout

from cudnn_convert.verification.ops.graphs import TensorGraph


def missing(node: Any) -> Any:
    raise KeyError(node.name)


@pytest.mark.parametrize(("keep", "is_off"), [(1.0, True), (0.5, False)])
def test_a_mask_that_is_drawn_before_a_loop_is_known(keep: float, is_off: bool) -> None:
    with drawing() as graph:
        tf.identity(variational_dropout(placeholder("x"), tf.constant(keep)), "out")
    compared = TensorGraph(graph.as_graph_def(), frozenset({"x:0"}), {}, missing)
    (dropped,) = (node for node in compared.graph.node if node.op == "Floor")
    (product,) = compared.index.consumers(dropped.name)
    assert (compared.node(compared.root(f"{product.name}:0")).op == "RealDiv") == is_off


def test_a_root_lies_behind_copies_and_decided_branches() -> None:
    with drawing() as graph:
        x = placeholder("x", [None, 3])
        side = tf.cond(tf.constant(True), lambda: tf.negative(x, name="taken"), lambda: tf.abs(x))
        tf.identity(tf.stop_gradient(side), "out")
        tf.compat.v1.placeholder_with_default(np.float32([1.0]), [1], "default")
    compared = TensorGraph(graph.as_graph_def(), frozenset({"x:0"}), {}, missing)
    assert compared.node(compared.root("out:0")).op == "Neg"
    assert compared.root("x:0") == "x:0"
    assert compared.is_end("x:0")
    assert compared.is_constant(compared.root("default:0"))
    assert not compared.is_constant(compared.root("out:0"))
