"""Computes tensors independent of all inputs.

Only pure ops run, and only small subgraphs: for predicates, dropout rates and shapes, not for weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import ops
from cudnn_convert.graph.graph import Graph, extract_nodes, import_checked, open_session
from cudnn_convert.graph.index import Index, NodeDef, split, walk
from cudnn_convert.graph.node_defs import FLOATS, constant, identity, redirect
from cudnn_convert.model import Array

_LIMIT: Final = 64
#: What hands on the value of its first input.
_PASSED: Final = ops.PASSAGES | {"ReadVariableOp"}
#: Elements of any tensor computed on the way: a file may declare shapes that fill memory.
_LARGEST: Final = 1 << 20
#: The types of constants that are read as they are.
_NUMBERS: Final = frozenset(
    kind.as_datatype_enum for kind in (*FLOATS, tf.bool, tf.uint8, tf.int8, tf.int16, tf.int32, tf.int64)
)


def fold_constant(
    index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})
) -> Array | None:
    """Compute tensor `op:k`, a small pure function of constants.

    Returns None for any other tensor. `given` maps ops, usually placeholders, to the scalars to take for
    them. What takes a tensor into a branch or a loop does not change it.
    """
    op, _ = split(tensor)
    if op not in given and op in index.nodes and (value := _read_numbers(index.nodes[op])) is not None:
        return value
    needed = {*walk([op], lambda name: _list_folded_inputs(index, name, given))}
    folded = {index.nodes[name].op for name in needed - set(given)}
    if not 0 < len(needed) <= _LIMIT or folded - ops.FOLDABLE - _PASSED:
        return None
    passed = {f"{name}:1": name for name in needed if index.nodes[name].op in _PASSED}
    tensor = f"{op}:0" if tensor in passed else tensor
    nodes = [redirect(_make_foldable(index.nodes[name], given), passed) for name in sorted(needed)]
    try:
        graph = import_checked(extract_nodes(Graph(graph_pb2.GraphDef(), nodes), needed))
    except InvalidModelError:
        return None
    sizes = [
        output.shape.num_elements() for operation in graph.get_operations() for output in operation.outputs
    ]
    if any(size is None or size > _LARGEST for size in sizes):
        return None
    with open_session(graph) as session:
        try:
            return np.asarray(session.run(tensor))
        except tf.errors.OpError:
            return None


def _read_numbers(node: NodeDef) -> Array | None:
    """Read the numbers of a small Const directly.

    They need not be computed. Returns None for any other node.
    """
    if node.op != "Const" or "value" not in node.attr or "dtype" not in node.attr:
        return None
    value, dtype = node.attr["value"].tensor, node.attr["dtype"].type
    if value.dtype != dtype or dtype not in _NUMBERS:
        return None
    if math.prod(size.size for size in value.tensor_shape.dim) > _LARGEST:
        return None
    try:
        return np.asarray(tf.make_ndarray(value))
    except ValueError:
        return None  # fewer or more numbers than the shape has


def _list_folded_inputs(index: Index, name: str, given: Mapping[str, float]) -> list[str]:
    """List the direct inputs needed to fold an op.

    Of a branch or a loop only what enters it.
    """
    inputs = [] if name in given else index.data_inputs(index.nodes[name])
    inputs = inputs[:1] if index.nodes[name].op in _PASSED else inputs
    return [source for source in (split(each)[0] for each in inputs) if source in index.nodes]


def _make_foldable(node: NodeDef, given: Mapping[str, float]) -> NodeDef:
    if node.name in given:
        dtype = tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype
        return constant(node.name, np.asarray(given[node.name], dtype))
    if node.op not in _PASSED:
        return node
    return identity(node.name, node.input[0], node.attr["dtype" if node.op == "ReadVariableOp" else "T"].type)


def fold_scalar(index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})) -> Any:
    """Return a constant of a single element as a Python value.

    Returns None for any other tensor. `given` is as for `fold_constant`.
    """
    value = fold_constant(index, tensor, given)
    return value.reshape(()).item() if value is not None and value.size == 1 else None
