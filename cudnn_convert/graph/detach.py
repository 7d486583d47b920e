"""State leaves its variables: each becomes an input, and what it would hold after a call an output.

Formats of constants have nowhere to keep state. An assignment becomes its value; a read gets what the
variable held at its place in the order of assignments. A read that may come before or after one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import build
from cudnn_convert.graph.cut import read_value
from cudnn_convert.graph.index import Index, reference, unique
from cudnn_convert.graph.order import Order
from cudnn_convert.graph.state import OVERWRITES, WRITES, State, Use, carried, uses

_HANDLE_READS: Final = frozenset({"ReadVariableOp", "ResourceGather", "VariableShape"})


def detached(
    path: Path, graph: Any, states: Sequence[State], starts: Mapping[str, Any]
) -> tuple[Any, list[str]]:
    """`graph` without the variables of `states`, and the tensor `op:k` of each one's next value.

    `starts` has the node that takes a variable's place, by its op and of its name. Raises
    UnsupportedModelError where the order of reads and assignments is not certain.
    """
    names, reasons = [], []
    for state in states:
        change = _Detachment(graph, state, starts[state.variable])
        graph, name = change.made()
        names.append(name)
        reasons += change.order.reasons
    if reasons:
        raise UnsupportedModelError(path, reasons)
    return graph, names


class _Detachment:
    """One variable's way out of a graph."""

    def __init__(self, graph: Any, state: State, start: Any) -> None:
        self.graph, self.state, self.start = build.placed(graph), state, start
        self.index = Index(self.graph)
        self.nodes = self.index.nodes
        self.dtype = tf.as_dtype(self.nodes[state.variable].attr["dtype"].type)
        self.added: list[Any] = []
        self.order = Order(self.index, state)

    def made(self) -> tuple[Any, str]:
        found = [*uses(self.index, self.state.variable)]
        # The order is read off the graph before anything in it changes.
        places = [(use, self.order.place(use)) for use in found]
        held = self._held()
        for use, (stage, within) in places:
            self._rewire(use, held[stage] if within is None else within.op, within)
        for write in self.state.writes:
            self._assign(self.nodes[write.op])
        self._plain()
        end = unique(f"{self.state.variable}/next", self.nodes)
        self.added.append(build.identity(end, held[-1], self.dtype.as_datatype_enum))
        kept = [node for node in self.graph.node if node.name != self.state.variable]
        return build.with_nodes(self.graph, [*kept, self.start, *self.added]), f"{end}:0"

    def _held(self) -> list[str]:
        """What the variable holds before each stage, and at the end."""
        held = [self.state.variable]
        for number, stage in enumerate(self.order.stages):
            branches = self.order.branches(stage[0])
            if not branches:
                held.append(stage[0].op)
                continue
            predicate, _ = branches[0]
            stem = unique(f"{self.state.variable}/stage_{number}", self.nodes)
            old = build.node(f"{stem}/switch", "Switch", [held[-1], reference(predicate)], T=self.dtype)
            written = {self.order.branches(write)[0][1]: write.op for write in stage}
            sides = [written.get(side, reference(f"{old.name}:{side}")) for side in (0, 1)]
            merge = build.node(stem, "Merge", sides, T=self.dtype, N=2)
            self.added += [old, merge]
            held.append(stem)
        return held

    def _rewire(self, use: Use, source: str, within: Use | None) -> None:
        """Gives a use the tensor `source` in the variable's place."""
        node = self.nodes[use.op]
        definition = op_def_registry.get(node.op)
        takes_reference = definition is not None and any(found.is_ref for found in definition.input_arg)
        takes_reference &= node.op != "RefMerge"  # of two branches, each with the variable
        is_handle = self.nodes[self.state.variable].op == "VarHandleOp"
        is_write = node.op in WRITES and use.position == 0
        if not is_write and (node.op not in _HANDLE_READS if is_handle else takes_reference):
            self.order.refuse(f"reads and plain assignments, found {use.op}, a {node.op}")
        if source != self.state.variable:
            passage = use.passage[len(within.passage) :] if within else use.passage
            prefix = f"{use.op}/{self.state.variable}"
            node.input[use.position], nodes = carried(self.index, source, passage, prefix, self.dtype)
            self.added += nodes
        if node.op == "VariableShape":
            node.op = "Shape"
            node.attr["T"].type = self.dtype.as_datatype_enum
        elif not is_write:
            read_value(node)

    def _assign(self, node: Any) -> None:
        """An assignment becomes its value; what waited for it waits for that."""
        old, value, *control = node.input
        if node.op in OVERWRITES:
            made = build.identity(node.name, value, self.dtype.as_datatype_enum, control=control)
        else:
            op = "AddV2" if node.op in ("AssignAdd", "AssignAddVariableOp") else "Sub"
            made = build.node(node.name, op, [old, value, *control], T=self.dtype)
        node.CopyFrom(made)

    def _plain(self) -> None:
        """Carriers of the variable carry its value now."""
        original = {write.op for write in self.state.writes} | {self.state.variable}
        todo = [*original]
        while todo:
            for node in self.index.consumers(todo.pop()):
                is_handle = "T" in node.attr and node.attr["T"].type == tf.resource.as_datatype_enum
                if is_handle or node.op.startswith("Ref"):
                    node.op = node.op.removeprefix("Ref")
                    node.attr["T"].type = self.dtype.as_datatype_enum
                    todo.append(node.name)
