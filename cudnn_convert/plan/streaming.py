"""Plans a model that goes on from chunk to chunk of its steps, for `--states` and `--decode`.

`plan_stream` takes a plan and gives one in which every recurrence has its initial states as inputs and its
final states as outputs. It refuses, with all reasons at once, recurrences that cannot go on from their last
step, and ops that look across chunks. What is streamed is then proven in chunks by
`verification/streaming.py`: the rules here are told before, the numbers decide.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError, UsageError
from cudnn_convert.graph import control_flow, node_defs, ops
from cudnn_convert.graph.index import INPUT, LENGTHS, Index, split, unique
from cudnn_convert.graph.passes import state_io, subgraphs
from cudnn_convert.graph.passes.state_io import PLACES
from cudnn_convert.graph.time_axis import LOOP, Mixing, TimeAxis, find_time_axis
from cudnn_convert.model import Mode, Part, Recurrence, Signature, StreamState
from cudnn_convert.plan import STREAM, Plan, Streaming, name_states
from cudnn_convert.plan.requests import NEXT

#: Parts of an op's name that are no layer's: of TensorFlow's calls, branches and loops, and of Keras' cells.
_GENERIC: Final = re.compile(
    r"(Cudnn(RNN|LSTM|GRU)\w*|(Stateful|Stateless)?PartitionedCall|cond|while|body|branch_executed|If|"
    r"then|else|StatefulPartitionedCall)(_\d+)?"
)
_SHOWN: Final = 5


#: What to do where nothing else helps, by the flag that asked for states.
_WITHOUT: Final[Mapping[str, str]] = {
    "--states": "convert without --states",
    "--decode": "convert without --decode",
}


def plan_stream(plan: Plan, *, stateless: bool, flag: str = "--states") -> Plan:
    """Plan `plan` with its recurrences' states as inputs and outputs, as `flag` asks for.

    `stateless`: the artifact keeps the signatures of `plan` too, which begin with the source's own states.
    Raises UnsupportedModelError with all reasons at once, UsageError without a recurrence.
    """
    if not plan.recurrences:
        raise UsageError(
            f"{plan.model.path}: {flag}: expected a cuDNN recurrence, found none; {_WITHOUT[flag]}"
        )
    if reasons := [*find_obstacles(plan, flag=flag).values()]:
        raise UnsupportedModelError(plan.model.path, reasons)
    states = _name_states(plan)
    ends = [*plan.signature.outputs.values(), *(state.end for state in states)]
    graph = node_defs.prune(state_io.stream_states(plan.graph, states, defaults=False), ends)
    starts = {state.start for state in states}
    inputs = {key: name for key, name in plan.signature.inputs.items() if split(name)[0] in graph.index.nodes}
    axes = dict.fromkeys(inputs.values(), ()) | dict.fromkeys(starts, (1,))
    time_major = {recurrence.node: recurrence.time_major for recurrence in plan.recurrences}
    time = find_time_axis(graph, axes, ends, time_major)
    if reasons := [*_refuse(plan, graph, time, flag)]:
        raise UnsupportedModelError(plan.model.path, reasons)
    assert time is not None
    return _with_states(plan, graph, states, inputs, time, stateless=stateless)


def _with_states(
    plan: Plan,
    graph: node_defs.Graph,
    states: tuple[StreamState, ...],
    inputs: dict[str, str],
    time: TimeAxis,
    *,
    stateless: bool,
) -> Plan:
    """The plan with its states in signature and graph, which takes `inputs` beside them."""
    signature = Signature(
        inputs | {state.key: state.start for state in states},
        dict(plan.signature.outputs) | {state.next_key: state.end for state in states},
    )
    index = plan.graph.index
    taken = {state: index.data_inputs(index.nodes[state.node])[PLACES[state.kind][0]] for state in states}
    source = Signature(
        {key: plan.source.inputs[key] for key in inputs} | {state.key: taken[state] for state in states},
        dict(plan.source.outputs)
        | {state.next_key: f"{state.node}:{PLACES[state.kind][1]}" for state in states},
    )
    if stateless:
        graph = state_io.stream_states(plan.graph, states, defaults=True)
    begins = {key: name for key, name in plan.source.inputs.items() if key not in inputs}
    return replace(
        plan,
        graph=graph,
        source=source,
        signature=signature,
        parts=(Part(STREAM if stateless else plan.parts[0].name, signature),),
        notes=(*plan.notes, *_notes(plan, states, inputs, stateless=stateless)),
        flags=plan.flags,
        streaming=_streaming(signature, states, time, begins),
        serving=plan if stateless else None,
    )


def stream_assembled(plan: Plan) -> Plan:
    """A plan of weights without a graph, around which one was built, that says how it is run in chunks.

    Its signatures have states already. As it is where one of its recurrences is bidirectional.
    """
    states = name_states(plan.parts, plan.recurrences)
    if any(recurrence.sizes.directions == 2 for recurrence in plan.recurrences):
        return plan
    starts = {state.start for state in states}
    axes = {name: (1,) if name in starts else () for name in plan.signature.inputs.values()}
    time_major = {recurrence.node: recurrence.time_major for recurrence in plan.recurrences}
    outputs = [*plan.signature.outputs.values()]
    time = find_time_axis(plan.graph, axes, outputs, time_major)
    assert time is not None and not (time.mixing or time.strange)
    return replace(plan, streaming=_streaming(plan.signature, states, time))


def _streaming(
    signature: Signature,
    states: tuple[StreamState, ...],
    time: TimeAxis,
    begins: Mapping[str, str] | None = None,
) -> Streaming:
    """How a model of a signature is run in chunks."""
    starts, ends = {state.start for state in states}, {state.end for state in states}
    inputs = {name: key for key, name in signature.inputs.items() if name not in starts}
    outputs = {name: key for key, name in signature.outputs.items() if name not in ends}
    return Streaming(
        states,
        {inputs[name]: axis for name, axis in time.inputs.items() if name in inputs},
        {outputs[name]: axis for name, axis in time.outputs.items() if name in outputs},
        frozenset(inputs[name] for name in time.lengths),
        {inputs[name]: axis for name, axis in time.rows.items() if name in inputs},
        begins or {},
    )


def find_obstacles(plan: Plan, *, flag: str = "--states") -> dict[str, Reason]:
    """Why recurrences of a plan cannot go on from their last step: a line by node, for those that cannot."""
    index = plan.graph.index
    certain, frames = control_flow.certain(index), control_flow.frames(index)
    expected = f"{flag}: expected a recurrence that goes on from its last step"
    lines: dict[str, Reason] = {}
    for recurrence in plan.recurrences:
        node, cure = recurrence.node, None
        what, advice = _find_obstacle(index, recurrence), _WITHOUT[flag]
        if frames.get(node):
            what = "one in a loop, which runs several times in a call"
        elif node not in certain:
            what = "one in a branch, which not every call takes"
            predicate = control_flow.leaving(index, node)
            cure = (
                control_flow.bind(predicate[0], not predicate[1], lead="take it with") if predicate else None
            )
        elif not what and (tensor := _find_computed_lengths(index, recurrence)):
            what, cure = "one whose lengths are no input", _cut_behind(plan, tensor, "make them one with")
        if what:
            lines[node] = Reason(f"{node}: {expected}, found {what}; {cure or advice}", cure)
    return lines


def _find_obstacle(index: Index, recurrence: Recurrence) -> str:
    """Why a recurrence cannot go on from its last step, by what it is and reads; empty if it can."""
    if recurrence.sizes.directions == 2:
        return "a bidirectional one, which needs the end of the sequence first"
    turned = index.maker(index.data_inputs(index.nodes[recurrence.node])[INPUT], _CARRIERS)
    is_reversed = turned.op in ("ReverseV2", "ReverseSequence")
    return f"one that reads its steps in reverse ({turned.name})" if is_reversed else ""


def _find_computed_lengths(index: Index, recurrence: Recurrence) -> str:
    """The tensor of a recurrence's lengths, where that is no input of the model; else empty."""
    if not recurrence.lengths:
        return ""
    name = index.origin(index.data_inputs(index.nodes[recurrence.node])[LENGTHS], ["Identity", "Cast"])
    return "" if index.nodes[split(name)[0]].op in ops.PLACEHOLDERS else name


