"""Where a cuDNN node's parameters come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cudnn_convert.graph.index import CUDNN_OPS, PARAMS, Index, split

VARIABLES: Final = frozenset({"VariableV2", "Variable", "VarHandleOp"})
#: Ops that hand a tensor on as it is. Switch and Enter carry it into a branch or a loop.
_CARRIERS: Final = frozenset({"Identity", "ReadVariableOp", "StopGradient", "Snapshot", "Cast"})
_PASSAGES: Final = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter"})


@dataclass(frozen=True, slots=True)
class Origin:
    """The op at the root of a parameter tensor; the Switch and Enter nodes on the way, outermost first."""

    op: str
    passage: tuple[str, ...]


def parameters(index: Index, node: Any) -> Origin:
    """Follow the parameters of a cuDNN node to the first op that does more than hand them on."""
    op, passage = split(index.data_inputs(node)[PARAMS])[0], []
    while (found := index.nodes[op]).op in _CARRIERS | _PASSAGES:
        if found.op in _PASSAGES:
            passage.append(op)
        op = split(found.input[0])[0]
    return Origin(op, tuple(reversed(passage)))


def recurrences(index: Index) -> list[Any]:
    """The forward cuDNN nodes of a graph, in its order."""
    return [node for node in index.nodes.values() if node.op in CUDNN_OPS]
