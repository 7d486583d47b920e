"""Infinite constants of a TensorFlow Lite file.

Its converter makes the largest finite floats of them, which become infinities again. A file in which both
stand cannot be told apart, and is refused. IsInf compares with an infinity.
Seen in TensorFlow 2.21.0: a Const of -inf becomes -3.4028235e38.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.index import AnyGraph, all_nodes
from cudnn_convert.model import Array

_LARGEST: Final = np.finfo(np.float32).max
_FLOAT32: Final = 0  # schema.fbs TensorType


def restore_infinities(model: Any, graph: AnyGraph) -> None:
    """Make infinities of the largest floats of a file, in place, where `graph` has infinities.

    Raises UnsupportedModelError where the graph has both.
    """
    constants = [*_constants(graph)]
    has_infinities = any(np.isinf(value).any() for value in constants)
    if not has_infinities and not any(node.op == "IsInf" for node in all_nodes(graph)):
        return
    if any((np.abs(value) == _LARGEST).any() for value in constants):
        expected = "infinities or the largest float among constants, which the converter makes equal"
        raise UnsupportedModelError("tflite", [f"expected {expected}, found both; {_ELSE}"])
    for tensor in (tensor for part in model.subgraphs for tensor in part.tensors):
        buffer = model.buffers[tensor.buffer]
        if tensor.type != _FLOAT32 or buffer.data is None or not len(buffer.data):
            continue
        value = np.frombuffer(bytes(bytearray(buffer.data)), "<f4")
        if (is_largest := np.abs(value) == _LARGEST).any():
            buffer.data = np.frombuffer(
                np.where(is_largest, np.copysign(np.float32(np.inf), value), value).tobytes(), np.uint8
            )


_ELSE: Final = "choose --format savedmodel or frozen"


def _constants(graph: AnyGraph) -> Iterator[Array]:
    for node in all_nodes(graph):
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            yield tf.make_ndarray(node.attr["value"].tensor).astype(np.float32)
