"""What a graph has for training alone: labels, losses, and what leads to them."""

from __future__ import annotations

import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, placeholder

from cudnn_convert.graph.index import Index
from cudnn_convert.graph.training import InferenceNodes, is_named


def walked(*stripped: str) -> InferenceNodes:
    with drawing() as graph:
        x, labels = placeholder("x"), placeholder("answers", [None, None], tf.int32)
        scores = tf.identity(lstm(x, BLOB).output, "scores")
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores, name="cost")
        tf.reduce_mean(loss, name="total")
    made = graph.as_graph_def()
    for node in made.node:
        for name in stripped if node.op == "Placeholder" else ():
            del node.attr[name]
    return InferenceNodes(Index(made), ["rnn"], ())


def test_a_label_is_what_only_a_loss_takes() -> None:
    (found,) = walked().sources({"scores"})
    assert (found.name, found.is_label) == ("answers:0", True)


def test_an_input_of_unknown_shape_is_no_scalar() -> None:
    """A SavedModel strips the shape, which is unknown by default."""
    (found,) = walked("shape").sources({"scores"})
    assert (found.name, found.is_label) == ("answers:0", True)


def test_nodes_below_and_above_follow_each_other() -> None:
    walk = walked()
    assert "scores" in walk.reached
    assert {"rnn", "x"} <= walk.above(["scores"])
    assert "scores" in walk.readers("rnn")


def test_names_of_ops_are_no_names_of_a_user() -> None:
    with drawing() as graph:
        tf.tanh(placeholder("x", []))
        tf.tanh(placeholder("x", []), name="scores")
    nodes = {node.name: node for node in graph.as_graph_def().node}
    assert not is_named(nodes["Tanh"])
    assert is_named(nodes["scores"])
