"""Plans a model that goes on from chunk to chunk of its steps, for `--states`.

`plan_stream` takes a plan and gives one in which every recurrence has its initial states as inputs and its
final states as outputs. It refuses, with all reasons at once, recurrences that cannot go on from their last
step, and ops that look across chunks. What is streamed is then proven in chunks by
`verification/streaming.py`: the rules here are told before, the numbers decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError, UsageError
from cudnn_convert.graph import control_flow, node_defs, ops
from cudnn_convert.graph.index import INPUT, LENGTHS, Index, split, unique
from cudnn_convert.graph.passes import stream_states, subgraphs
from cudnn_convert.graph.passes.stream_states import PLACES
from cudnn_convert.graph.time_axis import LOOP, Mixing, TimeAxis, find_time_axis
from cudnn_convert.model import Mode, Part, Recurrence, Signature, StreamState
from cudnn_convert.plan import Plan, Streaming, name_states
from cudnn_convert.plan.requests import NEXT

#: The signature of a SavedModel that takes and gives states.
STREAM: Final = "stream"
#: Parts of an op's name that are no layer's: of TensorFlow's calls, branches and loops, and of Keras' cells.
_GENERIC: Final = re.compile(
    r"(Cudnn(RNN|LSTM|GRU)\w*|(Stateful|Stateless)?PartitionedCall|cond|while|body|branch_executed|If|"
    r"then|else|StatefulPartitionedCall)(_\d+)?"
)
_SHOWN: Final = 5


def plan_stream(plan: Plan, *, stateless: bool) -> Plan:
    """Plan `plan` with its recurrences' states as inputs and outputs.

    `stateless`: the artifact keeps the signatures of `plan` too, which begin with the source's own states.
    Raises UnsupportedModelError with all reasons at once, UsageError without a recurrence.
    """
    if not plan.recurrences:
        raise UsageError(
            f"{plan.model.path}: --states: expected a cuDNN recurrence, found none; leave it out"
        )
    reasons = [*map(Reason, find_obstacles(plan).values())]
    if reasons:
        raise UnsupportedModelError(plan.model.path, reasons)
    states = _name_states(plan)
    ends = [*plan.signature.outputs.values(), *(state.end for state in states)]
    graph = node_defs.prune(stream_states.stream_states(plan.graph, states, defaults=False), ends)
    starts = {state.start for state in states}
    inputs = {key: name for key, name in plan.signature.inputs.items() if split(name)[0] in graph.index.nodes}
    axes = dict.fromkeys(inputs.values(), ()) | dict.fromkeys(starts, (1,))
    time_major = {recurrence.node: recurrence.time_major for recurrence in plan.recurrences}
    time = find_time_axis(graph, axes, ends, time_major)
    if reasons := [*_refuse(plan, graph, time, [*plan.signature.outputs.values()])]:
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
        graph = stream_states.stream_states(plan.graph, states, defaults=True)
    begins = {key: name for key, name in plan.source.inputs.items() if key not in inputs}
    return replace(
        plan,
        graph=graph,
        source=source,
        signature=signature,
        parts=(Part(STREAM if stateless else plan.parts[0].name, signature),),
        notes=(*plan.notes, *_notes(plan, states, inputs, stateless=stateless)),
        flags=(*plan.flags, "--states"),
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


def find_obstacles(plan: Plan) -> dict[str, str]:
    """Why recurrences of a plan cannot go on from their last step: a line by node, for those that cannot."""
    index = plan.graph.index
    certain, frames = control_flow.certain(index), control_flow.frames(index)
    lines = {}
    for recurrence in plan.recurrences:
        what = _obstacle(index, recurrence)
        if frames.get(recurrence.node):
            what = "one in a loop, which runs several times in a call; choose --outputs before the loop"
        elif recurrence.node not in certain:
            what = "one in a branch, which not every call takes; bind its predicate with --set"
        if what:
            expected = "--states: expected a recurrence that goes on from its last step"
            lines[recurrence.node] = f"{recurrence.node}: {expected}, found {what}"
    return lines


def _obstacle(index: Index, recurrence: Recurrence) -> str:
    """Why a recurrence cannot go on from its last step, by what it is and takes; empty if it can."""
    without = "convert without --states"
    if recurrence.sizes.directions == 2:
        return f"a bidirectional one, which needs the end of the sequence first; {without}"
    inputs = index.data_inputs(index.nodes[recurrence.node])
    turned = index.maker(inputs[INPUT], _CARRIERS)
    if turned.op in ("ReverseV2", "ReverseSequence"):
        return f"one that reads its steps in reverse ({turned.name}); {without}"
    if recurrence.lengths and index.maker(inputs[LENGTHS], ["Identity", "Cast"]).op not in ops.PLACEHOLDERS:
        name = index.origin(inputs[LENGTHS], ["Identity", "Cast"])
        return f"one whose lengths are no input; make them one with --inputs {name} beside the others"
    return ""


def _name_states(plan: Plan) -> tuple[StreamState, ...]:
    """The states of all recurrences, with keys and tensor names that nothing else has."""
    taken_keys = {*plan.signature.inputs, *plan.signature.outputs}
    taken_ops = {name.lower() for name in plan.graph.index.nodes} | {
        node.name.lower() for node in plan.whole.node
    }
    states = []
    for recurrence, layer in zip(plan.recurrences, layer_names(plan.recurrences), strict=True):
        sizes = recurrence.sizes
        widths = {"h": sizes.width} | ({"c": sizes.units} if sizes.mode is Mode.LSTM else {})
        for kind, width in widths.items():
            key = _free(f"{layer}_{kind}", taken_keys, taken_ops)
            states.append(
                StreamState(
                    node=recurrence.node,
                    kind=kind,
                    time_major=recurrence.time_major,
                    key=key,
                    next_key=key + NEXT,
                    start=f"{key}:0",
                    end=f"{key}{NEXT}:0",
                    depth=sizes.layers * sizes.directions,
                    width=width,
                )
            )
    return tuple(states)


def _free(key: str, keys: set[str], ops_taken: set[str]) -> str:
    """`key`, numbered where it or its next one is taken."""
    number, found = 0, key
    while {found, found + NEXT} & keys or {found.lower(), (found + NEXT).lower()} & ops_taken:
        number += 1
        found = f"{key}_{number}"
    keys |= {found, found + NEXT}
    ops_taken |= {found.lower(), (found + NEXT).lower()}
    return found


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


def _refuse(
    plan: Plan, graph: node_defs.Graph, time: TimeAxis | None, outputs: Sequence[str]
) -> Iterator[Reason]:
    """A line for each reason why the graph with states cannot run in chunks."""
    begin = "--states: expected"
    if time is None:
        yield Reason(f"inputs: {begin} sizes of which one may be time, found none; refine them with --inputs")
        return
    index = graph.index
    nodes = [recurrence.node for recurrence in plan.recurrences]
    front = index.ancestors(nodes, control=False)
    mixing = {found.node: found for found in time.mixing}
    shown = _frontier(index, mixing, front)
    for found in shown[:_SHOWN]:
        cure = _cure(plan, index, found.node, mixing, before=found.node not in front)
        where = ", ".join(name for name in nodes if name in index.descendants([found.node]))
        behind = f", before {where}" if found.node in front and where else ""
        yield Reason(
            f"{found.node}: {begin} ops that take each step by itself, found {found.what}{behind}; "
            f"{cure or 'choose --inputs behind it or --outputs before it'}",
            cure,
        )
    if mixing:
        return
    for node in time.strange:
        yield Reason(
            f"{node}: {begin} a recurrence over the steps and rows of an input, found one over others; "
            "choose --inputs behind what changes them"
        )
    fixed = [key for key, name in plan.signature.inputs.items() if name not in time.inputs]
    if not time.inputs:
        yield Reason(
            f"{', '.join(fixed)}: {begin} an input with an open number of steps, found none; convert without "
            "--states"
        )


def _frontier(index: Index, mixing: Mapping[str, Mixing], front: set[str]) -> list[Mixing]:
    """Of ops before recurrences those with no other behind, of the others those with none before."""
    shown: list[Mixing] = []
    for name, found in mixing.items():
        is_before = name in front
        around = index.descendants([name]) if is_before else index.ancestors([name], control=False)
        around = around & front if is_before else around - front
        is_told = found.what == LOOP and any(other.what == LOOP for other in shown)
        if not (around - {name}) & mixing.keys() and not is_told:
            shown.append(found)
    return shown


#: What carries the result of an op that mixes steps on, without looking at time again.
_CARRIERS: Final = ops.COPIES | frozenset(
    "BiasAdd Squeeze Reshape Transpose Relu Relu6 Elu Tanh Sigmoid".split()
)


def _cure(
    plan: Plan, index: Index, node: str, mixing: Mapping[str, Mixing], *, before: bool
) -> Remedy | None:
    """The cut that leaves an op out: an output before it, or an input behind it."""
    if before:
        return subgraphs.Cuts(index, {op.name for op in plan.graph.node}).before(node, mixing)
    behind = node
    while len(readers := [*index.consumers(behind)]) == 1 and readers[0].op in _CARRIERS:
        behind = readers[0].name
    outputs = [split(name)[0] for name in plan.signature.outputs.values()]
    needed = index.ancestors(outputs, control=False, stop=[behind])
    if index.nodes[behind].op in ops.CUDNN or node not in plan.graph.index.nodes:
        return None
    inputs = [
        f"{key}={plan.source.inputs[key]}"
        for key, name in plan.signature.inputs.items()
        if split(name)[0] in needed - {behind}
    ]
    return Remedy({"inputs": (",".join([f"{behind}:0", *inputs]),)}, "cut behind it with")


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
