"""Mutations of TensorFlow Lite files: numbers of tensors, ops, buffers and subgraphs, lists of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import octets
from tensorflow.lite.tools import flatbuffer_utils

_MOST = 3


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A file whose tables are changed and written anew, or whose bytes are."""
    if rng.random() < 0.4:
        return octets.mutated(rng, data)
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(data))
    places = [*_places(model)]
    for _ in range(rng.randint(1, _MOST)):
        _change(rng, *rng.choice(places))
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _places(model: Any) -> Iterator[tuple[Any, str]]:
    """Every table with one of its fields; contents of buffers are left to mutations of bytes."""
    todo = [model]
    while todo:
        table = todo.pop()
        for name, value in vars(table).items():
            yield table, name
            for one in value if isinstance(value, list) else [value]:
                if hasattr(one, "__dict__"):
                    todo.append(one)


def _change(rng: random.Random, table: Any, name: str) -> None:
    value = getattr(table, name)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, bool):
        made: Any = not value
    elif isinstance(value, int):
        made = rng.choice((0, 1, -1, value + 1, value - 1, 7, 126, 127))
    elif isinstance(value, list) and value:
        made = _list(rng, value)
    elif isinstance(value, bytes | str):
        made = rng.choice(("", "x", "a" * 3000, None))
    else:
        made = None
    setattr(table, name, made)


def _list(rng: random.Random, value: list[Any]) -> list[Any]:
    place, kind = rng.randrange(len(value)), rng.randrange(4)
    if kind == 0:
        return value[:place]
    if kind == 1:
        return [*value[:place], value[place], *value[place:]]
    if kind == 2:
        return [*value[:place], value[rng.randrange(len(value))], *value[place + 1 :]]
    number = rng.choice((-1, 0, 1, len(value), 2**31 - 1, -(2**31)))
    is_number = isinstance(value[place], int)
    return [*value[:place], *([number] if is_number else []), *value[place + 1 :]]
