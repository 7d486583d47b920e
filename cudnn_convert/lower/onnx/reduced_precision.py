"""Stores ONNX weights in float16, or multiplies LSTMs in int8.

float16 (`to_float16`): half the file size, the same nodes, computed in single precision. A Cast follows each
constant, which runtimes fold when they load the model. Biases stay float: they are few, and are added to
large sums.

int8 (`to_int8`): ONNX Runtime's op `DynamicQuantizeLSTM` replaces each LSTM node. Weights are stored as int8
with a scale for each row of W and R, or, where rows are short, for a matrix; the runtime rounds inputs and
states to uint8 at each call, by their range in the whole batch. Biases and peepholes stay float.

Sources: onnxruntime v1.31.1 docs/ContribOperators.md and
contrib_ops/cpu/quantization/dynamic_quantize_lstm.cc (W `[directions, inputs, 4*units]`, R `[directions,
units, 4*units]`, scales and zero points `[directions, 4*units]` or `[directions]`). ONNX Runtime's own
quantizer (v1.31.1 quantization/operators/lstm.py) is not used: for weights that two nodes read it writes a
wrong model or one that does not load, and it needs all values in one proto.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx import finish, fused_nodes
from cudnn_convert.lower.onnx.walk import all_nodes, free, graphs, names, subgraphs
from cudnn_convert.model import Array, Parts

#: The bias input of a fused node; it has two axes as a matrix has, since directions come first.
_BIASES: Final = 3
#: Constants with fewer elements stay float: a Cast node costs more.
_FEW: Final = 256


def to_float16(finished: finish.Finished) -> finish.Finished:
    """Store each float matrix of the main graph as float16, followed by a Cast.

    Raises UnsupportedModelError where a weight is too large for float16, at once or when it is read.
    """
    model = onnx.ModelProto()
    model.CopyFrom(finished.model)
    graph, weights = model.graph, dict(finished.weights)
    biases = {
        node.input[_BIASES]
        for node in all_nodes(graph)
        if node.op_type in fused_nodes.FUSED and len(node.input) > _BIASES
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
    return finish.Finished(model, weights, finished.pieces)


def _is_matrix(tensor: Any) -> bool:
    is_float = tensor.data_type == onnx.TensorProto.FLOAT
    return is_float and len(tensor.dims) > 1 and math.prod(tensor.dims) >= _FEW


def _store(tensor: Any, name: str, weights: dict[str, Parts]) -> None:
    """Change a constant to float16 under a new name; the values may be in `weights`."""
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
        half = values.astype("<f2")
    lost = np.isinf(half) & np.isfinite(values)
    if lost.any():
        what = f"expected numbers up to 65504, as half holds them, found {values[lost][0]:g}"
        raise UnsupportedModelError("onnx", [f"{name}: {what}; leave out --weights-dtype"])
    return half


DOMAIN: Final = "com.microsoft"
OP: Final = "DynamicQuantizeLSTM"
#: The inputs of an LSTM: X, W, R, B, lengths, h, c, peepholes. The scales and zero points follow them.
_INPUTS: Final = 8
_MATRICES: Final = (1, 2)
#: The largest int8 weight used. Processors without VNNI add two products of uint8 and int8 in 16 bits, which
#: saturate: 2 * 255 * 64 is the most that fits, so that the result is the same on every machine.
_MOST: Final = 64
#: Up to this many units one scale a matrix is used: scaling each sum would take much of such a short step.
_FEW_UNITS: Final = 64


@dataclass(frozen=True, slots=True)
class Quantized:
    """A model, the number of int8 LSTMs, and of float fused nodes by op."""

    model: finish.Finished
    nodes: int
    left: Mapping[str, int]


def to_int8(finished: finish.Finished) -> Quantized:
    """Quantize each LSTM with constant weights, in branches and loops too.

    Raises UnsupportedModelError where a weight is not finite.
    """
    model = onnx.ModelProto()
    model.CopyFrom(finished.model)
    weights, left = dict(finished.weights), Counter[str]()
    walk = _Walk(weights, names(model.graph), left, {})
    walk.over(model.graph, {})
    if walk.stored:
        model.opset_import.add(domain=DOMAIN, version=1)
    _sweep(model.graph, walk.stored, weights)
    nodes = sum(node.op_type == OP for node in all_nodes(model.graph))
    return Quantized(finish.Finished(model, weights), nodes, left)


def notes(quantized: Quantized) -> Iterator[str]:
    """Yield notes on int8 nodes, and on the remaining float nodes."""
    if quantized.nodes:
        yield f"LSTM nodes in int8, an op of ONNX Runtime's own ({DOMAIN} {OP}): {quantized.nodes}"
    if quantized.left:
        listed = ", ".join(f"{count} {op}" for op, count in sorted(quantized.left.items()))
        yield f"still float32, for only LSTMs with constant weights can be int8: {listed}"


@dataclass(frozen=True, slots=True)
class _Walk:
    """State of a walk over all graphs of a model.

    `weights` by name, `left` counts float nodes by op, `stored` maps a matrix to its int8 names. Names are
    canonical, so one name is one tensor in all graphs; new names avoid `taken`.
    """

    weights: dict[str, Parts]
    taken: Collection[str]
    left: Counter[str]
    stored: dict[str, tuple[str, str, str]]

    def over(self, graph: Any, around: Mapping[str, tuple[Any, Any]]) -> None:
        """Visit every fused node of a graph.

        `around` has the constants visible from outside, each with its graph.
        """
        seen = {**around, **{tensor.name: (tensor, graph) for tensor in graph.initializer}}
        for node in graph.node:
            for nested in subgraphs(node):
                self.over(nested, seen)
            if node.op_type not in fused_nodes.FUSED:
                continue
            tensors = [seen[node.input[slot]][0] for slot in _MATRICES if node.input[slot] in seen]
            singles = [tensor for tensor in tensors if tensor.data_type == onnx.TensorProto.FLOAT]
            if node.op_type == "LSTM" and len(singles) == len(_MATRICES):
                self._replace(node, seen)
            else:
                self.left[node.op_type] += 1

    def _replace(self, node: Any, seen: Mapping[str, tuple[Any, Any]]) -> None:
        inputs = [*node.input, *[""] * (_INPUTS - len(node.input))]
        for slot in _MATRICES:
            if inputs[slot] not in self.stored:
                self.stored[inputs[slot]] = self._store(*seen[inputs[slot]])
            inputs[slot], *scaling = self.stored[inputs[slot]]
            inputs += scaling
        node.input[:] = inputs
        node.op_type, node.domain = OP, DOMAIN

    def _store(self, tensor: Any, graph: Any) -> tuple[str, str, str]:
        """Add a matrix as int8; return the names of matrix, scales and zero points."""
        directions, rows, width = tensor.dims
        whole, scale, zero = (free(f"{tensor.name}_{kind}", self.taken) for kind in ("int8", "scale", "zero"))
        parts = self.weights.get(tensor.name) or partial(_alone, tensor)
        scales = _scales(tensor.name, parts, directions)
        values = partial(_round_to_int8, parts, scales, [directions, rows, width])
        stored = onnx.TensorProto(name=whole, data_type=onnx.TensorProto.INT8, dims=[directions, width, rows])
        if tensor.name in self.weights:
            self.weights[whole] = values
        else:
            stored.raw_data = b"".join(part.tobytes() for part in values())
        scales = scales[:, 0] if scales.shape[1] == 1 else scales
        added = [stored, numpy_helper.from_array(scales, scale)]
        graph.initializer.extend([*added, numpy_helper.from_array(np.zeros(scales.shape, np.int8), zero)])
        return whole, scale, zero


def _alone(tensor: Any) -> Iterator[Array]:
    yield numpy_helper.to_array(tensor)


def _scales(name: str, parts: Parts, directions: int) -> Array:
    """Return the scale of each row, `[directions, rows]`, or of each matrix, `[directions, 1]`.

    All-zero rows get 1. Raises UnsupportedModelError where a weight is not finite.
    """
    largest = [np.abs(part).reshape(-1, part.shape[-1]).max(axis=1) for part in parts()]
    scales_found = np.concatenate(largest).astype("<f4").reshape(directions, -1)
    scales_found = (
        scales_found.max(axis=1, keepdims=True) if scales_found.shape[1] <= 4 * _FEW_UNITS else scales_found
    )
    scales: Array = scales_found / np.float32(_MOST)
    if not np.isfinite(scales).all():
        scales_found = scales[~np.isfinite(scales)][0]
        what = f"expected finite numbers to store as int8, found {scales_found:g}"
        raise UnsupportedModelError("onnx", [f"{name}: {what}; leave out --quantize and --max-error"])
    scales[scales == 0] = 1
    return scales


def _round_to_int8(parts: Parts, scales: Array, dims: list[int]) -> Iterator[Array]:
    """Round the matrix `[directions, rows, width]` to int8, transposed, direction by direction."""
    directions, rows, width = dims
    each = np.broadcast_to(scales, (directions, rows)).reshape(-1, 1)
    whole, first = np.empty((directions * rows, width), np.int8), 0
    for part in parts():
        flat = part.reshape(-1, width)
        here = slice(first, first + len(flat))
        whole[here] = np.rint(flat / each[here])
        first = here.stop
    yield from (np.ascontiguousarray(matrix.T) for matrix in whole.reshape(directions, rows, width))


def _sweep(graph: Any, names: Collection[str], weights: dict[str, Parts]) -> None:
    """Remove unread constants of `names`, in the graph and nested graphs."""
    read = {name for node in all_nodes(graph) for name in node.input}
    read |= {value.name for subgraph in graphs(graph) for value in subgraph.output}
    gone = {name for name in names if name not in read}
    for subgraph in graphs(graph):
        kept = [tensor for tensor in subgraph.initializer if tensor.name not in gone]
        del subgraph.initializer[:]
        subgraph.initializer.extend(kept)
    for name in gone & weights.keys():
        del weights[name]