def _name_states(plan: Plan) -> tuple[StreamState, ...]:
    """The states of all recurrences, with keys and tensor names that nothing else has."""
    taken_keys = {*plan.signature.inputs, *plan.signature.outputs}
    taken_ops = {node.name.lower() for graph in (plan.graph, plan.whole) for node in graph.node}
    states = []
    for recurrence, layer in zip(plan.recurrences, layer_names(plan.recurrences), strict=True):
        for kind in "hc" if recurrence.sizes.mode is Mode.LSTM else "h":
            key = _free(f"{layer}_{kind}", taken_keys, taken_ops)
            names = {"key": key, "next_key": key + NEXT, "start": f"{key}:0", "end": f"{key}{NEXT}:0"}
            states.append(StreamState.of(recurrence, kind, time_major=recurrence.time_major, **names))
    return tuple(states)


def _free(key: str, keys: set[str], ops_taken: set[str]) -> str:
    """`key`, numbered where it or its next one is taken."""
    number, free = 0, key
    while {free, free + NEXT} & keys or {free.lower(), (free + NEXT).lower()} & ops_taken:
        number += 1
        free = f"{key}_{number}"
    keys |= {free, free + NEXT}
    ops_taken |= {free.lower(), (free + NEXT).lower()}
    return free


def layer_names(recurrences: Sequence[Recurrence]) -> list[str]:
    """A name for each recurrence: of its layer, with as many scopes around as tell it from the others."""
    paths = []
    for recurrence in recurrences:
        scopes = [part for part in recurrence.node.split("/") if not _GENERIC.fullmatch(part)]
        paths.append([re.sub(r"\W", "_", scope) for scope in scopes] or ["rnn"])
    names: list[str] = []
    for path in paths:
        others = [other for other in paths if other is not path and other != path]
        depth = next(
            (k for k in range(1, len(path)) if not any(other[-k:] == path[-k:] for other in others)),
            len(path),
        )
        names.append(unique("_".join(path[-depth:]), names))
    return names


