"""Checks if a variable's values before and after a call can be told apart.

They can where a call reads the variable and then writes it once: the first value becomes an input, and the
second an output. A write in a branch or in a loop may happen never or several times, and in their functions
the graph does not show it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cudnn_convert.graph import ops, recurrent_state
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index, callees, library, walk

#: Write a resource variable that they take first, beside `ops.WRITES`: core/ops/resource_variable_ops.cc,
#: state_ops.cc, training_ops.cc.
_PARTIAL: Final = re.compile(r"Resource(Scatter|StridedSliceAssign|Apply|SparseApply|CountUpTo).*")
#: Take what their functions take behind one input of their own.
_BRANCHES: Final = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})


def find_obstacle(index: Index, state: recurrent_state.State) -> str:
    """Return the obstacle to telling a variable's values before and after a call apart.

    Empty where they can be told apart.
    """
    first, *more = state.writes
    if more:
        return f"{first.op} and {more[0].op} write it"
    if first.passage:
        return f"{first.op} writes it in a branch or a loop"
    order = recurrent_state.Order(index, state)
    is_handle = index.nodes[state.variable].op == "VarHandleOp"
    for use in recurrent_state.uses(index, state.variable):
        kind = index.nodes[use.op].op
        if use.op == first.op:
            continue
        if is_handle and kind not in ops.HANDLE_READS:
            return f"{use.op} ({kind}) takes it"
        if order.stage_of(use)[0] or order.reasons:
            return f"{use.op} may read it after {first.op} wrote it"
    return ""


def find_hidden_writes(graph: Graph) -> dict[str, str]:
    """Describe hidden writes by resource variable: in functions of branches and loops, or in part."""
    index, functions = graph.index, library(graph)
    hidden: dict[str, str] = {}
    for node in graph.node:
        if node.op == "VarHandleOp":
            uses = ((index.nodes[use.op], use.position) for use in recurrent_state.uses(index, node.name))
            writer = next((user for user, k in uses if _hides_write(user, k, functions, set())), None)
            hidden |= {} if writer is None else {node.name: f"{writer.name} ({writer.op}) writes it"}
    return hidden


def _hides_write(node: Any, position: int, functions: Mapping[str, Any], seen: set[tuple[str, int]]) -> bool:
    """Return True if a node writes an input variable in part, or by a call.

    The variable is the input at `position`. An assignment of all of it, by the node itself, does not count.
    """
    if _PARTIAL.fullmatch(node.op):
        return position == 0
    argument = position - (node.op in _BRANCHES)
    called = [(name, argument) for name in callees(node) if name in functions and argument >= 0]
    new = [each for each in called if each not in seen]
    seen |= {*new}
    return any(_writes_argument(functions[name], k, functions, seen) for name, k in new)


def _writes_argument(
    function: Any, position: int, functions: Mapping[str, Any], seen: set[tuple[str, int]]
) -> bool:
    """Return True if a function writes the variable in the argument at a position."""
    arguments = function.signature.input_arg
    if position >= len(arguments):
        return False

    def carry(name: str) -> Iterator[str]:
        return (
            node.name
            for node in function.node_def
            if node.op == "Identity" and _source(node.input[0]) == name
        )

    handles = {*walk([arguments[position].name], carry)}
    return any(
        (node.op in ops.WRITES and k == 0) or _hides_write(node, k, functions, seen)
        for node in function.node_def
        for k, name in enumerate(node.input)
        if _source(name) in handles
    )


def _source(name: str) -> str:
    """Return the node or argument of an input in a function."""
    return name.partition(":")[0]
