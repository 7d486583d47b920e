"""What in TensorFlow 1's `tf.cond` and `tf.while_loop` has a value only on the way: in a branch, in a step.

A branch begins with Switch nodes and ends in a Merge. Loops have both too: their Switch reads a LoopCond,
their Merge a NextIteration. Source: tensorflow v2.21.0 core/graph/control_flow.cc.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cudnn_convert.graph.frames import frames
from cudnn_convert.graph.index import Index, split

_BEGINS: Final = re.compile(r"(Ref)?Switch")
_ENDS: Final = re.compile(r"(Ref)?Merge")
_LOOPS: Final = re.compile(r"LoopCond|(Ref)?NextIteration")


def inside(index: Index) -> set[str]:
    """The names of the nodes in loops, and of those behind a Switch and before the first Merge."""
    found = {name for name, around in frames(index).items() if around}
    seen: set[str] = set()
    todo = [node for node in index.nodes.values() if _is_cond(index, node, _BEGINS)]
    while todo:
        node = todo.pop()
        if node.name not in seen and not _is_cond(index, node, _ENDS):
            seen.add(node.name)
            todo += index.consumers(node.name)
    return found | seen


def _is_cond(index: Index, node: Any, kind: re.Pattern[str]) -> bool:
    """Whether a node is of `kind`, and not of a loop."""
    read = (index.nodes.get(split(name)[0]) for name in node.input)
    return bool(kind.fullmatch(node.op)) and not any(
        one is not None and _LOOPS.fullmatch(one.op) for one in read
    )
