"""Finds graph nodes with the same computation as an earlier node.

Other runtimes compute such a value once: one tensor of an artifact then stands for several of the source.
"""

from __future__ import annotations

from typing import Any, Final

from cudnn_convert.graph import control_flow, ops
from cudnn_convert.graph.index import Index, NodeDef, tensor
from cudnn_convert.private import tf_private
from cudnn_convert.verification import effort

#: Ops that a frame or a branch hangs on.
_FLOW: Final = ops.ENTERS | ops.EXITS | ops.SWITCHES | ops.MERGES | {"NextIteration", "LoopCond"}


def find_duplicates(index: Index) -> dict[str, str]:
    """Map each duplicated tensor outside loops to the first tensor of equal value."""
    around = control_flow.frames(index)
    first: dict[Any, str] = {}
    duplicates: dict[str, str] = {}
    for node in index.sort():
        if node.op in _FLOW or around.get(node.name) or not _is_pure(node):
            continue
        read = tuple(duplicates.get(tensor(name), tensor(name)) for name in node.input)
        attributes = sorted((key, value.SerializeToString()) for key, value in node.attr.items())
        form = node.op, read, tuple(pair for pair in attributes if not pair[0].startswith("_"))
        earlier = first.setdefault(form, node.name)
        if earlier != node.name:
            duplicates[f"{node.name}:0"] = f"{earlier}:0"
    return duplicates


def _is_pure(node: NodeDef) -> bool:
    """Return True if a node has a single output, decided by the inputs alone."""
    op = tf_private.find_op(node.op)
    if op is None or op.is_stateful or len(op.output_arg) != 1 or any(name[0] == "^" for name in node.input):
        return False
    if node.op == "Const":
        value: Any = node.attr["value"]
        return bool(value.ByteSize() <= effort.MOST_DUPLICATE_BYTES)
    return bool(node.input)
