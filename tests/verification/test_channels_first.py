"""The judge of channels-first ops answers what TensorFlow 1.15 recorded, whatever the machine has."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support import channels_first
from support.recorded import assert_close
from support.tiers import some

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.passes import channels_last
from cudnn_convert.verification import channels_first as judge

v1 = tf.compat.v1


@pytest.mark.parametrize(
    "group", some(["convolutions", "only_onednn"], "carried", "control", "depthwise", "films")
)
def test_the_judge_answers_as_the_twin(group: str) -> None:
    feeds, expected = channels_first.recorded(group)
    graph = channels_first.definition(group)
    functions = judge.run_on_any_cpu(graph)
    assert not any(map(channels_last.needs_rewriting, graph.node))
    with v1.Session(graph=node_defs.import_graph(graph)) as session:
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
    with v1.Session(graph=node_defs.import_graph(definition)) as session:
        found = session.run("y:0", {"x:0": value})
    np.testing.assert_array_equal(found, value[:, :, :4].reshape(2, 3, 2, 2, 3, 2).max((3, 5)))
