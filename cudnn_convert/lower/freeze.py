"""Variables become constants, by TensorFlow's own rewriting, which knows reads inside branches and loops."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import INPUT, PARAMS, Index, split, unique
from cudnn_convert.graph.session import session, variable_ops
from cudnn_convert.graph.variables import checkpoint_key
from cudnn_convert.model import Recurrence, Tensor

#: A proto may not exceed 2 GiB, and TensorFlow's message for one that does names no size.
_LIMIT: Final = 2**31 - 2**20


def frozen(graph: Any, variables: Mapping[str, Tensor], outputs: Iterable[str]) -> Any:
    """`graph` with each variable op a Const of the same name; `outputs`, tensors `op:k`, are what stays.

    Raises UnsupportedModelError where the constants would not fit a GraphDef.
    """
    ops = variable_ops(graph)
    size = sum(
        found.dtype.itemsize * math.prod(found.shape)
        for found in (variables[checkpoint_key(op)] for op in ops)
    )
    if size > _LIMIT:
        reason = f"expected under 2 GiB of weights, found {size} bytes; choose --format savedmodel"
        raise UnsupportedModelError("frozen graph", [reason])
    if not ops:
        return graph
    names = sorted({split(name)[0] for name in outputs})
    with session(graph, variables) as running:
        for op in ops:
            _ensure_read(running.graph, op)
        return tf.compat.v1.graph_util.convert_variables_to_constants(running, graph, names)


def _ensure_read(graph: tf.Graph, op: Any) -> None:
    """The rewriting fetches a resource's value by the name that `tf.Variable` gives its own first read."""
    name = f"{op.name}/Read/ReadVariableOp"
    if op.op == "VarHandleOp" and name not in {operation.name for operation in graph.get_operations()}:
        handle = graph.get_tensor_by_name(f"{op.name}:0")
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(op.attr["dtype"].type), name=name)


def without_parameters(graph: Any, recurrences: Iterable[Recurrence], outputs: Iterable[str]) -> Any:
    """`graph` with an empty constant for each recurrence's blob; its weights go to the target by the side."""
    index, changes, added = Index(graph), {}, []
    for recurrence in recurrences:
        node = copy.deepcopy(index.nodes[recurrence.node])
        empty = build.constant(unique(f"{node.name}/parameters", index.nodes), np.zeros(0, recurrence.dtype))
        # Inside a loop's frame a node without inputs needs this edge to be in the frame.
        empty.input.append(f"^{split(node.input[INPUT])[0]}")
        node.input[PARAMS] = empty.name
        changes[node.name] = node
        added.append(empty)
    made = build.rewritten(graph, changes)
    made.node.extend(added)
    return build.kept(made, Index(made).ancestors(split(name)[0] for name in outputs))
