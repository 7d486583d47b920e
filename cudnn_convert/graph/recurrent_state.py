"""Recurrent state in variables: the variables, the writes, and the order of the writes.

A variable is state if its value reaches an output through data, and an assignment that the outputs need
writes a value computed by a recurrence into it, or beside a recurrence by a loop that begins with the
variable's value, as a plain layer's does. Moving averages are written by subtraction and do not count
(tensorflow v1.15.0 python/training/moving_averages.py assign_moving_average); step counters neither.

`Order` puts the assignments of a variable in stages, as far as the graph defines their order;
`passes/state_io.py` uses it to take variables out of a graph.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cudnn_convert.graph import constant_folding, node_defs, ops, session
from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, split, tensor, unique, walk
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private

#: What gives the results of a loop.
_LOOPS: Final = ops.EXITS | {"While", "StatelessWhile"}


@dataclass(frozen=True, slots=True)
class Use:
    """An input of an op for a variable, taken directly or through carriers.

    `passage`: the carriers `(op, output)` on the way to it, outermost first.
    """

    op: str
    position: int
    passage: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class State:
    """An assigned variable: the op, the key in the file, and the writes.

    `read`: its value, or one computed from it, is an output. `recurs`: a write depends on a recurrence.
    """

    variable: str
    key: str
    writes: tuple[Use, ...]
    read: bool
    recurs: bool

    @property
    def tensor(self) -> str:
        """The variable's tensor name in the source."""
        return f"{self.variable}:0"


def find(graph: Graph, outputs: Iterable[str]) -> tuple[State, ...]:
    """List the recurrent state of a graph pruned to the tensors `outputs`, in graph order."""
    return tuple(state for state in find_assigned_variables(graph, outputs) if state.read and state.recurs)


def find_assigned_variables(graph: Graph, outputs: Iterable[str]) -> tuple[State, ...]:
    """List all assigned variables of a graph pruned to the tensors `outputs`, in graph order."""
    index = graph.index
    ends = {split(name)[0] for name in outputs}
    states = []
    for node in graph.node:
        if node.op in ops.VARIABLES:
            writes = tuple(use for use in uses(index, node.name) if _is_write(index, use))
            if writes:
                recurs = any(_recurs(index, node.name, use.op) for use in writes)
                read = _is_read(index, node.name, ends)
                states.append(State(node.name, session.checkpoint_key(node), writes, read, recurs))
    return tuple(states)


def uses(index: Index, variable: str) -> Iterator[Use]:
    """Yield the uses of a variable, through branches, loops and chained writes.

    A read of what an assignment returns is not a use.
    """
    is_handle = index.nodes[variable].op == "VarHandleOp"
    carriers = ops.HANDLE_CARRIERS if is_handle else ops.REFERENCE_CARRIERS
    todo: list[tuple[str, int, tuple[tuple[str, int], ...]]] = [(variable, 0, ())]
    while todo:
        op, k, passage = todo.pop(0)
        is_write = index.nodes[op].op in ops.WRITES
        for node in {node.name: node for node in index.consumers(op, k)}.values():
            if is_write and node.op not in ops.WRITES:
                continue  # reads what the assignment returns
            if node.op in carriers:
                sides = (0, 1) if node.op in ops.SWITCHES else (0,)
                todo += [(node.name, side, (*passage, (node.name, side))) for side in sides]
                continue
            positions = [position for position, name in enumerate(node.input) if split(name) == (op, k)]
            yield from (Use(node.name, position, passage) for position in positions)
            if node.op in ops.WRITES and 0 in positions and not is_handle:
                todo.append((node.name, 0, passage))


def root(index: Index, op: str) -> str | None:
    """Return the variable written or carried by an op.

    Returns None for any other op.
    """
    carriers = ops.REFERENCE_CARRIERS | ops.HANDLE_CARRIERS | ops.WRITES | {"RefMerge"}
    node = index.maker(op, carriers)
    return node.name if node.op in ops.VARIABLES else None


def takes_reference(node: NodeDef) -> bool:
    """Return True if an input of a known op is a reference."""
    definition = tf_private.find_op(node.op)
    return definition is not None and any(argument.is_ref for argument in definition.input_arg)


