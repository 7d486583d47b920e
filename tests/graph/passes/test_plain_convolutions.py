"""Convolutions in groups, which TensorFlow without oneDNN does not run once it fused their bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.passes import channels_last
from cudnn_convert.graph.passes.plain_convolutions import separate_groups

v1 = tf.compat.v1


def convolved(channels: int, *, is_read_plainly: bool = False) -> Any:
    """A convolution of four channels whose filter has `channels`, its bias, and a normalisation in a loop."""
    rng = np.random.default_rng(4)
    with drawing() as graph:
        image = placeholder("x", [None, 5, 6, 4])
        kernel = rng.uniform(-1, 1, (2, 3, channels, 6)).astype(np.float32)
        sums = tf.nn.conv2d(image, kernel, 1, "SAME", name="sums")
        if is_read_plainly:
            tf.tanh(sums, name="y")
            return graph.as_graph_def()
        biased = tf.nn.bias_add(sums, rng.uniform(-1, 1, 6).astype(np.float32))
        numbers = [rng.uniform(0.5, 1, 4).astype(np.float32) for _ in range(4)]

        def step(k: Any, y: Any) -> Any:
            inner = tf.nn.conv2d(y, kernel[..., :4], 1, "SAME", name="inner")
            return k + 1, v1.nn.fused_batch_norm(inner, *numbers, is_training=False)[0]

        _, looped = tf.while_loop(lambda k, _: k < 2, step, [0, biased[..., :4]])
        tf.identity(looped, "y")
    return graph.as_graph_def()


def test_a_copy_stands_between_groups_and_what_would_be_fused() -> None:
    graph = separate_groups(Graph(convolved(2)))
    copies = {node.name: [*node.input] for node in graph.node if node.op == "Snapshot"}
    assert copies == {"sums": ["sums/groups"], "while/inner": ["while/inner/groups"]}
    feed = {"x:0": np.random.default_rng(5).uniform(-1, 1, (2, 5, 6, 4))}
    answers = []
    for definition in (convolved(2), graph.definition):
        with tf.Graph().as_default() as imported:
            tf.import_graph_def(definition, name="")
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with v1.Session(graph=imported, config=config) as session:
            answers.append(session.run("y:0", feed))
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("graph", [convolved(4), convolved(2, is_read_plainly=True)], ids=["plain", "alone"])
def test_others_stay_as_they_are(graph: Any) -> None:
    whole = Graph(graph)
    assert separate_groups(whole) is whole


def test_a_function_that_is_repaired_gets_the_copy_too() -> None:
    kernel = np.random.default_rng(6).uniform(-1, 1, (2, 3, 2, 6)).astype(np.float32)

    @tf.function(input_signature=[tf.TensorSpec([None, 4, 5, 6], tf.float32, "x")])
    def call(x: Any) -> Any:
        sums = tf.nn.conv2d(x, kernel, 1, "SAME", data_format="NCHW", name="sums")
        return tf.nn.bias_add(sums, tf.range(6.0), data_format="NCHW")

    function = call.get_concrete_function().function_def
    name = function.signature.name
    repaired = channels_last.compute_in_functions({name: function}, [name])[name]
    readers = {
        node.name: node.op for node in repaired.node_def if node.input[:1] == ["sums/channels_last:y:0"]
    }
    assert [node.op for node in repaired.node_def].count("Snapshot") == 1
    assert "BiasAdd" not in readers.values()
