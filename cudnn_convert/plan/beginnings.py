"""Plans the beginning of a sequence: initial states, and tensors common to all steps.

A model whose recurrences begin with zeros needs nothing. Where they begin with anything else, such as
trained variables or an encoder's last state, the artifact has it: as the signature `begin`, or as outputs of
the model where it depends on no input. What an encoder makes for all steps is the signature `encode`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import Reason
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.graph import first_steps, ops, safe_ops, session, stepwise
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.index import Index, split, tensor, walk
from cudnn_convert.graph.passes.stream_states import PLACES
from cudnn_convert.graph.time_axis import TimeAxis
from cudnn_convert.graph.zeros import is_zeros
from cudnn_convert.model import Array, Model, Part, Recurrence, Signature
from cudnn_convert.plan import BEGIN, Plan, Streaming
from cudnn_convert.values import StreamState

#: Hand on the elements of a state as they are, in another form.
_FORMS: Final = ops.COPIES | frozenset("Transpose ExpandDims Squeeze Reshape".split())
#: What an encoder is made of: its steps need a recurrence or a loop.
_ENCODING: Final = ops.RECURRENCES | ops.EXITS | frozenset({"While", "StatelessWhile"})
#: Rows of the inputs that constant states are asked for with.
_ROWS: Final = 2


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of states, in the fields of `plan.Streaming`.

    All fields are empty where states begin with zeros.
    """

    part: Part | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)


def find_streamed(plan: Plan, still: frozenset[str]) -> tuple[Recurrence, ...]:
    """Return the recurrences needed by outputs at each step.

    Initial states are known before the first step. `still` are keys of inputs that are the same at all steps;
    recurrences of those alone do not count.
    """
    index = plan.graph.index
    needed = {*walk_up(index, [split(name)[0] for name in plan.signature.outputs.values()])}
    moving = {split(name)[0] for key, name in plan.signature.inputs.items() if key not in still}
    return tuple(
        recurrence
        for recurrence in plan.recurrences
        if recurrence.node in needed and (not still or moving & {*walk_up(index, [recurrence.node])})
    )


def walk_up(index: Index, start: Sequence[str]) -> Iterator[str]:
    """Yield the ops needed by `start` through data, except for ops of initial states alone."""
    skipped = {position for position, _ in PLACES.values()}

    def above(op: str) -> list[str]:
        node = index.nodes[op]
        inputs = index.data_inputs(node)
        is_cudnn = node.op in ops.CUDNN
        return [split(name)[0] for k, name in enumerate(inputs) if not (is_cudnn and k in skipped)]

    return walk(start, above)


def find_encoders(graph: Graph, moving: Sequence[str], streamed: Sequence[str]) -> set[str]:
    """Return the ops of encoders, and all ops behind encoders: ops independent of steps.

    The states of the graph are inputs. `moving` are the ops of inputs with steps and of states, `streamed`
    the recurrences over the steps. Ops that read sizes alone do not count.
    """
    index = graph.index
    at_steps = index.descendants(moving) | {*streamed}
    seeds = [node.name for node in graph.node if node.op in _ENCODING and node.name not in at_steps]

    def below(op: str) -> list[str]:
        readers = (reader for reader in index.consumers(op) if reader.op not in stepwise.SHAPES)
        return [reader.name for reader in readers if reader.name not in at_steps]

    return {*walk(seeds, below)}


def find_border(graph: Graph, encoders: set[str]) -> list[str]:
    """Return the tensors of the ops `encoders` with readers among the remaining ops."""
    read = (
        tensor(name)
        for node in graph.node
        if node.name not in encoders
        for name in graph.index.data_inputs(node)
        if split(name)[0] in encoders
    )
    return [*dict.fromkeys(read)]


def plan_begin(
    plan: Plan,
    graph: Graph,
    states: Sequence[StreamState],
    time: TimeAxis,
    *,
    entries: Mapping[str, str],
    flag: str,
) -> tuple[Beginning, list[Reason]]:
    """Plan the beginning of `states`, or give the reasons if unknown before the steps.

    `graph` is streamed and not pruned; `entries` are its inputs by key, without states.
    """
    index, variables = plan.graph.index, plan.model.variables
    firsts = {
        state.key: index.data_inputs(index.nodes[state.node])[PLACES[state.kind][0]] for state in states
    }
    keys = {name: key for key, name in plan.signature.inputs.items()}
    given = {
        key: keys[source] for key, name in firsts.items() if (source := index.origin(name, _FORMS)) in keys
    }
    if all(key in given or is_zeros(index, name, variables) for key, name in firsts.items()):
        return Beginning(given=given), []
    ends = {state.key: state.begin for state in states}
    if reasons := [*_refuse(graph, states, time, flag)]:
        return Beginning(), reasons
    needed = graph.index.ancestors([split(name)[0] for name in ends.values()], control=False)
    inputs = {key: name for key, name in entries.items() if split(name)[0] in needed}
    values = find_values(plan.model, graph, ends, [*inputs.values()], time)
    return Beginning(Part(BEGIN, Signature(inputs, ends)), given, values), []


