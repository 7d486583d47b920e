"""SavedModels of tf_keras: LSTM and GRU, whose functions come in two kinds, and the CuDNN layers of old.

A case builds its model from `Layers`, which has either kind of recurrent layer.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf

from .case import Case, Floats, Ids, Signature, gru, lstm
from .cases_layers import SIZE, UNITS, served
from .cases_masked import LENGTHS, STEPS, WORDS


@dataclasses.dataclass(frozen=True)
class Layers:
    """tf_keras, and the class of each recurrent layer: LSTM and GRU, or CuDNNLSTM and CuDNNGRU."""

    keras: Any
    lstm: Any
    gru: Any


def portable(of: Layers) -> Case:
    """LSTM and a pair of GRUs, exported: their cuDNN functions lie unused in the library."""
    x = of.keras.Input((None, SIZE), name="x")
    h = of.lstm(UNITS, return_sequences=True)(x)
    y = of.keras.layers.Bidirectional(of.gru(5, return_sequences=True))(h)
    return Case(of.keras.Model(x, y), served())


def portable_masked(of: Layers) -> Case:
    """Ids, a zero is padding: a GRU whose unused cuDNN functions have lengths."""
    x = of.keras.Input((None,), dtype="int32", name="x")
    h = of.keras.layers.Embedding(WORDS, SIZE, mask_zero=True)(x)
    y = of.gru(5, return_sequences=True)(h)
    feeds = [{"x": Ids(lengths, count, WORDS)} for lengths, count in zip(LENGTHS, STEPS, strict=True)]
    signature = Signature(feeds, (), lengths=LENGTHS, per_step=("output_0",))
    return Case(of.keras.Model(x, y), {"serving_default": signature})


def portable_saved(of: Layers) -> Case:
    """A GRU, by `model.save`: the functions of every layer are in the library, in training and not."""
    x = of.keras.Input((None, SIZE), name="x")
    model = of.keras.Model(x, of.gru(3)(x))
    return Case(model, served(), lambda folder: model.save(str(folder), save_format="tf"))


def cudnn_layers(of: Layers) -> Case:
    """CuDNNLSTM, a pair of CuDNNGRUs and a CuDNNLSTM without its steps, exported for inference alone."""
    layers = of.keras.layers
    x = of.keras.Input((None, SIZE), name="x")
    h = of.lstm(UNITS, return_sequences=True)(x)
    pair = layers.Bidirectional(of.gru(5, return_sequences=True), name="pair")(h)
    y = layers.Dense(2, name="y")(of.lstm(3)(pair))
    recurrences = lstm(UNITS, SIZE), gru(5, UNITS), gru(5, UNITS, backwards=True), lstm(3, 10)
    return Case(of.keras.Model(x, {"pair": pair, "y": y}), served(*recurrences))


def cudnn_trained(of: Layers) -> Case:
    """CuDNNLSTM and CuDNNGRU, with an endpoint for inference and one for a step of gradient descent.

    `train` answers with the loss before its step, and reaches CudnnRNNBackpropV3. tf_keras 2.21 itself cannot
    `model.save` a CuDNN layer in this format ('CuDNNLSTM' object has no attribute 'unroll').
    """
    x = of.keras.Input((None, SIZE), name="x")
    h = of.lstm(UNITS, return_sequences=True)(x)
    model = of.keras.Model(x, of.keras.layers.Dense(2, name="y")(of.gru(5, return_sequences=True)(h)))
    recurrences = lstm(UNITS, SIZE), gru(5, UNITS)
    feeds = [{"x": Floats((2, 5, SIZE)), "target": Floats((2, 5, 2))}]
    signatures = {**served(*recurrences), "train": Signature(feeds, recurrences)}
    return Case(model, signatures, lambda folder: save_with_training(model, folder))


def save_with_training(model: Any, folder: Path) -> None:
    def train(x: Any, target: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - target))
        for variable, slope in zip(
            model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            variable.assign_sub(0.1 * slope)
        return {"loss": loss}

    x, target = (tf.TensorSpec((None, None, size), name=name) for name, size in (("x", SIZE), ("target", 2)))
    signatures = {
        "serving_default": tf.function(lambda x: {"y": model(x)}).get_concrete_function(x),
        "train": tf.function(train).get_concrete_function(x, target),
    }
    module = tf.Module()
    module.kept = list(model.weights)  # tracking the model itself would call for its own functions, see above
    tf.saved_model.save(module, str(folder), signatures=signatures)


CASES = (portable, portable_masked, portable_saved, cudnn_layers, cudnn_trained)
