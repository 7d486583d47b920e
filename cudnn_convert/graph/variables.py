"""Reference variables become resource variables, the only kind that TensorFlow 2 fully knows.

A variable `w` keeps its tensor name: `w` turns into the read of a handle `w/handle`. A variable that an
op of the inference graph writes by reference stays as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index, split, unique
from cudnn_convert.graph.trace import VARIABLES
from cudnn_convert.model import Tensor

_REFERENCE_OPS: Final = frozenset({"VariableV2", "Variable"})
_CARRIERS: Final = frozenset(
    {"RefSwitch", "RefEnter", "RefIdentity", "RefMerge", "RefNextIteration", "RefExit"}
)


def as_resources(graph: Any, values: Mapping[str, Tensor]) -> Any:
    """A GraphDef whose variables are resources where they can be; `values` gives shape and dtype by op."""
    index = Index(graph)
    handles: dict[str, Any] = {}
    for node in graph.node:
        if node.op in _REFERENCE_OPS and not _is_written(index, node):
            value = values[node.name]
            handles[node.name] = handle(unique(f"{node.name}/handle", index.nodes), node.name, value)
    nodes = []
    for node in build.placed(graph).node:
        if node.name in handles:
            made = handles[node.name]
            dtype = tf.as_dtype(values[node.name].dtype)
            nodes += [made, build.node(node.name, "ReadVariableOp", [made.name], dtype=dtype)]
            continue
        if node.op in _CARRIERS and _root(index, node.name) in handles:
            node.op = node.op.removeprefix("Ref")
        nodes.append(node)
    return build.with_nodes(graph, nodes)


def handle(name: str, key: str, value: Any) -> Any:
    """A VarHandleOp for a value; `key` is what a checkpoint calls it."""
    dtype, shape = tf.as_dtype(value.dtype), tf.TensorShape(value.shape)
    return build.node(name, "VarHandleOp", dtype=dtype, shape=shape, shared_name=key, container="")


def checkpoint_key(node: Any) -> str:
    """What a checkpoint calls the variable of a node."""
    return node.attr["shared_name"].s.decode() or str(node.name)


def require(path: Path, graph: Any, values: Mapping[str, Tensor], *, decoded: Collection[str]) -> None:
    """Raises UnsupportedModelError where a variable, but for the `decoded`, has no value of its shape."""
    reasons = []
    for node in graph.node:
        if node.op in VARIABLES and node.name not in decoded:
            name, wanted = checkpoint_key(node), tf.TensorShape(node.attr["shape"].shape)
            value = values.get(name)
            if value is None:
                near = difflib.get_close_matches(name, values, n=3)
                hint = (
                    f"the nearest keys are {', '.join(near)}" if near else "is the checkpoint this graph's?"
                )
                reasons.append(
                    f"variable {name}: expected a value of shape {wanted}, found no such key; {hint}"
                )
            elif "shape" in node.attr and not wanted.is_compatible_with(value.shape):
                found = f"{list(value.shape)}; are graph and weights of one model?"
                reasons.append(f"variable {name}: expected shape {wanted}, found {found}")
    if reasons:
        raise UnsupportedModelError(path, reasons)


def _root(index: Index, op: str) -> str:
    while index.nodes[op].op in _CARRIERS:
        op = split(index.nodes[op].input[0])[0]
    return op


def _is_written(index: Index, node: Any) -> bool:
    """Whether an op takes the variable, or a carried reference to it, by reference."""
    for reader in index.consumers(node.name):
        if reader.op in _CARRIERS:
            if _is_written(index, reader):
                return True
            continue
        definition = op_def_registry.get(reader.op)
        if definition is not None and any(argument.is_ref for argument in definition.input_arg):
            return True
    return False
