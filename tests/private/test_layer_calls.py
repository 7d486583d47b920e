"""Calls of layers of tf_keras, noted while a model is built."""

from __future__ import annotations

import tensorflow as tf
import tf_keras

from cudnn_convert.private import keras_private, layer_calls


def test_calls_have_inputs_with_their_masks_and_the_layers_around() -> None:
    with tf.Graph().as_default(), keras_private.build_for_inference(), layer_calls.note_calls() as noted:
        x = tf_keras.Input([5, 3])
        masked = tf_keras.layers.Masking(name="masking")(x)
        tf_keras.layers.TimeDistributed(tf_keras.layers.Dense(2, name="inner"), name="each")(masked)
        tf_keras.layers.Concatenate(name="join")([masked, x])
    calls = {call.layer.name: call for call in noted}
    masking, inner, join = (calls[name] for name in ("masking", "inner", "join"))
    assert masking.masks == [None]
    assert masking.output_masks[0] is not None
    assert inner.wrapper == "TimeDistributed"
    assert [mask is None for mask in join.masks] == [False, True]
    assert [tuple(tensor.shape) for tensor in join.outputs] == [(None, 5, 6)]


def test_after_the_context_no_call_is_noted() -> None:
    with tf.Graph().as_default():
        with layer_calls.note_calls() as noted:
            pass
        tf_keras.layers.Dense(2)(tf_keras.Input([3]))
    assert noted == []
