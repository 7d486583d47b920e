"""Constant folding: the value of a tensor that depends on no input, or None.

Only pure ops run, and only small subgraphs: this serves predicates, dropout rates and shapes, not weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index, split
from cudnn_convert.model import Array

#: Array ops without state, I/O or randomness.
PURE: Final = frozenset(
    "Const Identity Cast Reshape Squeeze ExpandDims Pack StridedSlice Slice ConcatV2 Transpose Fill "
    "ZerosLike OnesLike Add AddV2 Sub Mul Div RealDiv Maximum Minimum Neg Abs Less LessEqual Greater "
    "GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalNot Select SelectV2 Prod Sum Range Floor "
    "FloorDiv FloorMod Rank Size Shape All Any".split()
)
_LIMIT: Final = 64
#: Elements of a tensor on the way to a value: what a file calls a shape may be made to fill memory.
_LARGEST: Final = 1 << 20


def value(index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})) -> Array | None:
    """The value of `tensor` (`op:k`), or None where it is not a small pure function of constants.

    `given` are scalars to take for the ops it names, placeholders most likely.
    """
    op, _ = split(tensor)
    ops = index.ancestors([op], control=False, stop=given)
    if len(ops) > _LIMIT or not ops or any(index.nodes[name].op not in PURE for name in ops - set(given)):
        return None
    nodes = [_taken(index.nodes[name], given) if name in given else index.nodes[name] for name in sorted(ops)]
    try:
        graph = build.sound(build.kept(build.with_nodes(graph_pb2.GraphDef(), nodes), ops))
    except InvalidModelError:
        return None
    sizes = [found.shape.num_elements() for one in graph.get_operations() for found in one.outputs]
    if any(size is None or size > _LARGEST for size in sizes):
        return None
    with tf.compat.v1.Session(graph=graph) as session:
        try:
            return np.asarray(session.run(tensor))
        except tf.errors.OpError:
            return None


def _taken(node: Any, given: Mapping[str, float]) -> Any:
    dtype = tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype
    return build.constant(node.name, np.asarray(given[node.name], dtype))


def scalar(index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})) -> Any:
    """The Python value of a one-element constant, or None; `given` as for `value`."""
    found = value(index, tensor, given)
    return found.reshape(()).item() if found is not None and found.size == 1 else None
