"""Layers of Keras in NumPy, beside those of tf_keras 2.21: each class that has an equation."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from cudnn_convert.reference import keras_layers
from cudnn_convert.reference.cells import KerasLayer

layers = tf_keras.layers
_ODD: Final = {"padding": "same", "strides": 2}
_CASES: Final = [
    (layers.SimpleRNN(3, return_state=True), (5, 4)),
    (layers.LSTM(3, return_sequences=True, go_backwards=True, recurrent_activation="hard_sigmoid"), (5, 4)),
    (layers.GRU(3, reset_after=True), (5, 4)),
    (layers.GRU(3, reset_after=False, activation="relu"), (5, 4)),
    (layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)], return_state=True), (5, 4)),
    (layers.TimeDistributed(layers.Dense(3)), (5, 4)),
    (layers.Dense(3, activation="softsign"), (5, 4)),
    (layers.Softmax(axis=1), (5, 4)),
    (layers.ReLU(max_value=1.5, negative_slope=0.2, threshold=0.1), (5, 4)),
    (layers.ActivityRegularization(l1=0.1), (5, 4)),
    (layers.BatchNormalization(axis=1), (5, 4)),
    (layers.LayerNormalization(axis=[1, 2]), (5, 4)),
    (layers.GroupNormalization(2), (5, 3, 4)),
    (layers.UpSampling2D((2, 3), interpolation="bilinear"), (4, 3, 2)),
    (layers.Conv2DTranspose(3, (3, 2), dilation_rate=2, padding="same"), (4, 5, 2)),
    (layers.Conv3DTranspose(3, 2, strides=2), (2, 3, 2, 2)),
    (layers.AveragePooling1D(3, **_ODD), (6, 2)),
    (layers.AveragePooling2D((3, 2), **_ODD), (6, 5, 2)),
    (layers.AveragePooling3D(2, **_ODD), (5, 4, 3, 2)),
    (layers.MaxPooling1D(3, **_ODD), (6, 2)),
    (layers.MaxPooling2D((3, 2), **_ODD), (6, 5, 2)),
    (layers.MaxPooling3D(2, **_ODD), (5, 4, 3, 2)),
]
#: Classes of two inputs, which witnesses of the census ask.
_OF_TWO: Final = {"Dot", "MultiHeadAttention"}


def test_each_class_of_one_input_is_asked() -> None:
    assert {type(layer).__name__ for layer, _ in _CASES} == keras_layers.EQUATIONS.keys() - _OF_TWO


@pytest.mark.parametrize(("layer", "shape"), _CASES, ids=lambda value: getattr(value, "name", None))
def test_an_equation_answers_as_its_layer(layer: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, *shape)).astype(np.float32)
    # A test in graph mode, between the import of this module and here, makes layers of the import unusable.
    layer = type(layer).from_config(layer.get_config())
    layer(x)
    layer.set_weights([rng.uniform(0.1, 1, weight.shape) for weight in layer.get_weights()])
    expected = tf.nest.flatten(layer(x))
    described = KerasLayer(type(layer).__name__, layer.get_config(), layer.get_weights())
    outputs = keras_layers.compute(described, [x], [None])
    for output, value in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, np.asarray(value), rtol=1e-5, atol=1e-5)
