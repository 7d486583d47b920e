"""A reference variable that its graph assigns becomes a resource variable, each read and write in its place.

`w:0` of the source stays a tensor, and so does what an assignment returns: the value that it wrote. A
reference is read when the op that takes it runs: each such op gets a read of its own that waits for the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index, split, unique
from cudnn_convert.graph.state import SWITCHES, Use, carried, root, uses
from cudnn_convert.model import Tensor

_RESOURCE_WRITES: Final = MappingProxyType(
    {op: f"{op}VariableOp" for op in ("Assign", "AssignAdd", "AssignSub")}
)


def as_resources(graph: Any, values: Mapping[str, Tensor]) -> Any:
    """`graph` with each assigned variable a resource where it can be: outside loops, assigned as a whole."""
    for name in [node.name for node in graph.node if node.op in ("VariableV2", "Variable")]:
        index = Index(graph)
        found = [*uses(index, name)]
        if any(_is_write(index, use) for use in found) and all(_can_change(index, use) for use in found):
            graph = _as_resource(graph, index, name, values[name])
    return graph


def _is_write(index: Index, use: Use) -> bool:
    return use.position == 0 and index.nodes[use.op].op in _RESOURCE_WRITES


def _can_change(index: Index, use: Use) -> bool:
    definition = op_def_registry.get(index.nodes[use.op].op)
    is_read = definition is not None and not any(found.is_ref for found in definition.input_arg)
    is_read |= index.nodes[use.op].op == "RefMerge"
    in_loop = any(index.nodes[op].op not in SWITCHES for op, _ in use.passage)
    return (is_read or _is_write(index, use)) and not in_loop


def _as_resource(graph: Any, index: Index, variable: str, value: Tensor) -> Any:
    declared = tf.TensorShape(index.nodes[variable].attr["shape"].shape)
    shape = declared if declared.is_compatible_with(value.shape) else tf.TensorShape(None)
    dtype = tf.as_dtype(index.nodes[variable].attr["dtype"].type)
    handle = unique(f"{variable}/handle", index.nodes)
    made = {variable: build.node(variable, "ReadVariableOp", [handle], dtype=dtype)}
    added = [build.node(handle, "VarHandleOp", dtype=dtype, shape=shape, shared_name=variable, container="")]
    for use in uses(index, variable):
        taken, nodes = carried(index, handle, use.passage, f"{use.op}/{handle}", tf.resource)
        added += nodes
        node = made.setdefault(use.op, _copy(index.nodes[use.op]))
        if _is_write(index, use):
            added.append(_write(index, node, taken, dtype))
        else:
            added += _read(node, use, taken, dtype)
    for node in index.nodes.values():
        if node.op.startswith("Ref") and root(index, node.name) == variable:
            made.setdefault(node.name, _copy(node)).op = node.op.removeprefix("Ref")
    changed = build.rewritten(graph, made)
    return build.with_nodes(changed, [*changed.node, *added])


def _write(index: Index, node: Any, taken: str, dtype: tf.DType) -> Any:
    """The assignment; `node`, changed in place, becomes a read of what it wrote."""
    old, value, *control = node.input
    # Where the reference came from another assignment, that one runs first.
    first = [f"^{split(old)[0]}"] if index.nodes[split(old)[0]].op in _RESOURCE_WRITES else []
    name, op = f"{node.name}/assign", _RESOURCE_WRITES[node.op]
    write = build.node(name, op, [taken, value, *control, *first], dtype=dtype)
    node.CopyFrom(build.node(node.name, "ReadVariableOp", [taken, f"^{name}"], dtype=dtype))
    return write


def _read(node: Any, use: Use, taken: str, dtype: tf.DType) -> Iterator[Any]:
    """The read that a node takes, when what else it waits for is done; an Identity is that read itself."""
    control = [name for name in node.input if name.startswith("^")]
    if node.op == "Identity":
        node.CopyFrom(build.node(node.name, "ReadVariableOp", [taken, *control], dtype=dtype))
        return
    others = [name for place, name in enumerate(node.input) if place != use.position and name not in control]
    waits = [] if node.op in ("RefMerge", "Merge") else [f"^{split(name)[0]}" for name in others]
    name = f"{node.name}/read_{use.position}"
    node.input[use.position] = name
    yield build.node(name, "ReadVariableOp", [taken, *control, *dict.fromkeys(waits)], dtype=dtype)


def _copy(node: Any) -> Any:
    made = type(node)()
    made.CopyFrom(node)
    return made
