"""Ops whose images lie channels last under another name: each reads them there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.passes import carried_layouts
from cudnn_convert.graph.passes.image_layouts import TransposedTensor, TransposedTensors
from cudnn_convert.graph.session import session

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
X = np.random.default_rng(5).uniform(-1, 1, (2, 3, 4, 5)).astype(np.float32)
PADDING = np.array([[0, 0], [1, 0], [0, 2], [0, 0]])


@pytest.mark.parametrize(
    ("build", "order"),
    [
        (tf.tanh, LAST),
        (lambda x: x + np.arange(5, dtype=np.float32).reshape(5, 1, 1), LAST),
        (lambda x: tf.pad(x, PADDING), LAST),
        (lambda x: tf.tile(x, [1, 2, 1, 3]), LAST),
        (lambda x: tf.concat([x, x], 1), LAST),
        (lambda x: tf.split(x, 5, 1)[0], LAST),
        (lambda x: tf.reduce_max(x, [-1, 2]), (0, 1)),
        (lambda x: tf.reduce_max(x, 3), (0, 2, 1)),
        (lambda x: tf.reduce_max(x, 1, keepdims=True), LAST),
        (lambda x: tf.space_to_batch_nd(x, [1, 3, 4], np.zeros([3, 2], np.int32)), LAST),
    ],
)
def test_a_rule_gives_the_same_values_in_the_other_order(build: Callable[[Any], Any], order: Any) -> None:
    with drawing() as graph:
        made = build(tf.transpose(placeholder("x", (None, 3, 4, 5)), FIRST, name="image"))
    source = Graph(graph.as_graph_def())
    layouts = TransposedTensors(source)
    layouts.known["image:0"] = TransposedTensor("x:0", LAST)
    layouts.owner = made.op.name
    result = carried_layouts.RULES[made.op.type](layouts, source.index.nodes[made.op.name])
    assert result is not None
    assert result.orders == (order,) * len(made.op.outputs)
    assert not any(name.startswith("image") for name in result.node.input)
    whole = replace_nodes(
        source, {}, [*(node for added in layouts.added.values() for node in added), result.node]
    )
    with session(whole, {}) as running:
        expected, found = running.run([made.name, f"{result.node.name}:0"], {"x:0": X})
    np.testing.assert_array_equal(found, expected.transpose(order))
