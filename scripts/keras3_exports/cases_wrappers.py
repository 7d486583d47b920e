"""Recurrences inside other things: loops, models in models, tables, and several endpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .case import Case, Feed, Floats, Signature, Words, gru, lstm
from .cases_layers import SIZE, UNITS, pairs, served


def time_distributed(keras: Any) -> Case:
    """An LSTM for each frame: Keras makes a loop, and the node stands in the loop's body.

    It stands beside the loop once more, where nothing but the order of execution needs it. The loop runs as
    often as there are rows, not frames (keras 3.15.1, layers/rnn/time_distributed.py takes `input_shape[0]`
    before it swaps the axes), so here there is a frame for each row.
    """
    x = keras.Input((None, 4, SIZE), name="x")
    y = keras.layers.TimeDistributed(keras.layers.LSTM(UNITS))(x)
    feeds: list[Feed] = [{"x": Floats((2, 2, 4, SIZE))}, {"x": Floats((3, 3, 4, SIZE))}]
    recurrences = lstm(UNITS, SIZE), lstm(UNITS, SIZE, needed=False)
    return Case(keras.Model(x, y), served(*recurrences, feeds=feeds))


def nested(keras: Any) -> Case:
    """A functional model inside a sequential one."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="inner")
    inner = keras.Model(x, layers.GRU(UNITS, return_sequences=True)(x), name="encoder")
    outer = [keras.Input((None, SIZE), name="x"), inner, layers.LSTM(5, return_sequences=True)]
    return Case(keras.Sequential(outer), served(gru(UNITS, SIZE), lstm(5, UNITS)))


def conv_beside(keras: Any) -> Case:
    """A convolution, a dense layer, an LSTM that cuDNN runs and one with relu that it does not."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    h = layers.Conv1D(5, 3, padding="same", activation="relu")(x)
    fused = layers.LSTM(UNITS, return_sequences=True, recurrent_initializer="glorot_uniform")(h)
    between = layers.Dense(5, activation="tanh")(fused)
    plain = layers.LSTM(4, activation="relu", return_sequences=True)(between)
    return Case(keras.Model(x, {"fused": fused, "plain": plain}), served(lstm(UNITS, 5)))


def channels_first(keras: Any) -> Case:
    """Lines of text: convolutions and pools channels first, then two pairs of LSTMs on columns.

    Make it with TF_ENABLE_ONEDNN_OPTS=1 on a processor that has such kernels.
    """
    layers, last = keras.layers, {"data_format": "channels_first"}
    x = keras.Input((1, 8, 21), name="x")
    h = layers.Conv2D(6, (3, 2), padding="same", **last)(x)
    h = layers.ReLU()(layers.BatchNormalization(axis=1)(h))
    h = layers.MaxPooling2D((2, 2), **last)(h)
    h = layers.Conv2D(5, 3, (2, 1), activation="relu", **last)(
        layers.DepthwiseConv2D(3, padding="same", **last)(h)
    )
    h = layers.Reshape((8, 5))(layers.Permute((3, 1, 2))(h))
    h = layers.Bidirectional(layers.LSTM(UNITS, return_sequences=True))(h)
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(h)
    feeds: list[Feed] = [{"x": Floats((2, 1, 8, 21))}, {"x": Floats((3, 1, 8, 21))}]
    sizes = ((UNITS, 5), (3, 2 * UNITS))
    recurrences = [lstm(*size, backwards=backwards) for size in sizes for backwards in (False, True)]
    return Case(keras.Model(x, y), served(*recurrences, feeds=feeds))


def with_vocabulary(keras: Any) -> Case:
    """Words from a file of the SavedModel's assets, a table, and an LSTM."""
    layers = keras.layers
    Path("words.txt").write_text("cat\ndog\nsat\nran\n")  # in the run's own empty folder
    x = keras.Input((None,), dtype="string", name="x")
    ids = layers.StringLookup(vocabulary="words.txt")(x)
    y = layers.LSTM(UNITS, return_sequences=True)(layers.Embedding(5, SIZE)(ids))
    feeds: list[Feed] = [
        {"x": Words((("the", "cat", "sat"), ("dog", "ran", "dog")))},
        {"x": Words((("ran", "cat"), ("sat", "bird"), ("dog", "cat")))},
    ]
    return Case(keras.Model(x, y), served(lstm(UNITS, SIZE), feeds=feeds))


def signatures(keras: Any) -> Case:
    """Four endpoints: the whole model, its encoder, the encoder for one batch and time, and no recurrence."""
    import tensorflow as tf

    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    encoded = layers.LSTM(UNITS, return_sequences=True)(x)
    scores = layers.Dense(2)
    y = scores(layers.GRU(5, return_sequences=True)(encoded))
    model, encoder = keras.Model(x, y), keras.Model(x, encoded)
    head = keras.Sequential([keras.Input((None, 5), name="features"), scores])

    def save(folder: Path) -> None:
        export = keras.export.ExportArchive()
        export.track(model)
        any_x = tf.TensorSpec((None, None, SIZE), tf.float32, name="x")
        export.add_endpoint("score", model.call, [any_x])
        export.add_endpoint("encode", encoder.call, [any_x])
        export.add_endpoint("encode_one", encoder.call, [tf.TensorSpec((1, 4, SIZE), tf.float32, name="x")])
        export.add_endpoint("head", head.call, [tf.TensorSpec((None, None, 5), tf.float32, name="features")])
        export.write_out(str(folder))

    encodes = (lstm(UNITS, SIZE),)
    described = {
        "score": Signature(pairs("x"), (*encodes, gru(5, UNITS))),
        "encode": Signature(pairs("x"), encodes),
        "encode_one": Signature([{"x": Floats((1, 4, SIZE))}], encodes),
        "head": Signature(pairs("features", 5), ()),
    }
    return Case(model, described, save)


CASES = (time_distributed, nested, conv_beside, channels_first, with_vocabulary, signatures)
