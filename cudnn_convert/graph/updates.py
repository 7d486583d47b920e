"""Assignments seen from outside: named as outputs, left out, or found for a variable's first value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cudnn_convert.graph import build, fold
from cudnn_convert.graph.index import Index, split, tensor, unique
from cudnn_convert.graph.state import OVERWRITES, RECURRENCES, SUBTRACTIONS, WRITES, State, needed, root
from cudnn_convert.model import Array


def updates(index: Index, op: str) -> dict[str, str]:
    """For an assignment, or a group of nothing else: each assignment and the variable that it writes."""
    node = index.nodes.get(op)
    if node is not None and node.op in WRITES:
        variable = root(index, op)
        return {op: variable} if variable is not None else {}
    if node is None or node.op != "NoOp":
        return {}
    members = [updates(index, split(name)[0]) for name in node.input]
    return {key: value for found in members for key, value in found.items()} if all(members) else {}


def last_writes(index: Index, state: State) -> list[str]:
    """The assignments of a variable that no other follows."""
    ops = [write.op for write in state.writes]
    return [op for op in ops if not any(op in index.ancestors([other]) for other in ops if other != op)]


def left_out(index: Index, graph: Any) -> tuple[tuple[str, str], ...]:
    """Updates of state that `graph`, cut from the graph of `index`, does not make: `(op, variable)`."""
    kept = {node.name: node for node in graph.node}
    recurrences = {name for name, node in kept.items() if node.op in RECURRENCES}
    found = []
    for node in index.nodes.values():
        if node.op in WRITES - SUBTRACTIONS and node.name not in kept:
            variable = root(index, node.name)
            if variable is not None and variable in kept and recurrences & needed(index, node):
                found.append((node.name, variable))
    return tuple(found)


def with_values(graph: Any, outputs: Iterable[str]) -> tuple[Any, list[str]]:
    """The graph with a read behind each update without an output among `outputs`, and their new names."""
    index, reads, names = Index(graph), [], []
    for name in outputs:
        node = index.nodes[split(name)[0]]
        if node.op in WRITES and node.op.endswith("VariableOp"):
            made = unique(f"{node.name}/value", index.nodes)
            read = build.node(made, "ReadVariableOp", [node.input[0], f"^{node.name}"])
            read.attr["dtype"].CopyFrom(node.attr["dtype"])
            reads.append(read)
            names.append(f"{made}:0")
        else:
            names.append(name)
    return build.with_nodes(graph, [*graph.node, *reads]), names


def initial(index: Index, variable: str) -> Array | None:
    """What the graph itself gives a variable to begin with, where that is a constant.

    The assignment is called after the variable: tensorflow v1.15.0 python/ops/variables.py _init_from_args,
    resource_variable_ops.py too.
    """
    node = index.nodes.get(f"{variable}/Assign")
    if node is None or node.op not in OVERWRITES:
        return None
    return fold.value(index, tensor(node.input[1]))
