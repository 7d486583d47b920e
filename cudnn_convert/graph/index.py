"""Lookups in a graph: tensor names, producers, consumers, ancestors.

NodeDefs stay the one in-memory form of a graph; an `Index` only points at them. A tensor is named
`op:k` throughout, a control input `^op`.
Source: tensorflow v2.21.0 core/framework/node_def.proto (input forms).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph.protos import AnyGraph, NodeDef

#: The forward ops of cuDNN; their outputs 0-2 are output, output_h, output_c.
CUDNN_OPS: Final = frozenset({"CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"})
INPUT, INPUT_H, INPUT_C, PARAMS, LENGTHS = range(5)
OUTPUTS: Final = 3
#: Of a number of an output: no op has so many.
_DIGITS: Final = 10
#: Source: tensorflow v2.21.0 python/framework/ops.py _VALID_SCOPE_NAME_REGEX, core/graph/tensor_id.cc.
_OP_NAME: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")


def split(reference: str) -> tuple[str, int]:
    """`("op", k)` of an input reference `op`, `op:k`, or `^op` (k is then -1)."""
    if reference.startswith("^"):
        return reference[1:], -1
    op, _, k = reference.rpartition(":")
    return (op, int(k)) if op and k.isdecimal() and len(k) < _DIGITS else (reference, 0)


def tensor(reference: str) -> str:
    """The full name `op:k` of an input reference."""
    op, k = split(reference)
    return f"{op}:{k}"


def reference(name: str) -> str:
    """The way a NodeDef writes the tensor `op:k`: without its index where that is 0."""
    return name.removesuffix(":0")


class _Nodes(dict[str, NodeDef]):
    """Nodes by name. An input may name one that is not there: nothing is refused before it is needed."""

    def __missing__(self, name: str) -> NodeDef:
        raise InvalidModelError(f"node {name}", expected="a node of the graph", found="none of that name")


class Index:
    """The nodes of a graph by name and the consumers of each op; built once, never written."""

    def __init__(self, graph: AnyGraph) -> None:
        self.nodes: dict[str, NodeDef] = _Nodes((node.name, node) for node in graph.node)
        self._consumers: dict[str, list[tuple[NodeDef, int, int]]] = defaultdict(list)
        for node in graph.node:
            for position, name in enumerate(node.input):
                op, k = split(name)
                self._consumers[op].append((node, position, k))

    def data_inputs(self, node: NodeDef) -> list[str]:
        """The tensors `op:k` that a node reads, in order."""
        return [tensor(name) for name in node.input if not name.startswith("^")]

    def consumers(self, op: str, k: int | None = None) -> Iterator[NodeDef]:
        """The nodes that read output `k` of `op`, or any of its outputs."""
        return (node for node, _, output in self._consumers[op] if output == k or (k is None and output >= 0))

    def readers(self, op: str) -> Iterator[NodeDef]:
        """The nodes that read data of `op` or wait for it."""
        return (node for node, _, _ in self._consumers[op])

    def ancestors(self, ops: Iterable[str], *, control: bool = True, stop: Collection[str] = ()) -> set[str]:
        """The names of `ops` and of everything they need; what feeds a `stop` op is left out."""
        seen: set[str] = set()
        todo = [op for op in ops if op in self.nodes]
        while todo:
            op = todo.pop()
            if op in seen:
                continue
            seen.add(op)
            if op not in stop:
                references = (split(name) for name in self.nodes[op].input)
                todo += [source for source, k in references if source in self.nodes and (control or k >= 0)]
        return seen

    def descendants(self, ops: Iterable[str]) -> set[str]:
        """The names of everything that reads data of `ops`, directly or not, and of `ops`."""
        seen: set[str] = set()
        todo = list(ops)
        while todo:
            op = todo.pop()
            if op not in seen:
                seen.add(op)
                todo += [node.name for node in self.consumers(op)]
        return seen


def is_op_name(name: str) -> bool:
    """Whether TensorFlow takes `name` for an op of a graph, and as the start of the names of others."""
    return _OP_NAME.fullmatch(name) is not None


def unique(name: str, taken: Collection[str]) -> str:
    """`name`, or the first of `name_1`, `name_2`, ... that is not taken."""
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate


VARIABLES: Final = frozenset({"VariableV2", "Variable", "VarHandleOp"})
PASSAGES: Final = frozenset({"Switch", "RefSwitch", "Enter", "RefEnter"})

#: Sources that a program, not a file, fills: cut at the components used.
STREAMS: Final = frozenset(
    "IteratorGetNext IteratorGetNextSync QueueDequeue QueueDequeueV2 QueueDequeueMany QueueDequeueManyV2 "
    "QueueDequeueUpTo QueueDequeueUpToV2 Unstage".split()
)
PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2"})