def copy_through_control_flow(
    index: Index, source: str, passage: Iterable[tuple[str, int]], prefix: str, dtype: Any
) -> tuple[str, list[NodeDef]]:
    """Carry tensor `source` through copies of a passage's carriers, named under `prefix`.

    Returns the carried tensor and the copies.
    """
    nodes: list[NodeDef] = []
    for name, side in passage:
        original = index.nodes[name]
        inputs = [source, *original.input[1:]]
        copy = node_defs.copy_node(
            original, name=f"{prefix}/{name}", op=original.op.removeprefix("Ref"), inputs=inputs
        )
        copy.attr["T"].type = dtype.as_datatype_enum
        nodes.append(copy)
        source = f"{copy.name}:{side}" if side else copy.name
    return source, nodes


def _is_write(index: Index, use: Use) -> bool:
    return use.position == 0 and index.nodes[use.op].op in ops.WRITES


def _recurs(index: Index, variable: str, write: str) -> bool:
    """Return True if an assigned value depends on a recurrence; moving averages are exempt.

    A loop is one if it begins with the variable's value, and the graph has a recurrence that is an op.
    """
    node = index.nodes[write]
    if node.op in ops.SUBTRACTIONS:
        return False
    before = ops_of_assignment(index, node)
    if any(index.nodes[op].op in ops.RECURRENCES for op in before):
        return True
    loops = [op for op in before if index.nodes[op].op in _LOOPS]
    begins = variable in index.ancestors(loops, control=False)
    return begins and any(node.op in ops.RECURRENCES for node in index.nodes.values())


def ops_of_assignment(index: Index, write: NodeDef) -> set[str]:
    """Return the ops needed for an assigned value, by data."""
    return index.ancestors([split(write.input[1])[0]], control=False)


def _is_read(index: Index, variable: str, ends: set[str]) -> bool:
    """Return True if an output is the variable's value, or computed from the value."""

    def readers(op: str) -> Iterator[str]:
        for node in index.consumers(op):
            # A plain assignment does not depend on the old value, nor does its result.
            if node.op not in ops.OVERWRITES or split(node.input[0])[0] != op:
                yield node.name

    return any(op in ends for op in walk([variable], readers))


def assignments(index: Index, op: str) -> dict[str, str]:
    """Map the assignments in an op to variables.

    The op is an assignment itself, or a group of them.
    """
    node = index.nodes.get(op)
    if node is not None and node.op in ops.WRITES:
        variable = root(index, op)
        return {op: variable} if variable is not None else {}
    if node is None or node.op != "NoOp":
        return {}
    members = [assignments(index, split(name)[0]) for name in node.input]
    return {key: value for member in members for key, value in member.items()} if all(members) else {}


def last_writes(index: Index, state: State) -> list[str]:
    """List the last assignments of a variable.

    No other assignment follows them.
    """
    ops = [write.op for write in state.writes]
    return [op for op in ops if not any(op in index.ancestors([other]) for other in ops if other != op)]


def find_dropped_updates(index: Index, graph: AnyGraph) -> tuple[tuple[str, str], ...]:
    """List the state updates `(op, variable)` missing from `graph`.

    `graph` is cut from the graph of `index`.
    """
    kept = {node.name: node for node in graph.node}
    recurrences = {name for name, node in kept.items() if node.op in ops.RECURRENCES}
    updates = []
    for node in index.nodes.values():
        if node.op in ops.WRITES - ops.SUBTRACTIONS and node.name not in kept:
            variable = root(index, node.name)
            if variable is not None and variable in kept and recurrences & ops_of_assignment(index, node):
                updates.append((node.name, variable))
    return tuple(updates)


def read_values(graph: Graph, outputs: Iterable[str]) -> tuple[Graph, list[str]]:
    """Add reads of the resource variables and updates among the tensors `outputs`.

    Returns the graph, and the tensor that has the value of each output.
    """
    index, reads, names = graph.index, dict[str, NodeDef](), []
    for name in outputs:
        node = index.nodes[split(name)[0]]
        is_update = node.op in ops.WRITES and node.op.endswith("VariableOp")
        if is_update or node.op == "VarHandleOp":
            handle = [node.input[0], f"^{node.name}"] if is_update else [node.name]
            read = node_defs.node(unique(f"{node.name}/value", index.nodes), "ReadVariableOp", handle)
            read.attr["dtype"].CopyFrom(node.attr["dtype"])
            reads[read.name] = read
            names.append(f"{read.name}:0")
        else:
            names.append(name)
    return replace_nodes(graph, {}, reads.values()), names


