"""Where a cuDNN node's parameters come from."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.graph.index import CUDNN_OPS, PARAMS, Index, split

VARIABLES: Final = frozenset({"VariableV2", "Variable", "VarHandleOp"})
#: Ops that hand a tensor on as it is. Switch and Enter carry it into a branch or a loop.
_CARRIERS: Final = frozenset(
    {"Identity", "RefIdentity", "ReadVariableOp", "StopGradient", "Snapshot", "Cast"}
)
#: Recurrences that run on a CPU, and where their kernel stands (tensorflow v2.21.0 core/ops/rnn_ops.cc).
_CPU_KERNELS: Final = MappingProxyType({"BlockLSTM": 4, "BlockLSTMV2": 4, "LSTMBlockCell": 3})
PASSAGES: Final = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter"})
#: What tf.distribute calls a variable's copies on other devices than the first (tensorflow v1.15.0
#: python/distribute/mirrored_strategy.py _real_mirrored_creator).
_COPY: Final = re.compile(r"(.+)/replica_[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Origin:
    """The root of a parameter tensor; the Switch and Enter nodes on the way, outermost first.

    `tensor` is the root, `op:k`. `leaves` are the variables it is computed from, else the constants, else
    itself; `computed` says that it is no variable or constant.
    """

    tensor: str
    passage: tuple[str, ...]
    leaves: tuple[str, ...]
    computed: bool

    @property
    def op(self) -> str:
        return split(self.tensor)[0]


def parameters(index: Index, node: Any) -> Origin:
    """Follow the parameters of a recurrence to the first op that does more than hand them on."""
    tensor, passage = index.data_inputs(node)[_CPU_KERNELS.get(node.op, PARAMS)], []
    while (found := index.nodes[split(tensor)[0]]).op in _CARRIERS | PASSAGES:
        if found.op in PASSAGES:
            passage.append(found.name)
        tensor = index.data_inputs(found)[0]
    op = split(tensor)[0]
    computed = index.nodes[op].op not in VARIABLES | {"Const"}
    return Origin(tensor, tuple(reversed(passage)), _leaves(index, op) if computed else (op,), computed)


def computation(index: Index, op: str) -> dict[str, Any]:
    """The nodes whose values `op` is computed from, itself among them, by name."""
    found: dict[str, Any] = {}
    todo = [op]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = node = index.nodes[name]
            inputs = index.data_inputs(node)
            # What a Switch decides and a loop counts is no part of the value that passes through.
            todo += [split(source)[0] for source in (inputs[:1] if node.op in PASSAGES else inputs)]
    return found


def _leaves(index: Index, op: str) -> tuple[str, ...]:
    below = computation(index, op).values()
    variables = sorted(node.name for node in below if node.op in VARIABLES)
    return tuple(variables or sorted(node.name for node in below if _is_weight(node)) or [op])


def _is_weight(node: Any) -> bool:
    """Whether a node is a constant that holds numbers, not an index or an axis."""
    return node.op == "Const" and bool(tf.as_dtype(node.attr["dtype"].type).is_floating)


def is_copy(index: Index, variable: str) -> bool:
    """Whether a variable is the copy of another on a device: of such replicas the first is the model."""
    named = _COPY.fullmatch(variable)
    return named is not None and named[1] in index.nodes


def recurrences(index: Index) -> list[Any]:
    """The forward cuDNN nodes of a graph, in its order."""
    return [node for node in index.nodes.values() if node.op in CUDNN_OPS]


def cpu_recurrences(index: Index) -> list[Any]:
    """The fused recurrences of a graph that run on a CPU as they are, in its order."""
    return [node for node in index.nodes.values() if node.op in _CPU_KERNELS]


def parameters_only(index: Index, outputs: Collection[str]) -> set[str]:
    """The names of what only parameters need, not the ops `outputs`; it is gone once they are decoded."""
    found: set[str] = set()
    todo = [split(index.data_inputs(node)[PARAMS])[0] for node in recurrences(index)]
    while todo:
        name = todo.pop()
        if name in found or name in outputs:
            continue
        if all(_reads_parameters(reader, name, found) for reader in index.readers(name)):
            found.add(name)
            todo += [split(source)[0] for source in index.nodes[name].input]
    return found


def _reads_parameters(reader: Any, name: str, found: set[str]) -> bool:
    """Whether a reader of `name` is one of `found`, or a cuDNN node that has it for its parameters only."""
    positions = [place for place, source in enumerate(reader.input) if split(source)[0] == name]
    return reader.name in found or (reader.op in CUDNN_OPS and positions == [PARAMS])
