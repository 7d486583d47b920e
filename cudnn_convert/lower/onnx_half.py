"""Weights that are stored in half precision and computed in single: half the file, the same nodes.

A Cast stands between a constant and what reads it, which runtimes fold when they load the model. Biases stay
as they are: they are few, and what they add to is large.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx_finish import Finished
from cudnn_convert.lower.onnx_order import all_nodes, free, names
from cudnn_convert.lower.onnx_stack import FUSED
from cudnn_convert.model import Array, Parts

#: The input of a fused node that holds the biases, of two axes like a matrix: ONNX has directions first.
_BIASES: Final = 3
#: Fewer elements than this are not worth a node.
_FEW: Final = 256


def halved(found: Finished) -> Finished:
    """The model with each float matrix of its main graph as half, and a Cast after it.

    Raises UnsupportedModelError where a weight is too large for half, at once or when it is read.
    """
    made = onnx.ModelProto()
    made.CopyFrom(found.model)
    graph, weights = made.graph, dict(found.weights)
    biases = {
        node.input[_BIASES]
        for node in all_nodes(graph)
        if node.op_type in FUSED and len(node.input) > _BIASES
    }
    taken = names(graph)
    casts = []
    for tensor in graph.initializer:
        name = tensor.name
        if name in biases or not _is_matrix(tensor):
            continue
        stored = free(f"{name}_half", taken)
        casts.append(helper.make_node("Cast", [stored], [name], to=onnx.TensorProto.FLOAT))
        _store(tensor, stored, weights)
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return Finished(made, weights, found.pieces)


def _is_matrix(tensor: Any) -> bool:
    is_float = tensor.data_type == onnx.TensorProto.FLOAT
    return is_float and len(tensor.dims) > 1 and math.prod(tensor.dims) >= _FEW


def _store(tensor: Any, name: str, weights: dict[str, Parts]) -> None:
    """Makes a constant one of halves, under a new name; its values may lie in `weights`."""
    parts = weights.pop(tensor.name, None)
    if parts is None:
        values = _half(numpy_helper.to_array(tensor), tensor.name)
        tensor.CopyFrom(numpy_helper.from_array(values, name))
    else:
        weights[name] = partial(_halves, parts, tensor.name)
        tensor.name, tensor.data_type = name, onnx.TensorProto.FLOAT16


def _halves(parts: Parts, name: str) -> Iterator[Array]:
    return (_half(part, name) for part in parts())


def _half(values: Array, name: str) -> Array:
    with np.errstate(over="ignore"):
        found = values.astype("<f2")
    lost = np.isinf(found) & np.isfinite(values)
    if lost.any():
        what = f"expected numbers up to 65504, as half holds them, found {values[lost][0]:g}"
        raise UnsupportedModelError("onnx", [f"{name}: {what}; leave out --weights-dtype"])
    return found
