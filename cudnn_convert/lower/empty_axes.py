"""Reductions over axes without values, for TensorFlow Lite.

`replace_reductions`: its kernels give what memory holds. Of nothing TensorFlow gives 0 as a sum, NaN as a
mean, and as a maximum the end of the type, an infinity for floats.
Source: tensorflow v1.15.0 core/kernels/reduction_ops_max.cc, reduction_ops_mean.cc; seen in TensorFlow Lite
2.21.0.

    before:  y = Max(x[?, ?, 3], 1)
    after:   y = SelectV2(Size(x) == 0, -inf, Max(x, 1))
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.index import NodeDef, claim, tensor

_REDUCTIONS: Final = frozenset({"Max", "Min", "Mean", "Sum", "Prod"})


def replace_reductions(graph: node_defs.Graph) -> node_defs.Graph:
    """Replace each of them over an axis of an open size; `graph` itself if there are none."""
    taken = {node.name for node in graph.node}
    changes, added = {}, list[NodeDef]()
    for node in graph.node:
        if node.op in _REDUCTIONS and _may_be_empty(graph, node):
            *steps, changes[node.name] = _choose(node, taken)
            added += steps
    return node_defs.replace_nodes(graph, changes, added)


def _may_be_empty(graph: node_defs.Graph, node: NodeDef) -> bool:
    """Whether an axis that is reduced has an open size, as far as shapes and constants say."""
    shape = graph.shapes.get_tensor_by_name(tensor(node.input[0])).shape
    axes = node_defs.fold_constant(graph.index, tensor(node.input[1]))
    if shape.rank is None or axes is None:
        return True
    return any(shape[int(axis)] in (None, 0) for axis in np.ravel(axes))


def _choose(node: NodeDef, taken: set[str]) -> Iterator[NodeDef]:
    kind = tf.as_dtype(node.attr["T"].type)
    names = {part: claim(f"{node.name}/{part}", taken) for part in "input count none empty end bound".split()}
    # An Identity: a constant cannot wait for one output of a Switch.
    yield node_defs.identity(names["input"], node.input[0], node.attr["T"].type)
    after = [f"^{names['input']}"]
    yield node_defs.node(names["count"], "Size", [names["input"]], T=kind, out_type=tf.int32)
    yield node_defs.constant(names["none"], np.array(0, np.int32), control=after)
    yield node_defs.node(names["empty"], "Equal", [names["count"], names["none"]], T=tf.int32)
    yield node_defs.constant(names["end"], _of_nothing(node.op, kind), control=after)
    yield node_defs.copy_node(node, name=names["bound"], inputs=[names["input"], *node.input[1:]])
    yield node_defs.node(node.name, "SelectV2", [names["empty"], names["end"], names["bound"]], T=kind)


def _of_nothing(op: str, kind: tf.DType) -> Any:
    dtype = kind.as_numpy_dtype
    if op in ("Sum", "Prod"):
        return np.array(int(op == "Prod"), dtype)
    if op == "Mean":
        return np.array(np.nan if kind.is_floating else 0, dtype)
    if kind.is_floating:
        return np.array(-np.inf if op == "Max" else np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.array(limits.min if op == "Max" else limits.max, dtype)
