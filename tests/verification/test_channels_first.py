"""The judge of channels-first ops answers what TensorFlow 1.15 recorded, whatever the machine has."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support import channels_first
from support.graphs import drawing
from support.recorded import assert_close
from support.tiers import some

from cudnn_convert.graph.graph import import_graph
from cudnn_convert.graph.passes import channels_last
from cudnn_convert.verification import channels_first as judge

v1 = tf.compat.v1


@pytest.mark.parametrize(
    "group", some(["convolutions", "only_onednn"], "carried", "control", "depthwise", "films")
)
def test_the_judge_answers_as_the_twin(group: str) -> None:
    channels_first.require_kernels(group)
    feeds, expected = channels_first.recorded(group)
    graph = channels_first.definition(group)
    functions = judge.run_on_any_cpu(graph)
    assert not any(map(channels_last.needs_rewriting, graph.node))
    with v1.Session(graph=import_graph(graph)) as session:
        answers = session.run([*expected], feeds)
    for name, found in zip(expected, answers, strict=True):
        assert_close(found, expected[name], name=(group, name))
    del functions


def test_a_pool_of_float_keeps_its_type_and_what_it_waits_for() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float64, [None, 3, 5, 6], "x")
        with tf.control_dependencies([tf.identity(x, "wait")]):
            tf.nn.max_pool2d(x, 2, 2, "VALID", data_format="NCHW", name="y")
    definition = graph.as_graph_def()
    judge.run_on_any_cpu(definition)
    nodes = {node.name: node for node in definition.node}
    assert "^wait" in nodes[f"y{judge.MARK}"].input
    value = np.random.default_rng(1).uniform(-1, 1, (2, 3, 5, 6))
    with v1.Session(graph=import_graph(definition)) as session:
        found = session.run("y:0", {"x:0": value})
    np.testing.assert_array_equal(found, value[:, :, :4].reshape(2, 3, 2, 2, 3, 2).max((3, 5)))


@pytest.mark.parametrize("sizes", [[3, 5], [3, 5, 6], [3, 5, 6, 2]], ids=len)
def test_a_bias_behind_a_loop_is_that_of_the_channels(sizes: list[int]) -> None:
    """TensorFlow forgets the shape of what a loop gives, and so how many axes the image has."""
    with drawing() as graph:
        x = v1.placeholder(tf.float32, [None, *sizes], "x")
        _, looped = tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, y * 2.0), [0, x])
        tf.nn.bias_add(looped, tf.constant([1.0, 2.0, 3.0]), data_format="NCHW", name="y")
    definition = graph.as_graph_def()
    judge.run_on_any_cpu(definition)
    value = np.random.default_rng(1).uniform(-1, 1, (2, *sizes)).astype(np.float32)
    with v1.Session(graph=import_graph(definition)) as session:
        found = session.run("y:0", {"x:0": value})
    bias = np.arange(1, 4, dtype=np.float32).reshape(3, *[1] * (len(sizes) - 1))
    np.testing.assert_array_equal(found, value * 4 + bias)
