"""The branches of TensorFlow 1's `tf.cond`: what has a value only where its branch is taken.

A branch begins with Switch nodes and ends in a Merge. Loops have both too: their Switch reads a LoopCond,
their Merge a NextIteration. Source: tensorflow v2.21.0 core/graph/control_flow.cc.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cudnn_convert.graph.index import Index, split

_BEGINS: Final = re.compile(r"(Ref)?Switch")
_ENDS: Final = re.compile(r"(Ref)?Merge")
_LOOPS: Final = re.compile(r"LoopCond|(Ref)?NextIteration")


def inside(index: Index) -> set[str]:
    """The names of the nodes behind a Switch and before the first Merge."""
    found: set[str] = set()
    todo = [node for node in index.nodes.values() if _is_cond(index, node, _BEGINS)]
    while todo:
        node = todo.pop()
        if node.name not in found and not _is_cond(index, node, _ENDS):
            found.add(node.name)
            todo += index.consumers(node.name)
    return found


def _is_cond(index: Index, node: Any, kind: re.Pattern[str]) -> bool:
    """Whether a node is of `kind`, and not of a loop."""
    read = (index.nodes.get(split(name)[0]) for name in node.input)
    return bool(kind.fullmatch(node.op)) and not any(
        one is not None and _LOOPS.fullmatch(one.op) for one in read
    )
