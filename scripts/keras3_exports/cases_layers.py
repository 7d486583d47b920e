"""The plain cases: LSTM and GRU alone, in pairs, in stacks and with states that come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from .case import Case, Feed, Floats, Signature, gru, lstm

UNITS, SIZE = 4, 3


def pairs(name: str, size: int = SIZE) -> list[Feed]:
    """Two feeds of different batch and time."""
    return [{name: Floats((2, 5, size))}, {name: Floats((3, 2, size))}]


def served(*recurrences: Any, feeds: list[Feed] | None = None) -> dict[str, Signature]:
    """The one signature of `model.export`, with one input `x` unless other feeds are given."""
    return {"serving_default": Signature(feeds or pairs("x"), recurrences)}


def lstm_case(keras: Any) -> Case:
    """An LSTM that returns its sequences."""
    x = keras.Input((None, SIZE), name="x")
    y = keras.layers.LSTM(UNITS, return_sequences=True)(x)
    return Case(keras.Model(x, y), served(lstm(UNITS, SIZE)))


def gru_case(keras: Any) -> Case:
    """A GRU that returns its sequences."""
    x = keras.Input((None, SIZE), name="x")
    y = keras.layers.GRU(UNITS, return_sequences=True)(x)
    return Case(keras.Model(x, y), served(gru(UNITS, SIZE)))


def bidirectional(keras: Any) -> Case:
    """A pair of LSTMs, concatenated, then a pair of GRUs whose outputs are multiplied."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    h = layers.Bidirectional(layers.LSTM(UNITS, return_sequences=True), name="pair")(x)
    y = layers.Bidirectional(layers.GRU(3, return_sequences=True), merge_mode="mul", name="mul")(h)
    return Case(
        keras.Model(x, {"pair": h, "product": y}),
        served(
            lstm(UNITS, SIZE),
            lstm(UNITS, SIZE, backwards=True),
            gru(3, 2 * UNITS),
            gru(3, 2 * UNITS, backwards=True),
        ),
    )


def stacked(keras: Any) -> Case:
    """Three layers: LSTM, GRU, LSTM, the last without its sequences."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    h = layers.LSTM(UNITS, return_sequences=True)(x)
    h = layers.GRU(5, return_sequences=True)(h)
    y = layers.LSTM(2)(h)
    return Case(keras.Model(x, y), served(lstm(UNITS, SIZE), gru(5, UNITS), lstm(2, 5)))


def stateful(keras: Any) -> Case:
    """An LSTM that carries its states from call to call; its endpoint is for a batch of two alone.

    `model.export` of Keras 3.12 asks for any batch instead, and fails.
    """
    x = keras.Input((None, SIZE), batch_size=2, name="x")
    y = keras.layers.LSTM(UNITS, return_sequences=True, stateful=True)(x)
    model = keras.Model(x, y)

    def save(folder: Path) -> None:
        export = keras.export.ExportArchive()
        export.track(model)
        export.add_endpoint("serve", model.__call__, [tf.TensorSpec((2, None, SIZE), name="x")])
        export.write_out(str(folder))

    feeds: list[Feed] = [{"x": Floats((2, steps, SIZE))} for steps in (4, 1, 3)]
    return Case(model, served(lstm(UNITS, SIZE), feeds=feeds), save, stateful=True)


def stateful_gru(keras: Any) -> Case:
    """A GRU that carries its state, under a dense layer."""
    x = keras.Input((None, SIZE), batch_size=2, name="x")
    h = keras.layers.GRU(UNITS, return_sequences=True, stateful=True)(x)
    y = keras.layers.Dense(2)(h)
    feeds: list[Feed] = [{"x": Floats((2, steps, SIZE))} for steps in (2, 5, 1)]
    return Case(keras.Model(x, y), served(gru(UNITS, SIZE), feeds=feeds), stateful=True)


def return_state(keras: Any) -> Case:
    """An LSTM whose sequences and last states are outputs, and one with its last output and a state."""
    x = keras.Input((None, SIZE), name="x")
    y, h, c = keras.layers.LSTM(UNITS, return_sequences=True, return_state=True)(x)
    last, _, memory = keras.layers.LSTM(5, return_state=True)(y)
    outputs = {"steps": y, "h": h, "c": c, "last": last, "memory": memory}
    return Case(keras.Model(x, outputs), served(lstm(UNITS, SIZE), lstm(5, UNITS)))


def dropout(keras: Any) -> Case:
    """Layers with dropout of their inputs, whose seeds count calls at inference too; no output reads them."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    y = layers.LSTM(UNITS, return_sequences=True, dropout=0.2)(x)
    y = layers.Dropout(0.5)(layers.GRU(5, dropout=0.3)(y))
    return Case(keras.Model(x, y), served(lstm(UNITS, SIZE), gru(5, UNITS)))


def return_state_gru(keras: Any) -> Case:
    """Two GRUs with their states. Up to Keras 3.8 a machine with a GPU cannot export one (GRU.call fails)."""
    x = keras.Input((None, SIZE), name="x")
    y, h = keras.layers.GRU(UNITS, return_sequences=True, return_state=True)(x)
    last, memory = keras.layers.GRU(5, return_state=True)(y)
    outputs = {"steps": y, "h": h, "last": last, "memory": memory}
    return Case(keras.Model(x, outputs), served(gru(UNITS, SIZE), gru(5, UNITS)))


def initial_state(keras: Any) -> Case:
    """Encoder and decoder: the LSTM's states go from one to the other, the GRU's is an input of the model."""
    layers = keras.layers
    source = keras.Input((None, SIZE), name="source")
    target = keras.Input((None, 2), name="target")
    memory = keras.Input((5,), name="memory")
    _, h, c = layers.LSTM(UNITS, return_state=True)(source)
    decoded = layers.LSTM(UNITS, return_sequences=True)(target, initial_state=[h, c])
    y = layers.GRU(5, return_sequences=True)(decoded, initial_state=memory)
    feeds: list[Feed] = [
        {
            "source": Floats((batch, steps, SIZE)),
            "target": Floats((batch, more, 2)),
            "memory": Floats((batch, 5)),
        }
        for batch, steps, more in ((2, 5, 3), (3, 2, 4))
    ]
    model = keras.Model([source, target, memory], {"decoded": decoded, "y": y})
    return Case(model, served(lstm(UNITS, SIZE), lstm(UNITS, 2), gru(5, UNITS), feeds=feeds))


def archive(keras: Any) -> Case:
    """A .keras file of plain layers as a machine with a GPU writes it, and the export of the same model."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    h = layers.LSTM(UNITS, return_sequences=True)(x)
    y = layers.GRU(5, return_sequences=True)(h)
    return Case(keras.Model(x, y), served(lstm(UNITS, SIZE), gru(5, UNITS)), archive=True)


lstm_case.__name__, gru_case.__name__ = "lstm", "gru"
#: What every writer makes.
MAIN = (lstm_case, gru_case, bidirectional, stacked, stateful, return_state, archive)
#: What the oldest writer makes too.
OLDEST = (stateful_gru, initial_state)
CASES = (*MAIN, *OLDEST, return_state_gru, dropout)
