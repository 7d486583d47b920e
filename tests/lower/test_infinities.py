"""Infinities of a TensorFlow Lite file, which its converter makes the largest floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.tflite_tables import table

from cudnn_convert.artifacts.tflite import schema
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.infinities import restore_infinities

LARGEST = np.finfo(np.float32).max


def constants(*values: Any) -> Any:
    with tf.Graph().as_default() as graph:
        for value in values:
            tf.constant(value)
    return graph.as_graph_def()


def file_of(value: np.ndarray) -> Any:
    """A file of one tensor; its first buffer has no values, as that of every file."""
    model = schema.ModelT()
    model.buffers = [schema.BufferT(), table(schema.BufferT, data=np.frombuffer(value.tobytes(), np.uint8))]
    kind = schema.TensorType.FLOAT32 if value.dtype == np.float32 else schema.TensorType.INT32
    model.subgraphs = [table(schema.SubGraphT, tensors=[table(schema.TensorT, type=kind, buffer=1)])]
    return model


def read(model: Any, dtype: Any = np.float32) -> list[Any]:
    return np.frombuffer(bytes(bytearray(model.buffers[1].data)), dtype).tolist()


def test_the_largest_floats_become_infinities_again() -> None:
    model = file_of(np.array([LARGEST, -LARGEST, 1.5], np.float32))
    restore_infinities(model, constants([np.inf, -np.inf, 1.5]))
    assert read(model) == [np.inf, -np.inf, 1.5]


def test_a_graph_without_infinities_keeps_its_largest_floats() -> None:
    model = file_of(np.array([LARGEST, 1], np.float32))
    restore_infinities(model, constants([LARGEST, 1.0]))
    assert read(model) == [LARGEST, 1]


def test_integers_of_the_same_bits_stay() -> None:
    bits = np.array([LARGEST], np.float32).view(np.int32)
    model = file_of(bits)
    restore_infinities(model, constants(np.inf))
    assert read(model, np.int32) == bits.tolist()


def test_both_in_one_graph_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="infinities or the largest float among constants"):
        restore_infinities(file_of(np.array([LARGEST], np.float32)), constants(np.inf, LARGEST))
