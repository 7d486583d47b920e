"""Models of Keras layers that hide parts, saved as HDF5 by tf_keras with cuDNN layers.

Each takes `x [batch, steps, 4]` unless its row in `sources.py` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tf_keras
from tf_keras.src.layers.rnn.cudnn_gru import CuDNNGRU
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

Layer = tf_keras.layers
UNITS = 5


def take_x(steps: int | None = None) -> Any:
    return Layer.Input([steps, 4], name="x")


def dense(width: int, name: str, **options: Any) -> Any:
    return Layer.Dense(width, name=name, **options)


def above(x: Any, threshold: float, name: str) -> Any:
    """What exceeds a threshold, zero elsewhere."""
    return Layer.ReLU(threshold=threshold, name=name)(x)


def relu_beside_visible() -> Any:
    """A hidden head that values above 50 multiply, beside a visible one."""
    x = take_x()
    y = CuDNNGRU(UNITS, return_sequences=True, name="rnn")(x)
    gate = dense(3, "gate", use_bias=False)(above(x, 50.0, "above"))
    hidden = Layer.Multiply(name="gated")([dense(3, "hidden")(y), gate])
    return tf_keras.Model(x, Layer.Add(name="answer")([dense(3, "visible")(y), hidden]))


def two_heads() -> Any:
    """Two outputs, of which the second is zero for ordinary inputs."""
    x = take_x()
    y = CuDNNLSTM(UNITS, return_sequences=True, name="rnn")(x)
    gate = dense(2, "gate", use_bias=False)(above(x, 9.0, "above"))
    hidden = Layer.Multiply(name="second")([dense(2, "hidden", activation="tanh")(y), gate])
    return tf_keras.Model(x, [dense(3, "first")(y), hidden])


def nested_model() -> Any:
    """The gate and the hidden head stand in a model of their own."""
    part, y = Layer.Input([None, 4], name="part"), Layer.Input([None, UNITS], name="y")
    gate = dense(3, "gate", use_bias=False)(above(part, 15.0, "above"))
    inner = tf_keras.Model(
        [part, y], Layer.Multiply(name="gated")([dense(3, "hidden")(y), gate]), name="inner"
    )
    x = take_x()
    first = CuDNNGRU(UNITS, return_sequences=True, name="rnn")(x)
    return tf_keras.Model(x, Layer.Subtract(name="answer")([dense(3, "visible")(first), inner([x, first])]))


def distributed() -> Any:
    """A wrapper around layers of which the last sees only what exceeds 12."""
    x = take_x()
    parts = [Layer.ReLU(threshold=12.0, name="above"), dense(3, "hidden", use_bias=False)]
    hidden = Layer.TimeDistributed(tf_keras.Sequential(parts, name="part"), name="parts")(x)
    y = Layer.Bidirectional(CuDNNLSTM(UNITS, return_sequences=True), merge_mode="sum", name="both")(x)
    return tf_keras.Model(x, Layer.Add(name="answer")([dense(3, "visible")(y), hidden]))


def masked_steps() -> Any:
    """A recurrence with a mask: steps of 7 alone are skipped."""
    x = take_x()
    masked = Layer.Masking(7.0, name="mask")(x)
    y = Layer.GRU(UNITS, return_sequences=True, name="masked")(masked)
    visible = CuDNNLSTM(UNITS, return_sequences=True, name="rnn")(x)
    return tf_keras.Model(x, dense(3, "answer")(Layer.Concatenate(name="both")([y, visible])))


def embedding_rows() -> Any:
    """A table of which ordinary ids ask for a few rows."""
    ids = Layer.Input([None], dtype="int32", name="ids")
    y = CuDNNGRU(UNITS, return_sequences=True, name="rnn")(Layer.Embedding(60, 4, name="table")(ids))
    return tf_keras.Model(ids, dense(3, "answer", activation="tanh")(y))


def largest_step() -> Any:
    """The largest value of all steps opens a gate on the last state."""
    x = take_x()
    y = CuDNNLSTM(UNITS, name="rnn")(x)
    largest = above(Layer.GlobalMaxPooling1D(name="largest")(x), 30.0, "above")
    hidden = Layer.Multiply(name="gated")([dense(3, "hidden")(y), dense(3, "gate", use_bias=False)(largest)])
    return tf_keras.Model(x, Layer.Add(name="answer")([dense(3, "visible", activation="sigmoid")(y), hidden]))


def tiny_normalisation() -> Any:
    """A batch normalisation whose scale is 1e-6, behind a dense layer and a dropout."""
    x = take_x()
    y = CuDNNGRU(UNITS, return_sequences=True, name="rnn")(x)
    normed = Layer.BatchNormalization(epsilon=2e-3, name="tiny")(dense(3, "hidden")(y))
    return tf_keras.Model(x, Layer.Dropout(0.5, name="answer")(normed))


def larger_of_two() -> Any:
    """The larger of two heads, of which one wins only where inputs exceed 20."""
    x = take_x()
    y = Layer.Bidirectional(CuDNNGRU(UNITS, return_sequences=True), merge_mode="concat", name="both")(x)
    low = dense(3, "low", bias_initializer="ones")(above(x, 20.0, "above"))
    high = Layer.LeakyReLU(0.2, name="leaky")(dense(3, "high")(y))
    return tf_keras.Model(x, Layer.Maximum(name="answer")([low, high]))


def shared_dense() -> Any:
    """One dense layer at two places, a second layer at the hidden one."""
    x = take_x()
    shared = dense(4, "shared", activation="tanh")
    y = CuDNNLSTM(UNITS, return_sequences=True, name="rnn")(shared(x))
    hidden = dense(3, "hidden", use_bias=False)(shared(above(x, 25.0, "above")))
    offset = dense(3, "offset", use_bias=False)(above(x, 25.0, "again"))
    gated = Layer.Multiply(name="gated")([hidden, offset])
    return tf_keras.Model(x, Layer.Average(name="answer")([dense(3, "visible")(y), gated]))


def learned_slopes() -> Any:
    """Slopes of what is negative, which are values between 9 and 18 alone."""
    x = take_x(6)
    y = CuDNNGRU(UNITS, return_sequences=True, name="rnn")(x)
    rare = Layer.Subtract(name="rare")([above(x, 18.0, "above"), above(x, 9.0, "below")])
    slopes = Layer.PReLU(shared_axes=[1], name="slopes")(rare)
    hidden = dense(3, "hidden", use_bias=False)(slopes)
    return tf_keras.Model(x, Layer.Add(name="answer")([dense(3, "visible", activation="elu")(y), hidden]))


def convolved() -> Any:
    """A convolution over padded steps of what exceeds 14, cropped again."""
    x = take_x()
    y = CuDNNLSTM(UNITS, return_sequences=True, name="rnn")(x)
    padded = Layer.ZeroPadding1D((2, 1), name="pad")(above(x, 14.0, "above"))
    found = Layer.Conv1D(3, 2, name="hidden", use_bias=False)(padded)
    cropped = Layer.Cropping1D((1, 1), name="crop")(found)
    return tf_keras.Model(x, Layer.Add(name="answer")([dense(3, "visible")(y), cropped]))


def write_hdf5(build: Callable[[], Any], folder: Path, *, seed: int) -> Path:
    """A Keras HDF5 file of a model with random distinct weights."""
    tf_keras.backend.clear_session()
    model, rng = build(), np.random.default_rng(seed)
    for weight in model.weights:
        low, high = (0.5, 1.5) if "variance" in weight.name else (-0.5, 0.5)
        scale = 1e-6 if weight.name == "tiny/gamma:0" else 1.0
        weight.assign(scale * rng.uniform(low, high, weight.shape))
    path = folder / "source.h5"
    model.save(path, save_format="h5")
    return path
