"""What of a tensor depends on the first step alone."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.graph.first_steps import find_later_steps
from cudnn_convert.graph.graph import Graph


@pytest.mark.parametrize(
    ("compute", "later"),
    [
        pytest.param(lambda x: tf.tanh(x[0], name="y"), [], id="first"),
        pytest.param(lambda x: tf.zeros([1, tf.shape(x)[1], 2], name="y"), [], id="rows"),
        pytest.param(lambda x: tf.reduce_max(x, 0, name="y"), ["y"], id="all"),
        pytest.param(lambda x: tf.identity(x[-1], "y"), ["strided_slice", "y"], id="last"),
    ],
)
def test_ops_that_take_later_steps_are_listed(compute: Any, later: list[str]) -> None:
    with drawing() as graph:
        compute(placeholder("x"))
    found = find_later_steps(Graph.of(graph.as_graph_def()), {"x:0": 0}, {"x:0": 1}, ["y:0"])
    assert [mixing.node for mixing in found] == later