def _refuse(graph: Graph, states: Sequence[StreamState], time: TimeAxis, flag: str) -> Iterator[Reason]:
    """Yield a line for each recurrence with an initial state dependent on later steps."""
    index = graph.index
    for node in dict.fromkeys(state.node for state in states):
        ends = [state.begin for state in states if state.node == node]
        begin = f"{node}: {flag}: expected an initial state that is known at the first step, found one"
        needed = index.ancestors([split(name)[0] for name in ends], control=False)
        carried = [each.node for each in states if {each.node, split(each.start)[0]} & needed]
        if carried:
            yield Reason(f"{begin} that {carried[0]} gives after its steps; convert without {flag}")
            continue
        pruned = prune(graph, ends)
        later = first_steps.find_later_steps(pruned, time.inputs, time.rows, ends)
        if later:
            yield Reason(f"{begin} that needs {later[0].what} ({later[0].node}); convert without {flag}")


def find_values(
    model: Model, graph: Graph, ends: Mapping[str, str], inputs: Sequence[str], time: TimeAxis
) -> dict[str, Array]:
    """Return the values of tensors by key, if independent of the inputs' data.

    The tensors may depend on the number of rows of an input; empty if one depends on more. Of equal rows
    there is one. Rows that differ are values where their number is fixed alone.
    """
    pruned = prune(graph, ends.values())
    index = pruned.index
    if any(node.op in ops.CUDNN for node in pruned.node) or any(safe_ops.others(pruned)):
        return {}
    if any(_reads_data(index, split(name)[0], {split(end)[0] for end in ends.values()}) for name in inputs):
        return {}
    fed = {name: _zeros(pruned, name, time) for name in inputs}
    try:
        with session.session(pruned, model.variables) as running:
            answers = running.run(dict(ends), fed)
    except (tf.errors.OpError, ValueError, KeyError):
        return {}
    values = {key: _one_row(np.asarray(value)) for key, value in answers.items()}
    is_open = any(_has_open_rows(pruned, name, time) for name in inputs)
    return {} if is_open and any(value.shape[1] > 1 for value in values.values()) else values


def _has_open_rows(graph: Graph, name: str, time: TimeAxis) -> bool:
    shape, axis = graph.shapes.get_tensor_by_name(name).shape, time.rows.get(name)
    return shape.rank is None or axis is None or shape[axis] is None


def _reads_data(index: Index, op: str, ends: set[str]) -> bool:
    """Return True if any of `ends` depends on an op's values, beyond the shape."""

    def below(name: str) -> list[str]:
        return [reader.name for reader in index.consumers(name) if reader.op not in stepwise.SHAPES]

    return any(name in ends for name in walk([op], below))


def _zeros(graph: Graph, name: str, time: TimeAxis) -> Array:
    """Return zeros for an input: two rows, a single step."""
    seen = graph.shapes.get_tensor_by_name(name)
    sizes = seen.shape.as_list() if seen.shape.rank is not None else []
    rows = time.rows.get(name)
    shape = [size or (_ROWS if axis == rows else 1) for axis, size in enumerate(sizes)]
    return np.zeros(shape, seen.dtype.as_numpy_dtype)


def _one_row(value: Array) -> Array:
    """Reduce a state `[depth, rows, width]` to a single row if all are equal."""
    first = value[:, :1]
    return first if (value == first).all() else value


def describe_begin(streaming: Streaming, form: str) -> str:
    """Return a sentence on beginning a sequence with an artifact of a format."""
    if outputs := streaming.begin_outputs:
        return f"begin a sequence with the outputs {', '.join(outputs.values())}, which depend on no input"
    if streaming.begin is None:
        return _describe_given(streaming)
    taken = ", ".join(f"{key}={key}" for key in streaming.begin.signature.inputs)
    if Keeps.SIGNATURES in FORMATS[form].keeps:
        return f'begin a sequence with tf.saved_model.load(OUT).signatures["{BEGIN}"]({taken})'
    if Keeps.TENSOR_NAMES in FORMATS[form].keeps:
        names = ", ".join(streaming.begin.signature.outputs.values())
        return f"begin a sequence with the tensors {names}, for {', '.join(streaming.begin.signature.inputs)}"
    names = ", ".join(streaming.begin.signature.inputs)
    return f"begin a sequence with what {BEGIN}.{form} gives{f' for {names}' if names else ''}"


def _describe_given(streaming: Streaming) -> str:
    pairs = ", ".join(f"{key} for {state}" for state, key in streaming.given.items())
    if not pairs:
        return "begin a sequence with zeros"
    others = len(streaming.given) < len(streaming.states)
    rest = ", zeros for the others" if others else ""
    return f"begin a sequence with what the source takes as {pairs}{rest}"
