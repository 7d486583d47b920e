"""Cases with lengths, and those that run from the last step to the first."""

from __future__ import annotations

from typing import Any

from .case import Case, Ids, Padded, Signature, gru, lstm
from .cases_layers import SIZE, UNITS, served

#: Two feeds' lengths: ragged, and with one row that is full.
LENGTHS, STEPS = ((5, 2, 3), (1, 4)), (6, 4)
WORDS = 9


def masked(keras: Any) -> Case:
    """Ids, a zero is padding: a pair of LSTMs, a GRU and a dense layer, each with its steps."""
    layers = keras.layers
    x = keras.Input((None,), dtype="int32", name="x")
    h = layers.Embedding(WORDS, SIZE, mask_zero=True)(x)
    pair = layers.Bidirectional(layers.LSTM(UNITS, return_sequences=True))(h)
    steps = layers.GRU(5, return_sequences=True)(pair)
    tags = layers.Dense(2)(steps)
    signature = Signature(
        [{"x": Ids(lengths, count, WORDS)} for lengths, count in zip(LENGTHS, STEPS, strict=True)],
        (
            lstm(UNITS, SIZE, masked=True),
            lstm(UNITS, SIZE, masked=True, backwards=True),
            gru(5, 2 * UNITS, masked=True),
        ),
        lengths=LENGTHS,
        per_step=("pair", "steps", "tags"),
        zero_past_length=("pair", "steps"),
    )
    return Case(keras.Model(x, {"pair": pair, "steps": steps, "tags": tags}), {"serving_default": signature})


def masked_last(keras: Any) -> Case:
    """Numbers, a step of zeros is padding: an LSTM's last valid output under a dense layer."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    last = layers.LSTM(UNITS)(layers.Masking()(x))
    y = layers.Dense(2)(last)
    signature = Signature(padded(), (lstm(UNITS, SIZE, masked=True),), lengths=LENGTHS)
    return Case(keras.Model(x, {"last": last, "y": y}), {"serving_default": signature})


def padded() -> list[Any]:
    return [{"x": Padded(lengths, count, SIZE)} for lengths, count in zip(LENGTHS, STEPS, strict=True)]


def go_backwards(keras: Any) -> Case:
    """An LSTM with its steps and a GRU with its last, both from the last step to the first."""
    x = keras.Input((None, SIZE), name="x")
    y = keras.layers.LSTM(UNITS, return_sequences=True, go_backwards=True)(x)
    last = keras.layers.GRU(5, go_backwards=True)(x)
    recurrences = (lstm(UNITS, SIZE, backwards=True), gru(5, SIZE, backwards=True))
    return Case(keras.Model(x, {"steps": y, "last": last}), served(*recurrences))


def go_backwards_masked(keras: Any) -> Case:
    """From the last valid step to the first: the output starts with the padding's steps, all zeros."""
    layers = keras.layers
    x = keras.Input((None, SIZE), name="x")
    h = layers.Masking()(x)
    y = layers.LSTM(UNITS, return_sequences=True, go_backwards=True)(h)
    gates = layers.GRU(5, return_sequences=True, go_backwards=True)(h)
    recurrences = (lstm(UNITS, SIZE, masked=True, backwards=True), gru(5, SIZE, masked=True, backwards=True))
    signature = Signature(padded(), recurrences, lengths=LENGTHS)
    return Case(keras.Model(x, {"steps": y, "gates": gates}), {"serving_default": signature})


MAIN = (masked, masked_last, go_backwards)
CASES = (*MAIN, go_backwards_masked)