def initial(index: Index, variable: str) -> Array | None:
    """Return the constant set by the graph as a variable's initial value.

    Returns None where the graph sets none. The assignment is called after the variable: tensorflow v1.15.0
    python/ops/variables.py _init_from_args, resource_variable_ops.py too.
    """
    node = index.nodes.get(f"{variable}/Assign")
    if node is None or node.op not in ops.OVERWRITES:
        return None
    return constant_folding.fold_constant(index, tensor(node.input[1]))


_CURE: Final = "the format savedmodel keeps it as it is"


class Order:
    """The assignments of a variable in stages, and the stage of each use.

    `reasons`: what is uncertain about the order, so far.
    """

    def __init__(self, index: Index, state: State) -> None:
        self.index, self.nodes, self.state = index, index.nodes, state
        self.reasons: list[str] = []
        ops = [write.op for write in state.writes]
        self.before = {op: index.ancestors([op]) for op in ops}
        self.after = {op: index.descendants([op], control=True) - {op} for op in ops}
        self.stages = self._stages()

    def refuse(self, what: str) -> None:
        """Add a reason."""
        self.reasons.append(f"variable {self.state.variable}: expected {what}")

    def _stages(self) -> list[list[Use]]:
        """List the assignments in order; assignments on two sides of a branch share a stage."""
        stages: list[list[Use]] = []
        written = set(self.before)
        for write in sorted(self.state.writes, key=lambda write: len(self.before[write.op] & written)):
            others = stages[-1] if stages else []
            carriers = {self.nodes[name].op for name, _ in write.passage}
            if not carriers <= ops.SWITCHES | ops.IDENTITIES:
                self.refuse(f"no assignment inside a loop, found {write.op}; {_CURE}")
            if len(self.branches(write)) > 1:
                self.refuse(f"no assignment inside two branches, found {write.op}; {_CURE}")
            if others and all(self._excludes(other, write) for other in others):
                stages[-1].append(write)
                continue
            unordered = [w.op for stage in stages for w in stage if w.op not in self.before[write.op]]
            if unordered:
                actual = f"{unordered[0]} and {write.op}"
                self.refuse(
                    f"assignments in a fixed order, found {actual} without one; choose other --outputs"
                )
            stages.append([write])
        return stages

    def branches(self, use: Use) -> list[tuple[str, int]]:
        """List the branches around a use: predicate and side, outermost first."""
        return [
            (tensor(self.nodes[name].input[1]), side)
            for name, side in use.passage
            if self.nodes[name].op in ops.SWITCHES
        ]

    def _excludes(self, use: Use, second: Use) -> bool:
        """Return True if two uses stand on the two sides of a branch."""
        sides = dict(self.branches(use))
        return any(sides.get(predicate, side) != side for predicate, side in self.branches(second))

    def stage_of(self, use: Use) -> tuple[int, Use | None]:
        """Return the stage count before a use, and the last assignment in the use's branch."""
        number, inside = 0, None
        for stage in self.stages:
            earlier = [write for write in stage if use.op in self.after[write.op] and use.op != write.op]
            if use in stage or (not earlier and self._is_before(use, stage)):
                break
            if not earlier:
                ops = " or ".join(write.op for write in stage)
                self.refuse(
                    f"each read ordered before or after {ops}, found {use.op} without an order; {_CURE}"
                )
                break
            number += 1
            inside = next((write for write in earlier if self._within(write, use)), None)
        return number, inside

    def _within(self, write: Use, use: Use) -> bool:
        branches = self.branches(write)
        return bool(branches) and self.branches(use)[: len(branches)] == branches

    def _is_before(self, use: Use, stage: list[Use]) -> bool:
        """Return True if a use reads a value unaffected by the assignments of a stage."""
        if any(use.op in self.before[write.op] for write in stage):
            return True
        return all(self._excludes(write, use) or self._is_unused(use, write) for write in stage)

    def _is_unused(self, use: Use, write: Use) -> bool:
        """Return True if a value read outside branches is used only in branches skipping `write`."""
        sides = dict(self.branches(write))
        readers = [*self.index.consumers(use.op)]
        for node in readers:
            if node.op not in ops.SWITCHES or tensor(node.input[1]) not in sides:
                return False
            if any(True for _ in self.index.consumers(node.name, sides[tensor(node.input[1])])):
                return False
        return bool(readers) and bool(sides)