def _refuse(plan: Plan, graph: node_defs.Graph, time: TimeAxis | None, flag: str) -> Iterator[Reason]:
    """A line for each reason why the graph with states cannot run in chunks."""
    begin, without = f"{flag}: expected", _WITHOUT[flag]
    if time is None:
        yield Reason(f"inputs: {begin} sizes of which one may be time, found none; {without}")
        return
    index = graph.index
    nodes = [recurrence.node for recurrence in plan.recurrences]
    front = index.ancestors(nodes, control=False)
    mixing = {op.node: op for op in time.mixing}
    shown = _frontier(index, mixing, front)
    for op in shown[:_SHOWN]:
        if op.node in front:
            cure = _cut_behind(plan, f"{op.node}:0", "cut behind it with")
        else:
            cure = subgraphs.Cuts(index, plan.graph.index.nodes).before(op.node, mixing)
        where = ", ".join(name for name in nodes if name in index.descendants([op.node]))
        behind = f", before {where}" if op.node in front and where else ""
        reason = f"{op.node}: {begin} ops that take each step by itself, found {op.what}{behind}"
        yield Reason(f"{reason}; {cure or without}", cure)
    if mixing:
        return
    for node in time.strange:
        reason = f"{node}: {begin} a recurrence over the steps and rows of an input, found one over others"
        yield Reason(f"{reason}; {without}")
    fixed = [key for key, name in plan.signature.inputs.items() if name not in time.inputs]
    if not time.inputs:
        yield Reason(
            f"{', '.join(fixed)}: {begin} an input with an open number of steps, found none; {without}"
        )


def _frontier(index: Index, mixing: Mapping[str, Mixing], front: set[str]) -> list[Mixing]:
    """Of ops before recurrences those with no other behind, of the others those with none before."""
    shown: list[Mixing] = []
    for name, op in mixing.items():
        is_before = name in front
        around = index.descendants([name]) if is_before else index.ancestors([name], control=False)
        around = around & front if is_before else around - front
        is_told = op.what == LOOP and any(other.what == LOOP for other in shown)
        if not (around - {name}) & mixing.keys() and not is_told:
            shown.append(op)
    return shown


#: What carries the result of an op that mixes steps on, without looking at time again.
_CARRIERS: Final = ops.COPIES | frozenset(
    "BiasAdd Squeeze Reshape Transpose Relu Relu6 Elu Tanh Sigmoid".split()
)


def _cut_behind(plan: Plan, tensor: str, lead: str) -> Remedy | None:
    """The remedy that makes a tensor an input, or what carries its result on; None where it is no cut."""
    index, name = plan.graph.index, tensor
    while len(readers := [*index.consumers(*split(name))]) == 1 and readers[0].op in _CARRIERS:
        name = f"{readers[0].name}:0"
    op = split(name)[0]
    if control_flow.frames(index).get(op) or index.nodes[op].op.startswith("TensorArray"):
        return None
    outputs = [split(output)[0] for output in plan.signature.outputs.values()]
    needed = index.ancestors(outputs, control=False, stop=[op])
    kept = [
        f"{key}={plan.source.inputs[key]}"
        for key, given in plan.signature.inputs.items()
        if split(given)[0] in needed - {op}
    ]
    return Remedy({"inputs": (",".join([name, *kept]),)}, lead)


def _notes(
    plan: Plan, states: Sequence[StreamState], inputs: Mapping[str, str], *, stateless: bool
) -> Iterator[str]:
    listed = ", ".join(state.key for state in states)
    begin = f"signature {STREAM} takes" if stateless else "the model takes"
    own = f"{plan.parts[0].name} begins with the source's own"
    ends = own if stateless else "begin a sequence with zeros"
    yield f"states: {begin} {listed} and gives what each is after the last step as ...{NEXT}; {ends}"
    left = [key for key in plan.signature.inputs if key not in inputs]
    if left:
        yield f"states: no input beside them is {', '.join(left)}, which only made states to begin with"
