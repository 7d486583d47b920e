"""Recurrent state that lives in variables: which variables those are, and what writes them.

A variable is state where its value reaches an output through data and an assignment that the outputs need
writes into it what a recurrence computed. Moving averages are written by subtraction and are none
(tensorflow v1.15.0 python/training/moving_averages.py assign_moving_average), nor is a step counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cudnn_convert.graph.index import CUDNN_OPS, Index, split
from cudnn_convert.graph.trace import VARIABLES
from cudnn_convert.graph.variables import checkpoint_key

RECURRENCES: Final = CUDNN_OPS | {"BlockLSTM", "BlockLSTMV2", "LSTMBlockCell", "GRUBlockCell"}
OVERWRITES: Final = frozenset({"Assign", "AssignVariableOp"})
SUBTRACTIONS: Final = frozenset({"AssignSub", "AssignSubVariableOp"})
WRITES: Final = OVERWRITES | SUBTRACTIONS | {"AssignAdd", "AssignAddVariableOp"}
SWITCHES: Final = frozenset({"Switch", "RefSwitch"})
#: Ops that hand on the variable itself: its reference, or its handle.
_REFERENCE_CARRIERS: Final = frozenset({"RefSwitch", "RefEnter", "RefIdentity"})
_HANDLE_CARRIERS: Final = frozenset({"Switch", "Enter", "Identity"})


@dataclass(frozen=True, slots=True)
class Use:
    """An op that takes a variable, and the carriers `(op, output)` on the way to it, outermost first."""

    op: str
    position: int
    passage: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class State:
    """An assigned variable by its op and its key in the file, and its writes.

    `read`: its value, or what comes of it, is an output. `recurs`: what a recurrence computed goes into it.
    """

    variable: str
    key: str
    writes: tuple[Use, ...]
    read: bool
    recurs: bool

    @property
    def tensor(self) -> str:
        """What the source calls it."""
        return f"{self.variable}:0"


def find(graph: Any, outputs: Iterable[str]) -> tuple[State, ...]:
    """The state of a graph that holds only what the tensors `outputs` need, in the graph's order."""
    return tuple(found for found in assigned(graph, outputs) if found.read and found.recurs)


def assigned(graph: Any, outputs: Iterable[str]) -> tuple[State, ...]:
    """Every variable that such a graph assigns."""
    index = Index(graph)
    ends = {split(name)[0] for name in outputs}
    found = []
    for node in graph.node:
        if node.op in VARIABLES:
            writes = tuple(use for use in uses(index, node.name) if _is_write(index, use))
            if writes:
                recurs = any(_recurs(index, use.op) for use in writes)
                read = _is_read(index, node.name, ends)
                found.append(State(node.name, checkpoint_key(node), writes, read, recurs))
    return tuple(found)


def uses(index: Index, variable: str) -> Iterator[Use]:
    """What takes a variable, through branches and loops; what writes it also behind another write."""
    is_handle = index.nodes[variable].op == "VarHandleOp"
    carriers = _HANDLE_CARRIERS if is_handle else _REFERENCE_CARRIERS
    todo: list[tuple[str, int, tuple[tuple[str, int], ...]]] = [(variable, 0, ())]
    while todo:
        op, k, passage = todo.pop(0)
        is_write = index.nodes[op].op in WRITES
        for node in {node.name: node for node in index.consumers(op, k)}.values():
            if is_write and node.op not in WRITES:
                continue  # reads what the assignment returns
            if node.op in carriers:
                sides = (0, 1) if node.op in SWITCHES else (0,)
                todo += [(node.name, side, (*passage, (node.name, side))) for side in sides]
                continue
            places = [place for place, name in enumerate(node.input) if split(name) == (op, k)]
            yield from (Use(node.name, place, passage) for place in places)
            if node.op in WRITES and 0 in places and not is_handle:
                todo.append((node.name, 0, passage))


def root(index: Index, op: str) -> str | None:
    """The variable that an op writes, or whose reference or handle it hands on, or None."""
    carriers = _REFERENCE_CARRIERS | _HANDLE_CARRIERS | WRITES | {"RefMerge"}
    while (node := index.nodes[op]).op in carriers:
        op = split(node.input[0])[0]
    return op if node.op in VARIABLES else None


def carried(
    index: Index, source: str, passage: Iterable[tuple[str, int]], prefix: str, dtype: Any
) -> tuple[str, list[Any]]:
    """A tensor taken through copies of the carriers of a passage, named under `prefix`; and the copies."""
    nodes: list[Any] = []
    for name, side in passage:
        original = index.nodes[name]
        copy = type(original)()
        copy.CopyFrom(original)
        copy.name = f"{prefix}/{name}"
        copy.op = original.op.removeprefix("Ref")
        copy.input[0] = source
        copy.attr["T"].type = dtype.as_datatype_enum
        nodes.append(copy)
        source = f"{copy.name}:{side}" if side else copy.name
    return source, nodes


def _is_write(index: Index, use: Use) -> bool:
    return use.position == 0 and index.nodes[use.op].op in WRITES


def _recurs(index: Index, write: str) -> bool:
    """Whether an assignment writes what depends on a recurrence; a moving average of it does not count."""
    node = index.nodes[write]
    return node.op not in SUBTRACTIONS and any(
        index.nodes[op].op in RECURRENCES for op in needed(index, node)
    )


def needed(index: Index, write: Any) -> set[str]:
    """What the value needs that an assignment writes."""
    return index.ancestors([split(write.input[1])[0]], control=False)


def _is_read(index: Index, variable: str, ends: set[str]) -> bool:
    """Whether the variable's value, or what is computed from it, is an output."""
    todo, seen = [variable], set()
    while todo:
        op = todo.pop()
        if op in seen:
            continue
        seen.add(op)
        for node in index.consumers(op):
            # A plain assignment looks at no old value, nor does what it returns.
            overwrites = node.op in OVERWRITES and split(node.input[0])[0] == op
            todo += [] if overwrites else [node.name]
    return bool(ends & seen)
