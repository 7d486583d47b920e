"""The other number types that cuDNN's op has."""

from __future__ import annotations

from typing import Any

from .case import Case, Feed, Floats, gru, lstm
from .cases_layers import SIZE, UNITS, served


def typed(keras: Any, policy: str, dtype: str) -> Case:
    """An LSTM under a GRU, both with their steps."""
    keras.config.set_dtype_policy(policy)
    x = keras.Input((None, SIZE), dtype=dtype, name="x")
    h = keras.layers.LSTM(UNITS, return_sequences=True)(x)
    y = keras.layers.GRU(5, return_sequences=True)(h)
    feeds: list[Feed] = [{"x": Floats((2, 5, SIZE), dtype)}, {"x": Floats((3, 2, SIZE), dtype)}]
    return Case(keras.Model(x, {"lstm": h, "gru": y}), served(lstm(UNITS, SIZE), gru(5, UNITS), feeds=feeds))


def float64(keras: Any) -> Case:
    """All in double precision."""
    return typed(keras, "float64", "float64")


def float16(keras: Any) -> Case:
    """Weights and arithmetic in half precision."""
    return typed(keras, "float16", "float16")


def mixed_float16(keras: Any) -> Case:
    """Weights in single, arithmetic in half precision."""
    return typed(keras, "mixed_float16", "float32")


def bfloat16(keras: Any) -> Case:
    """Weights in single precision, arithmetic in bfloat16; the answers are stored as float32."""
    return typed(keras, "mixed_bfloat16", "float32")


CASES = (float64, float16, mixed_float16, bfloat16)
