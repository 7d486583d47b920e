"""Layer normalisation keeps its epsilon, which TensorFlow's fused op does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from graphs import drawing

from cudnn_convert.graph.node_defs import Graph
from cudnn_convert.graph.passes.inference import separate_sums
from cudnn_convert.graph.session import session

v1 = tf.compat.v1
RANDOM = np.random.default_rng(7)
FEED = (0.1 * RANDOM.normal(size=(3, 5, 6))).astype(np.float32)
GAIN, BIAS = RANDOM.normal(size=(2, 6)).astype(np.float32)
EPSILON = 1e-6


def normalised(*, swapped: bool = False) -> Any:
    """A frozen graph as TensorFlow 1's `batch_normalization` writes it, over the last axis of `x`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 6], name="x")
        mean, variance = tf.nn.moments(x, [2], keepdims=True)
        total = EPSILON + variance if swapped else variance + EPSILON
        scale = tf.math.rsqrt(total) * tf.constant(GAIN)
        tf.identity(x * scale + (tf.constant(BIAS) - mean * scale), name="y")
    return graph.as_graph_def()


def expected() -> np.ndarray:
    wide = FEED.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    return centred / np.sqrt(wide.var(-1, keepdims=True) + EPSILON) * GAIN + BIAS


def answer(graph: Any) -> np.ndarray:
    """What a user's plain session gives."""
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        with v1.Session(graph=imported) as running:
            return np.asarray(running.run("y:0", {"x:0": FEED}))


def test_tensorflow_fuses_it_as_it_is() -> None:
    gap = np.abs(answer(normalised()) - expected()).max()
    if gap < 1e-5:
        pytest.skip("oneDNN is off, or this processor has none: nothing is fused")
    assert gap > 1e-2


@pytest.mark.parametrize("swapped", [False, True])
def test_a_user_gets_the_epsilon_of_the_source(swapped: bool) -> None:
    graph = normalised(swapped=swapped)
    made = separate_sums(Graph(graph)).definition
    np.testing.assert_allclose(answer(made), expected(), atol=1e-5)
    assert {node.name for node in graph.node} < {node.name for node in made.node}


def test_a_source_runs_with_its_own_epsilon() -> None:
    with session(normalised(), {}) as running:
        np.testing.assert_allclose(running.run("y:0", {"x:0": FEED}), expected(), atol=1e-5)


def test_in_a_loop_the_constant_enters_it() -> None:
    with drawing() as graph:
        x = v1.placeholder(tf.float32, [None, None, 6], name="x")
        outside = tf.constant(EPSILON)

        def body(step: Any, value: Any) -> Any:
            mean, variance = tf.nn.moments(value, [2], keepdims=True)
            scale = tf.math.rsqrt(variance + outside) * GAIN
            return step + 1, tf.ensure_shape(value * scale + (BIAS - mean * scale), x.shape)

        _, y = v1.while_loop(lambda step, _: step < 1, body, [0, x])
        tf.identity(y, name="y")
    made = separate_sums(Graph(graph.as_graph_def())).definition
    assert [node.op for node in made.node if node.name.endswith("/negated")] == ["Const", "Enter"]
    np.testing.assert_allclose(answer(made), expected(), atol=1e-5)


def test_other_sums_stay() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4])
        tf.math.rsqrt(x + 1.0)
        tf.reduce_mean(x, -1) + 1.0
        tf.math.rsqrt(tf.reduce_mean(x, -1) + tf.reduce_max(x, -1))
    source = Graph(graph.as_graph_def())
    assert separate_sums(source) is source
