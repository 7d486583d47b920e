"""Keeps state in variables, or turns state into inputs and outputs of the graph.

Formats with variables keep state in them. In formats of constants each variable becomes an input, and its
value after a call an output. An assignment becomes the value that it writes; a read gets the value at its
place in the order of assignments. A read whose place is uncertain is refused.

    before:  v = VariableV2; read = Identity(v); y = CudnnRNN(x, read, ...); Assign(v, y:1)
    after:   v = Placeholder; read = Identity(v); y = CudnnRNN(x, read, ...); Assign = Identity(y:1)
             v/next = Identity(Assign)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import tensorflow as tf

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError, UsageError
from cudnn_convert.graph import node_defs, ops, recurrent_state, separable
from cudnn_convert.graph.graph import Graph, prune, strip_devices
from cudnn_convert.graph.index import Index, NodeDef, reference, unique
from cudnn_convert.graph.passes import subgraphs
from cudnn_convert.model import InMemory, Model

Shape = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """An assigned variable of a plan: kept, input and output, dropped, or constant.

    `start` and `end`: the input and output tensors that replace it. `dropped`: no output reads it.
    `forgotten`: each call begins with the value that the source holds.
    `promoted`: no recurrence writes it, and the user asked for states as inputs and outputs.
    `from_scalar`: the file holds a scalar, and only the assigned value has the shape of `start`.
    """

    state: recurrent_state.State
    start: str | None = None
    end: str | None = None
    dropped: bool = False
    from_scalar: bool = False
    forgotten: bool = False
    promoted: bool = False

    @property
    def stays(self) -> bool:
        return self.start is None and not (self.dropped or self.forgotten)


@dataclass(frozen=True, slots=True)
class Settled:
    """A graph with the state placed as the format allows.

    `outputs`: the requested outputs by their tensor names in `graph`.
    """

    model: Model
    graph: Graph
    outputs: tuple[str, ...]
    carried: tuple[Carried, ...]

    @property
    def leaving(self) -> tuple[Carried, ...]:
        """The state turned into inputs and outputs."""
        return tuple(state for state in self.carried if state.start is not None)


def place_state(
    model: Model,
    graph: Graph,
    source: Graph,
    outputs: Sequence[str],
    *,
    keep: bool,
    forget: bool = False,
    promote: bool = False,
    shapes: Mapping[str, Shape | None],
    asked: Mapping[str, str],
) -> Settled:
    """Place the state of `graph` in variables, or in inputs and outputs.

    With `keep` it stays in variables; with `forget` it is forgotten after each call. State that `shapes`
    names always becomes inputs and outputs. With `promote` each variable that a graph without recurrences
    reads and writes does, such as the state of a plain layer. `asked` maps those of `outputs` that read an
    assigned value to the assignment's op. Raises UnsupportedModelError, UsageError.
    """
    assigned = recurrent_state.find_assigned_variables(graph, outputs)
    known, read = {*model.state_variables}, [state for state in assigned if state.read]
    is_plain = not any(node.op in ops.RECURRENCES for node in graph.node)
    promoted = read if promote and is_plain else []
    recurring = [] if promoted else [state for state in read if state.recurs or state.variable in known]
    others = [] if keep else [state for state in assigned if state not in [*recurring, *promoted]]
    if promote or not keep:
        _refuse_inseparable(model, graph, promoted, asked=promote)
    _refuse_read(model, others, graph.index if is_plain else None)
    forgotten = recurring if forget else []
    others, recurring = [*others, *forgotten], [] if forget else recurring
    leaving = [*(state for state in recurring if not keep or state.tensor in shapes), *promoted]
    for state in recurring:
        if state not in leaving:
            _refuse_branches(state, asked)
    model = _with_initial_values(model, source.index, [*recurring, *promoted, *others])
    index = graph.index
    written = _find_written_shapes(graph, [state for state in leaving if _is_scalar(model, index, state)])
    starts = {
        state.variable: _start(model, index, state, shapes.get(state.tensor), written.get(state.variable))
        for state in leaving
    }
    starts |= {
        state.variable: node_defs.constant(state.variable, model.variables[state.key].read())
        for state in others
    }
    detached, ends = promote_state_to_io(model.path, graph, [*leaving, *others], starts)
    by_variable = {state.variable: end for state, end in zip(leaving, ends, strict=False)}
    last = {write: state.variable for state in leaving for write in recurrent_state.last_writes(index, state)}
    outputs = [by_variable[last[asked[name]]] if asked.get(name) in last else name for name in outputs]
    kept = [*outputs, *by_variable.values(), *(state.tensor for state in leaving)]
    settled = prune(detached, kept)
    carried = [
        Carried(
            *(state, state.tensor, by_variable[state.variable]),
            from_scalar=state.variable in written,
            promoted=state in promoted,
        )
        for state in leaving
    ]
    carried += [Carried(state) for state in recurring if state not in leaving]
    carried += [
        Carried(state, dropped=state not in forgotten, forgotten=state in forgotten) for state in others
    ]
    return Settled(model, settled, tuple(outputs), tuple(carried))


def _refuse_read(model: Model, others: Iterable[recurrent_state.State], plain: Index | None) -> None:
    """Raise UnsupportedModelError for variables changing between calls apart from a recurrence.

    `plain` is the index of a graph without recurrences: states of that may be asked for.
    """
    cure, reasons = "choose other --outputs, or --format savedmodel", []
    for state in (state for state in others if state.read):
        can_leave = plain is not None and not separable.find_obstacle(plain, state)
        remedy = Remedy({"states": True}, "make it an input and an output with") if can_leave else None
        expected = "expected one that is only read, or a recurrence's state"
        actual = f"found that {state.writes[0].op} changes it"
        advice = f"{remedy}, {cure}" if remedy else cure
        reasons.append(Reason(f"variable {state.variable}: {expected}, {actual}; {advice}", remedy))
    if reasons:
        raise UnsupportedModelError(model.path, reasons)


def _refuse_inseparable(
    model: Model, graph: Graph, promoted: Iterable[recurrent_state.State], *, asked: bool
) -> None:
    """Raise UnsupportedModelError for variables lacking a single value before and after a call."""
    obstacles = {state.variable: separable.find_obstacle(graph.index, state) for state in promoted}
    obstacles |= separable.find_hidden_writes(graph)
    flag, cure = "", "choose other --outputs, or convert with --format savedmodel"
    if asked:
        flag = "--states: "
        cure = "choose other --outputs, or convert with --format savedmodel, without --states"
    expected = f"{flag}expected one that a call reads and then writes once, outside of branches and loops"
    reasons = [
        f"variable {name}: {expected}, found that {what}; {cure}" for name, what in obstacles.items() if what
    ]
    if reasons:
        raise UnsupportedModelError(model.path, reasons)


def _refuse_branches(state: recurrent_state.State, asked: Mapping[str, str]) -> None:
    for write in state.writes:
        if write.passage and write.op in asked.values():
            raise UsageError(f"--outputs: expected an assignment outside of branches, found {write.op}")


def _with_initial_values(model: Model, index: Index, states: Iterable[recurrent_state.State]) -> Model:
    """Return the model with a value for each state, from constant initializers if needed.

    Raises UnsupportedModelError where neither the file nor the graph has one.
    """
    values, reasons = dict(model.variables), []
    for state in states:
        if state.key not in values:
            value = recurrent_state.initial(index, state.variable)
            if value is None:
                expected = "a value in the file or a constant initializer"
                cure = "give a file that holds it, or choose other --outputs"
                reasons.append(f"state variable {state.key}: expected {expected}, found neither; {cure}")
            else:
                values[state.key] = InMemory(value)
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return replace(model, variables=values)


def _is_scalar(model: Model, index: Index, state: recurrent_state.State) -> bool:
    """Return True if a variable of undeclared shape is a scalar in the file."""
    unknown = tf.TensorShape(index.nodes[state.variable].attr["shape"].shape).rank is None
    return unknown and not model.variables[state.key].shape


def _find_written_shapes(graph: Graph, scalars: Sequence[recurrent_state.State]) -> dict[str, tf.TensorShape]:
    """Return the shapes assigned to variables starting as scalars, where the ranks agree."""
    if not scalars:
        return {}
    index, seen, starts = graph.index, graph.shapes, {}
    for state in scalars:
        values = [index.data_inputs(index.nodes[write.op])[1] for write in state.writes]
        first, *others = (seen.get_tensor_by_name(name).shape for name in values)
        common = first.most_specific_common_supertype(others)
        if common.rank:
            starts[state.variable] = common
    return starts


def _start(
    model: Model,
    index: Index,
    state: recurrent_state.State,
    wanted: Shape | None,
    written: tf.TensorShape | None,
) -> NodeDef:
    """Return a variable's placeholder, of the declared shape or the user's shape.

    A variable declared without a shape has the one that is `written`, or the rank of its value. Raises
    UsageError for a shape that does not fit.
    """
    attributes = index.nodes[state.variable].attr
    declared = tf.TensorShape(attributes["shape"].shape)
    if declared.rank is None:
        declared = written or tf.TensorShape([None] * len(model.variables[state.key].shape))
    shape = declared if wanted is None else tf.TensorShape(wanted)
    if not declared.is_compatible_with(shape):
        raise subgraphs.reject_shape(state.tensor, "the variable's", declared, shape)
    dtype = tf.as_dtype(attributes["dtype"].type)
    return node_defs.placeholder(state.variable, dtype, declared.merge_with(shape))


def promote_state_to_io(
    path: Path, graph: Graph, states: Sequence[recurrent_state.State], starts: Mapping[str, NodeDef]
) -> tuple[Graph, list[str]]:
    """Replace the variables of `states` by `starts`; return also the next values `op:k`.

    `starts` has, by variable op, the node of the same name that takes its place. Raises UnsupportedModelError
    where the order of reads and assignments is not certain.
    """
    names, reasons = [], []
    if states:  # each is taken out of one copy, whose nodes change
        graph = Graph(strip_devices(graph))
    for state in states:
        change = _Detachment(graph, state, starts[state.variable])
        graph, name = change.run()
        names.append(name)
        reasons += change.order.reasons
    if reasons:
        raise UnsupportedModelError(path, reasons)
    return graph, names


class _Detachment:
    """The replacement of a variable by an input and an output.

    Changes the graph's nodes in place.
    """

    def __init__(self, graph: Graph, state: recurrent_state.State, start: NodeDef) -> None:
        self.graph, self.state, self.start = graph, state, start
        self.index = graph.index
        self.nodes = self.index.nodes
        self.dtype = tf.as_dtype(self.nodes[state.variable].attr["dtype"].type)
        self.added: list[NodeDef] = []
        self.order = recurrent_state.Order(self.index, state)

    def run(self) -> tuple[Graph, str]:
        uses = [*recurrent_state.uses(self.index, self.state.variable)]
        # The order is read off the graph before anything in it changes.
        places = [(use, self.order.stage_of(use)) for use in uses]
        aliases = self._trace_held()
        for use, (stage, within) in places:
            self._rewire(use, aliases[stage] if within is None else within.op, within)
        for write in self.state.writes:
            self._assign(self.nodes[write.op])
        self._plain()
        end = unique(f"{self.state.variable}/next", self.nodes)
        self.added.append(node_defs.identity(end, aliases[-1], self.dtype.as_datatype_enum))
        kept = [node for node in self.graph.node if node.name != self.state.variable]
        return Graph(self.graph, [*kept, self.start, *self.added]), f"{end}:0"

    def _trace_held(self) -> list[str]:
        """List the ops with the variable's value before each stage and at the end."""
        aliases = [self.state.variable]
        for number, stage in enumerate(self.order.stages):
            branches = self.order.branches(stage[0])
            if not branches:
                aliases.append(stage[0].op)
                continue
            predicate, _ = branches[0]
            stem = unique(f"{self.state.variable}/stage_{number}", self.nodes)
            old = node_defs.node(
                f"{stem}/switch", "Switch", [aliases[-1], reference(predicate)], T=self.dtype
            )
            written = {self.order.branches(write)[0][1]: write.op for write in stage}
            sides = [written.get(side, reference(f"{old.name}:{side}")) for side in (0, 1)]
            merge = node_defs.node(stem, "Merge", sides, T=self.dtype, N=2)
            self.added += [old, merge]
            aliases.append(stem)
        return aliases

    def _rewire(self, use: recurrent_state.Use, source: str, within: recurrent_state.Use | None) -> None:
        """Make a use read the tensor `source` in place of the variable."""
        node = self.nodes[use.op]
        # A RefMerge is of two branches, each with the variable.
        is_by_reference = recurrent_state.takes_reference(node) and node.op != "RefMerge"
        is_handle = self.nodes[self.state.variable].op == "VarHandleOp"
        is_write = node.op in ops.WRITES and use.position == 0
        if not is_write and (node.op not in ops.HANDLE_READS if is_handle else is_by_reference):
            self.order.refuse(f"reads and plain assignments, found {use.op}, a {node.op}")
        if source != self.state.variable:
            passage = use.passage[len(within.passage) :] if within else use.passage
            prefix = f"{use.op}/{self.state.variable}"
            node.input[use.position], nodes = recurrent_state.copy_through_control_flow(
                self.index, source, passage, prefix, self.dtype
            )
            self.added += nodes
        if node.op == "VariableShape":
            node.op = "Shape"
            node.attr["T"].type = self.dtype.as_datatype_enum
        elif not is_write:
            node.CopyFrom(subgraphs.read_value(node))

    def _assign(self, node: NodeDef) -> None:
        """Replace an assignment by the written value, under the same name."""
        old, value, *control = node.input
        if node.op in ops.OVERWRITES:
            reader = node_defs.identity(node.name, value, self.dtype.as_datatype_enum, control=control)
        else:
            op = "AddV2" if node.op in ops.ADDITIONS else "Sub"
            reader = node_defs.node(node.name, op, [old, value, *control], T=self.dtype)
        node.CopyFrom(reader)

    def _plain(self) -> None:
        """Turn carriers of the reference or handle into carriers of the value."""
        original = {write.op for write in self.state.writes} | {self.state.variable}
        todo = [*original]
        while todo:
            for node in self.index.consumers(todo.pop()):
                is_handle = "T" in node.attr and node.attr["T"].type == tf.resource.as_datatype_enum
                if is_handle or node.op.startswith("Ref"):
                    node.op = node.op.removeprefix("Ref")
                    node.attr["T"].type = self.dtype.as_datatype_enum
                    todo.append(node.name)
