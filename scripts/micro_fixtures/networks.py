"""The networks that Keras trains, each written once for Keras 3 and for tf_keras.

`layers` is `PlainLayers` here, and a writer of keras_fixtures/writer.py in keras_files.py: then `lstm` and
`gru` give CuDNN layers, or the plain layers of tf_keras. A bias begins with random numbers, so that the two
biases of a GRU differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from support import micro_data

BATCH, RATE = 64, 0.005


class PlainLayers:
    """Keras 3, as the networks ask it for layers."""

    layers, Sequential, Model, Input = keras.layers, keras.Sequential, keras.Model, keras.Input

    @staticmethod
    def lstm(units: int, **options: Any) -> Any:
        return keras.layers.LSTM(units, bias_initializer=begin_bias(), **options)

    @staticmethod
    def gru(units: int, **options: Any) -> Any:
        return keras.layers.GRU(units, reset_after=True, bias_initializer=begin_bias(), **options)


def begin_bias() -> Any:
    return keras.initializers.RandomNormal(stddev=0.3, seed=5)


def build_keyword_lstm(layers: Any) -> Any:
    """An LSTM of 24 units over 25 steps of 10 coefficients, and a softmax of four keywords."""
    inputs = [layers.Input((25, 10), name="features"), layers.lstm(24, name="memory")]
    return layers.Sequential([*inputs, dense(layers, 4, "keyword")])


def build_keyword_stack(layers: Any) -> Any:
    """A convolution, LSTMs of 16 and of 20 units, and a softmax of four keywords."""
    return layers.Sequential(
        [
            layers.Input((25, 10), name="features"),
            layers.layers.Conv1D(12, 3, activation="relu", name="front"),
            layers.lstm(16, return_sequences=True, name="lower"),
            layers.lstm(20, name="upper"),
            dense(layers, 4, "keyword"),
        ]
    )


def build_motion_bidirectional(layers: Any) -> Any:
    """An LSTM of 16 units in both directions over 40 steps of three axes, and a softmax of five motions."""
    both = layers.layers.Bidirectional(layers.lstm(16, name="memory"), name="both")
    return layers.Sequential([layers.Input((40, 3), name="axes"), both, dense(layers, 5, "motion")])


def build_motion_gru(layers: Any) -> Any:
    """A GRU of 18 units over any number of steps of three axes, and a softmax of five motions."""
    inputs = [layers.Input((None, 3), name="axes"), layers.gru(18, name="memory")]
    return layers.Sequential([*inputs, dense(layers, 5, "motion")])


def build_tokens_lstm(layers: Any) -> Any:
    """An embedding of 30 tokens, an LSTM of 20 units over 12 steps, and a sigmoid."""
    return layers.Sequential(
        [
            layers.Input((12,), dtype="int32", name="tokens"),
            layers.layers.Embedding(30, 8, name="embedding"),
            layers.lstm(20, name="memory"),
            layers.layers.Dense(1, activation="sigmoid", name="good"),
        ]
    )


def build_motion_stream(layers: Any, *, steps: int = 1) -> Any:
    """An LSTM of 16 units for one step of three axes, from states that are fed to states that it gives.

    It was trained on 40 steps from zeros. The softmax says after each step which of five motions it is.
    """
    axes = layers.Input((steps, 3), name="axes")
    states = [layers.Input((16,), name=name) for name in ("h", "c")]
    y, h, c = layers.lstm(16, return_state=True, name="memory")(axes, initial_state=states)
    motion = dense(layers, 5, "motion")(y)
    named = [
        layers.layers.Activation("linear", name=f"next_{name}")(state)
        for name, state in zip("hc", (h, c), strict=True)
    ]
    return layers.Model([axes, *states], [motion, *named])


def dense(layers: Any, classes: int, name: str) -> Any:
    return layers.layers.Dense(classes, activation="softmax", name=name)


class Network(NamedTuple):
    """How a network is built, on which rows it is trained, and for how many rounds."""

    build: Callable[..., Any]
    make: micro_data.Maker
    epochs: int


NETWORKS = {
    "keyword_lstm": Network(build_keyword_lstm, micro_data.make_keywords, 8),
    "keyword_stack": Network(build_keyword_stack, micro_data.make_keywords, 8),
    "motion_bidirectional": Network(build_motion_bidirectional, micro_data.make_motions, 15),
    "motion_gru": Network(build_motion_gru, micro_data.make_motions, 20),
    "tokens_lstm": Network(build_tokens_lstm, micro_data.make_tokens, 15),
    "motion_stream": Network(build_motion_stream, micro_data.make_motions, 20),
}


def train(name: str) -> Any:
    """The trained model of Keras 3. The same machine trains the same numbers each time."""
    network = NETWORKS[name]
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(7)
    rows = network.make(micro_data.TRAINING_ROWS, micro_data.TRAINING_SEED)
    if network.build is build_motion_stream:
        model, inputs = train_on_sequences(rows)
    else:
        model, inputs = network.build(PlainLayers), rows.inputs
    binary = model.output_shape[-1] == 1
    loss = "binary_crossentropy" if binary else "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(RATE), loss)
    model.fit(inputs, rows.labels, batch_size=BATCH, epochs=network.epochs, verbose=0)
    if network.build is build_motion_stream:
        stream = build_motion_stream(PlainLayers)
        stream.set_weights(model.get_weights())
        return stream
    return model


def train_on_sequences(rows: micro_data.Examples) -> tuple[Any, list[np.ndarray]]:
    """The stream's layers over whole sequences, and what they take: zeros as states."""
    whole = build_motion_stream(PlainLayers, steps=micro_data.MOTION_STEPS)
    zeros = [np.zeros([len(rows.labels), 16], np.float32)] * 2
    return keras.Model(whole.inputs, whole.outputs[0]), [rows.inputs, *zeros]
