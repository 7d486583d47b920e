"""Calls of layers in a traced graph, by the names of their tensors."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from cudnn_convert.keras import called_layers
from cudnn_convert.private import keras_private, layer_calls


def test_a_call_has_the_names_of_tensors_and_variables_in_the_graph() -> None:
    with (
        tf.Graph().as_default() as graph,
        keras_private.build_for_inference(),
        layer_calls.note_calls() as noted,
    ):
        x = tf_keras.Input([5, 3])
        inner = tf_keras.Sequential([tf_keras.layers.Dense(2, name="dense")], name="inner")
        tf_keras.Model(x, inner(tf_keras.layers.Masking(name="masking")(x)))
    names = {node.name for node in graph.as_graph_def().node}
    calls = {call.layer: call for call in called_layers.describe(noted, frozenset({"row"}))}
    assert "inner" not in calls  # a model, whose layers are described instead
    dense = calls["dense"]
    assert (dense.class_name, dense.config["units"], dense.differences) == ("Dense", 2, {"row"})
    assert dense.shapes[0] == (None, 5, 3)
    assert len(dense.weights) == 2
    tensors = [*dense.inputs, *dense.outputs, *filter(None, dense.masks)]
    assert {*dense.weights, *(tensor.partition(":")[0] for tensor in tensors)} <= names
    masking = calls["masking"]
    assert masking.masks == ("",)
    assert masking.output_masks[0].partition(":")[0] in names
