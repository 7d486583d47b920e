"""Orders of axes, and tensors that are laid in one at most once."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.passes.image_layouts import TransposedTensors, element_type, invert, order_of
from cudnn_convert.graph.session import session

LAST = (0, 2, 3, 1)
X = np.random.default_rng(5).uniform(-1, 1, (2, 3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize(("rank", "order"), [(1, (0,)), (2, (0, 1)), (4, LAST), (5, (0, 2, 3, 4, 1))])
def test_channels_go_last_and_back(rank: int, order: tuple[int, ...]) -> None:
    assert order_of(rank) == order
    assert [order[k] for k in invert(order)] == [*range(rank)]


def test_a_tensor_is_transposed_once_for_each_order() -> None:
    with drawing() as graph:
        tf.tanh(placeholder("x", (None, 3, 4, 5)), name="y")
        tf.cast(placeholder("whole", [None], tf.int32), tf.float32, name="cast")
    source = Graph(graph.as_graph_def())
    layouts = TransposedTensors(source)
    layouts.owner = "y"
    assert layouts.lay("x:0", (0, 1, 2, 3), tf.float32) == "x:0"
    names = [layouts.lay("x:0", order, tf.float32) for order in (LAST, LAST, (0, 3, 2, 1))]
    assert names[0] == names[1]
    with session(replace_nodes(source, {}, layouts.added["y"]), {}) as running:
        one, other = running.run([names[0], f"{names[2]}:0"], {"x:0": X})
    np.testing.assert_array_equal(one, X.transpose(LAST))
    np.testing.assert_array_equal(other, X.transpose(0, 3, 2, 1))
    assert element_type(source.index.nodes["cast"]) == tf.int32
