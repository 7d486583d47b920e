"""The `while` frames of TensorFlow 1's control flow: which loops a node stands in.

An Enter takes a tensor into a frame, an Exit out of it; every other node stands where its inputs do.
Source: tensorflow v2.21.0 core/graph/control_flow.cc BuildControlFlowInfo.
"""

from __future__ import annotations

from typing import Any, Final

from cudnn_convert.graph import build
from cudnn_convert.graph.index import Index

_ENTERS: Final = frozenset({"Enter", "RefEnter"})
_SWITCHES: Final = frozenset({"Switch", "RefSwitch", "_SwitchN"})
_ENDS: Final = frozenset({"Merge", "RefMerge"})
_EXITS: Final = frozenset({"Exit", "RefExit"})


def frames(index: Index) -> dict[str, tuple[str, ...]]:
    """The frame names of each op's outputs, outermost first; ops outside all loops have none."""
    found: dict[str, tuple[str, ...]] = {}
    todo: list[tuple[Any, tuple[str, ...]]] = [(n, ()) for n in index.nodes.values() if not n.input]
    while todo:
        node, around = todo.pop()
        if node.name in found:
            continue
        if node.op in _ENTERS:
            around = (*around, node.attr["frame_name"].s.decode())
        elif node.op in _EXITS:
            around = around[:-1]
        found[node.name] = around
        todo += [(reader, around) for reader in index.readers(node.name)]
    return found


def certain(index: Index) -> set[str]:
    """The ops that run once in every call: outside all loops, and on neither side of a branch.

    A Merge ends what a Switch began; an Exit ends the Switch of its loop.
    """
    depths: dict[str, int] = {}
    todo: list[tuple[Any, int]] = [(node, 0) for node in index.nodes.values() if not node.input]
    while todo:
        node, depth = todo.pop()
        if node.op in _SWITCHES:
            depth += 1
        elif node.op in _ENDS | _EXITS:
            depth = max(0, depth - 1)
        if depths.get(node.name, -1) >= depth or (node.op in _ENDS and node.name in depths):
            continue
        depths[node.name] = depth
        todo += [(reader, depth) for reader in index.readers(node.name)]
    around = frames(index)
    return {name for name, depth in depths.items() if depth == 0 and not around.get(name)}


def enter(index: Index, name: str, source: str, frame: str, dtype: Any) -> Any:
    """An Enter that takes the constant `source` into a frame of the graph."""
    like = next(
        node
        for node in index.nodes.values()
        if node.op in _ENTERS and node.attr["frame_name"].s.decode() == frame
    )
    parallel = like.attr["parallel_iterations"].i
    return build.node(
        name,
        "Enter",
        [source],
        T=dtype,
        frame_name=frame,
        is_constant=True,
        parallel_iterations=int(parallel),
    )
