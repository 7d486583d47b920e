"""Variables become constants, by TensorFlow's own rewriting, which knows reads inside branches and loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import split
from cudnn_convert.graph.trace import VARIABLES
from cudnn_convert.model import Tensor

#: A proto may not exceed 2 GiB, and TensorFlow's message for one that does names no size.
_LIMIT: Final = 2**31 - 2**20


def frozen(graph: Any, variables: Mapping[str, Tensor], outputs: Iterable[str]) -> Any:
    """`graph` with each variable op a Const of the same name; `outputs` are tensors `op:k`.

    Raises UnsupportedModelError where the constants would not fit a GraphDef.
    """
    ops = [node for node in graph.node if node.op in VARIABLES]
    size = sum(_bytes(variables[node.name]) for node in ops)
    if size > _LIMIT:
        raise UnsupportedModelError("frozen graph", [f"expected under 2 GiB of weights, found {size} bytes"])
    if not ops:
        return graph
    names = sorted({split(name)[0] for name in outputs})
    with build.imported(graph).as_default() as whole, tf.compat.v1.Session(graph=whole) as session:
        for node in ops:
            _assign(session, node, variables[node.name])
        made = tf.compat.v1.graph_util.convert_variables_to_constants(session, graph, names)
    result = graph_pb2.GraphDef()
    result.CopyFrom(made)
    result.versions.CopyFrom(graph.versions)
    return result


def _bytes(tensor: Tensor) -> int:
    size = tensor.dtype.itemsize
    for width in tensor.shape:
        size *= width
    return size


def _assign(session: Any, node: Any, value: Tensor) -> None:
    """Sets a variable op of the session's graph, whichever of the two kinds it is."""
    target = session.graph.get_tensor_by_name(f"{node.name}:0")
    fed = tf.compat.v1.placeholder(tf.as_dtype(value.dtype), value.shape)
    if node.op == "VarHandleOp":
        assign = tf.raw_ops.AssignVariableOp(resource=target, value=fed)
        _ensure_read(session.graph, node, target)
    else:
        assign = tf.raw_ops.Assign(ref=target, value=fed)
    session.run(assign, {fed: value.read()})


def _ensure_read(graph: tf.Graph, node: Any, handle: Any) -> None:
    """The rewriting fetches a resource's value by the name that `tf.Variable` gives its own first read."""
    name = f"{node.name}/Read/ReadVariableOp"
    if name not in {operation.name for operation in graph.get_operations()}:
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(node.attr["dtype"].type), name=name)
