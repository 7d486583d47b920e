"""Ops that a CPU lacks in half: computed in float32, and rounded."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from support.graphs import drawing, ops, placeholder

from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.passes.half_precision import compute_in_float32
from cudnn_convert.graph.session import session

X = np.array([0.5, 1.5, -2.25, 2047.5, 65504], np.float16)


def test_the_result_is_that_of_float32_rounded() -> None:
    with drawing() as graph:
        tf.raw_ops.Rint(x=placeholder("x", [None], tf.float16), name="y")
    source = Graph(graph.as_graph_def())
    made = compute_in_float32(source)
    assert [ops(made)[name] for name in ("y", "y/single", "y/single/input")] == ["Cast", "Rint", "Cast"]
    with session(made, {}) as running:
        found = running.run("y:0", {"x:0": X})
    np.testing.assert_array_equal(found, np.rint(X.astype(np.float32)).astype(np.float16), strict=True)


def test_ops_that_a_cpu_has_stay() -> None:
    with drawing() as graph:
        tf.tanh(tf.cast(tf.raw_ops.Rint(x=placeholder("x", [None])), tf.float16))
    source = Graph(graph.as_graph_def())
    assert compute_in_float32(source) is source
