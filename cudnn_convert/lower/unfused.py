"""Sums that TensorFlow would take for part of a layer normalisation, and compute with another epsilon.

On CPUs it makes one op of `rsqrt(mean + constant)` and what is around it where the other parts are constants
or the input has a known rank, and that op's epsilon is 0.001, whatever the constant. Taking the negated
constant away gives the same numbers to the last bit and is none of the patterns.
Source: tensorflow v2.21.0 core/grappler/optimizers/remapper.cc FindMklLayerNorm, AddMklLayerNorm.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index, reference, split, unique

_SUMS: Final = frozenset({"Add", "AddV2"})
_LEADS: Final = frozenset({"Identity", "Enter"})


def unfused(graph: Any) -> Any:
    """`graph` with `mean - (-constant)` for each `mean + constant` of which an Rsqrt is taken."""
    index = Index(graph)
    changes: dict[str, Any] = {}
    added: dict[str, Any] = {}
    for node in graph.node:
        if node.op in _SUMS and any(reader.op == "Rsqrt" for reader in index.consumers(node.name)):
            sides = index.data_inputs(node)
            constants = [k for k, side in enumerate(sides) if _constant(index, side) is not None]
            if len(constants) == 1 and _lead(index, sides[1 - constants[0]]).op == "Mean":
                (k,) = constants
                less = _negated(index, split(sides[k])[0], added)
                control = [name for name in node.input if name.startswith("^")]
                kind = tf.as_dtype(node.attr["T"].type)
                changes[node.name] = build.node(
                    node.name, "Sub", [reference(sides[1 - k]), less, *control], T=kind
                )
    if not changes:
        return graph
    made = build.rewritten(graph, changes)
    made.node.extend(added.values())
    return made


def _lead(index: Index, tensor: str) -> Any:
    """The node that a tensor comes from, past those that only hand it on."""
    node = index.nodes[split(tensor)[0]]
    while node.op in _LEADS:
        node = index.nodes[split(node.input[0])[0]]
    return node


def _constant(index: Index, tensor: str) -> Any | None:
    node = _lead(index, tensor)
    return node if node.op == "Const" else None


def _negated(index: Index, name: str, added: dict[str, Any]) -> str:
    """The name of a copy of a constant, and of what hands it on, that has the negated value."""
    found = unique(f"{name}/negated", index.nodes)
    if found not in added:
        original = index.nodes[name]
        copy = type(original)()
        copy.CopyFrom(original)
        copy.name = found
        if original.op == "Const":
            value = tf.make_ndarray(original.attr["value"].tensor)
            copy.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(-value, shape=value.shape))
        else:
            copy.input[0] = _negated(index, split(original.input[0])[0], added)
        added[found] = copy
    return found
