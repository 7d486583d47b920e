"""What in TensorFlow 1's `tf.cond` and `tf.while_loop` has a value only on the way: in a branch, in a step.

A branch begins with Switch nodes and ends in a Merge. Loops have both too: their Switch reads a LoopCond,
their Merge a NextIteration. Source: tensorflow v2.21.0 core/graph/control_flow.cc.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph import fold
from cudnn_convert.graph.cut import PLACEHOLDERS
from cudnn_convert.graph.frames import frames
from cudnn_convert.graph.index import Index, split, tensor

_BEGINS: Final = re.compile(r"(Ref)?Switch")
_ENDS: Final = re.compile(r"(Ref)?Merge")
_LOOPS: Final = re.compile(r"LoopCond|(Ref)?NextIteration")
#: Placeholders that may decide, with a default or without.
SOURCES: Final = PLACEHOLDERS | {"PlaceholderWithDefault"}


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


def below(index: Index, names: Collection[str], others: Collection[str]) -> set[str]:
    """`names` and what reads them, but for a Merge that has another value too, one that reads `others`."""
    behind = index.descendants(others)
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = todo.pop()
        node = index.nodes[name]
        values = {split(source)[0] for source in index.data_inputs(node)} & behind
        if name not in found and not (_is_cond(index, node, _ENDS) and values - found):
            found.add(name)
            todo += [reader.name for reader in index.consumers(name)]
    return found


def leaving(index: Index, name: str) -> tuple[str, bool] | None:
    """The only placeholder that decides on a node's branch, and the value with which it is not taken."""
    for taken, side in _decisions(index, name):
        held = _held(index, taken)
        if len(held) == 1 and _is_number(index.nodes[held[0]]):
            for setting in (False, True):
                if fold.scalar(index, taken, {held[0]: setting}) == 1 - side:
                    return held[0], setting
    return None


def flag(placeholder: str, setting: bool) -> str:
    """The flag that binds a placeholder."""
    return f"--set {placeholder}:0={'true' if setting else 'false'}"


def _decisions(index: Index, name: str) -> Iterator[tuple[str, int]]:
    """What decides on the branches around a node, as tensors, and the side of each that it is on."""
    seen, todo = set[str](), [name]
    while todo:
        for source, k in map(split, index.nodes[todo.pop()].input):
            node = index.nodes[source]
            if k in (0, 1) and _is_cond(index, node, _BEGINS):
                yield tensor(node.input[1]), k
            # Behind a Merge lie branches that the node is not in.
            if source not in seen and not _is_cond(index, node, _ENDS):
                seen.add(source)
                todo.append(source)


def _held(index: Index, taken: str) -> list[str]:
    return [name for name in index.ancestors([split(taken)[0]]) if index.nodes[name].op in SOURCES]


def _is_number(node: Any) -> bool:
    dtype = tf.as_dtype(node.attr["dtype"].type)
    return bool(dtype.is_bool or dtype.is_integer or dtype.is_floating)


def _is_cond(index: Index, node: Any, kind: re.Pattern[str]) -> bool:
    """Whether a node is of `kind`, and not of a loop."""
    read = (index.nodes.get(split(name)[0]) for name in node.input)
    return bool(kind.fullmatch(node.op)) and not any(
        one is not None and _LOOPS.fullmatch(one.op) for one in read
    )
