"""Plans a model for running in chunks of steps, for `--states` and `--decode`.

`plan_stream` takes a plan and gives one in which every recurrence has its initial states as inputs and its
final states as outputs. It refuses, with all reasons at once, recurrences that cannot go on from their last
step, and ops that look across chunks. What is streamed is then proven in chunks by
`verification/streaming.py`: the rules here are told before, the numbers decide.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType
from typing import Final

from cudnn_convert.errors import Reason, Remedy, UnsupportedModelError, UsageError
from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.graph import control_flow, ops
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.index import INPUT, LENGTHS, Index, split, unique
from cudnn_convert.graph.passes import stream_states, subgraphs
from cudnn_convert.graph.passes.stream_states import PLACES
from cudnn_convert.graph.time_axis import LOOP, Mixing, TimeAxis, find_time_axis
from cudnn_convert.model import Mode, Part, Recurrence, Signature
from cudnn_convert.options import Options
from cudnn_convert.plan import ENCODE, STREAM, Plan, Streaming, beginnings, fixed_steps, variable_states
from cudnn_convert.plan.beginnings import Beginning
from cudnn_convert.plan.from_weights import name_states
from cudnn_convert.plan.requests import BEGUN, NEXT, claim_key
from cudnn_convert.values import EncodedTensor, StreamState

#: Parts of an op's name that are no layer's: of TensorFlow's calls, branches and loops, and of Keras' cells.
_GENERIC: Final = re.compile(
    r"(Cudnn(RNN|LSTM|GRU)\w*|(Stateful|Stateless)?PartitionedCall|cond|while|body|branch_executed|If|"
    r"then|else|StatefulPartitionedCall)(_\d+)?"
)
_SHOWN: Final = 5
#: Inputs of a model of which every set may be the same at all steps.
_MOST_INPUTS: Final = 5
_NONE: Final[Mapping[str, int]] = MappingProxyType({})


#: What to do where nothing else helps, by the flag that asked for states.
_WITHOUT: Final[Mapping[str, str]] = {
    "--states": "convert without --states",
    "--decode": "convert without --decode",
}


@dataclass(frozen=True, slots=True)
class _Draft:
    """A draft of a streamed plan: the graph with states as inputs, and known facts.

    `full` has all nodes, `graph` those that a step needs; `encoders` are the ops that need no step. `inputs`
    are the step's by key, without states and what is `encoded`.
    """

    full: Graph
    graph: Graph
    states: tuple[StreamState, ...]
    encoded: tuple[EncodedTensor, ...]
    encoders: frozenset[str]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    time: TimeAxis
    beginning: Beginning


def stream(plan: Plan, options: Options) -> Plan:
    """Plan states of recurrences or variables as inputs and outputs, if requested by `options`.

    Raises UnsupportedModelError with all reasons, UsageError.
    """
    if not options.streams:
        return plan
    if plan.alone:
        return stream_assembled(plan)
    form, flag = options.form, "--states" if options.decode is None else "--decode"
    if any(state.promoted for state in plan.states):
        plan = variable_states.plan_variable_states(plan, options.format)
    else:
        plan = plan_stream(plan, stateless=Keeps.SIGNATURES in form.keeps, form=options.format, flag=flag)
    return replace(plan, flags=(*plan.flags, "--states")) if options.states else plan


def plan_stream(plan: Plan, *, stateless: bool, form: str, flag: str = "--states") -> Plan:
    """Plan `plan` with the recurrences' states as inputs and outputs, for `flag`.

    `stateless`: an artifact of the format `form` keeps the signatures of `plan` too, which begin with the
    source's own states. Raises UnsupportedModelError with all reasons at once, UsageError without a
    recurrence.
    """
    if not plan.recurrences:
        raise UsageError(
            f"{plan.model.path}: {flag}: expected a cuDNN recurrence, found none; {_WITHOUT[flag]}"
        )
    draft = _choose_draft(plan, flag)
    if isinstance(draft, _Draft):
        return _with_states(plan, draft, form, stateless=stateless)
    steps = _find_fixed_steps(plan, flag)
    if steps is None:
        raise UnsupportedModelError(plan.model.path, draft)
    opened, draft = _open(plan, steps, flag)
    streamed = _with_states(opened, draft, form, stateless=stateless)
    return replace(streamed, streaming=replace(streamed.stream, whole=plan))


def _choose_draft(plan: Plan, flag: str, steps: Mapping[str, int] = _NONE) -> _Draft | list[Reason]:
    """Return the plan's graph in chunks, or the reasons against chunks.

    The reasons are those of the graph where no input is the same at all steps. `steps` has the axis of the
    steps of inputs by tensor, where it is known.
    """
    known = {key for key, name in plan.signature.inputs.items() if name in steps}
    drafts = (_draft(plan, still, flag, steps) for still in _list_still(plan) if not still & known)
    first = next(drafts)
    if isinstance(first, _Draft):
        return first
    return next((draft for draft in drafts if isinstance(draft, _Draft)), first)


def _find_fixed_steps(plan: Plan, flag: str) -> int | None:
    """Return the source's fixed number of steps for recurrences able to go on.

    None where the source fixes none.
    """
    groups = (beginnings.find_streamed(plan, still) for still in _list_still(plan))
    able = (group for group in groups if group and not find_obstacles(plan, group, flag=flag))
    counts = (fixed_steps.find_fixed_steps(plan, group) for group in able)
    return next((steps for steps in counts if steps is not None), None)


def _open(plan: Plan, steps: int, flag: str) -> tuple[Plan, _Draft]:
    """Return the plan with an open number of steps, and the graph in chunks.

    Raises UnsupportedModelError where there is none, or more than one.
    """
    opened, reasons = fixed_steps.open_plan(plan, steps, flag=flag, cure=_WITHOUT[flag])
    tried = [(each, _choose_draft(each.plan, flag, each.inputs)) for each in opened]
    fitting = [(each, draft) for each, draft in tried if isinstance(draft, _Draft)]
    if len(fitting) == 1:
        return fitting[0][0].plan, fitting[0][1]
    if fitting:
        name = fixed_steps.find_difference(fitting[0][0], fitting[1][0])
        what = f"expected sizes with one meaning, found {steps}, which may be the number of steps or not"
        reasons = [Reason(f"{name}: {flag}: {what}; {_WITHOUT[flag]}")]
    elif tried and not isinstance(tried[0][1], _Draft):
        reasons = tried[0][1]
    raise UnsupportedModelError(plan.model.path, reasons)


def _list_still(plan: Plan) -> Iterator[frozenset[str]]:
    """Yield the sets of inputs possibly equal at all steps, the smallest first.

    The first set is empty. Each other one has an input with an axis beside the batch, such as what an
    attention looks at.
    """
    yield frozenset()
    keys = [*plan.signature.inputs]
    seen = {
        key: plan.graph.shapes.get_tensor_by_name(name).shape for key, name in plan.signature.inputs.items()
    }
    wide = {key for key, shape in seen.items() if shape.rank is None or shape.rank > 1}
    most = len(keys) - 1 if len(keys) <= _MOST_INPUTS else 1
    for count in range(1, most + 1):
        yield from (frozenset(chosen) for chosen in combinations(keys, count) if wide & {*chosen})


def _draft(plan: Plan, still: frozenset[str], flag: str, steps: Mapping[str, int]) -> _Draft | list[Reason]:
    """Return the plan's graph in chunks, or the reasons against chunks.

    Inputs of the keys `still` are the same at all steps.
    """
    recurrences = beginnings.find_streamed(plan, still)
    if not recurrences:
        what = "expected a recurrence over the steps of an input, found none"
        return [Reason(f"{', '.join(plan.signature.outputs)}: {flag}: {what}; {_WITHOUT[flag]}")]
    if reasons := [*find_obstacles(plan, recurrences, flag=flag).values()]:
        return reasons
    taken_keys = {*plan.signature.inputs, *plan.signature.outputs}
    taken_ops = {node.name.lower() for graph in (plan.graph, plan.whole) for node in graph.node}
    states = _name_states(recurrences, taken_keys, taken_ops)
    full = stream_states.stream_states(plan.graph, states, defaults=False)
    starts = [state.start for state in states]
    moving = [name for key, name in plan.signature.inputs.items() if key not in still]
    ops_of_steps = [split(name)[0] for name in (*moving, *starts)]
    encoders = beginnings.find_encoders(full, ops_of_steps, [recurrence.node for recurrence in recurrences])
    outputs = {key: name for key, name in plan.signature.outputs.items() if split(name)[0] not in encoders}
    ends = [*outputs.values(), *(state.end for state in states)]
    border = beginnings.find_border(prune(full, ends), encoders)
    if lost := [name for name in border if split(name)[0] not in plan.whole.index.nodes]:
        what = "a tensor of the source between an encoder and the steps"
        what = f"{what}, found {lost[0]}, which the source lacks"
        return [Reason(f"{lost[0]}: {flag}: expected {what}; {_WITHOUT[flag]}")]
    encoded = tuple(_name_encoded(name, taken_keys, taken_ops) for name in border)
    full = stream_states.feed_encoded(full, encoded, encoders, defaults=False)
    graph = prune(full, ends)
    inputs = {key: name for key, name in plan.signature.inputs.items() if split(name)[0] in graph.index.nodes}
    fixed = {name for key, name in inputs.items() if key in still} | {each.start for each in encoded}
    axes = dict.fromkeys([*inputs.values(), *fixed], ()) | dict.fromkeys(starts, (1,))
    time_major = {recurrence.node: recurrence.time_major for recurrence in recurrences}
    known = {name: axis for name, axis in steps.items() if name in axes}
    time = find_time_axis(graph, axes, ends, time_major, still=fixed, steps=known)
    if reasons := [*_refuse(plan, graph, time, flag)]:
        return reasons
    assert time is not None
    encoded = tuple(replace(each, rows=time.rows.get(each.start)) for each in encoded)
    entries = dict(plan.signature.inputs) | {each.key: each.start for each in encoded}
    beginning, reasons = beginnings.plan_begin(plan, full, states, time, entries=entries, flag=flag)
    if reasons:
        return reasons
    return _Draft(full, graph, states, encoded, frozenset(encoders), inputs, outputs, time, beginning)


def _with_states(plan: Plan, draft: _Draft, form: str, *, stateless: bool) -> Plan:
    """Return the plan with states in signature and graph."""
    states, encoded, inputs = draft.states, draft.encoded, draft.inputs
    index = plan.graph.index
    streaming = _streaming(draft, plan, stateless=stateless)
    begins = {
        state.key: index.data_inputs(index.nodes[state.node])[PLACES[state.kind][0]] for state in states
    }
    first = {key: state.begin for state in states for key in [streaming.begin_outputs.get(state.key)] if key}
    signature = Signature(
        dict(inputs)
        | {each.key: each.start for each in encoded}
        | {state.key: state.start for state in states},
        dict(draft.outputs) | {state.next_key: state.end for state in states} | first,
    )
    source = Signature(
        {key: plan.source.inputs[key] for key in inputs}
        | {each.key: each.tensor for each in encoded}
        | begins,
        {key: plan.source.outputs[key] for key in draft.outputs}
        | {state.next_key: f"{state.node}:{PLACES[state.kind][1]}" for state in states}
        | {key: begins[state] for state, key in streaming.begin_outputs.items()},
    )
    graph = prune(draft.full, [*signature.tensors, *_ends(streaming.parts)])
    if stateless:
        graph = stream_states.stream_states(plan.graph, states, defaults=True)
        graph = stream_states.feed_encoded(graph, encoded, draft.encoders, defaults=True)
    is_alone = not (stateless or streaming.parts)
    streamed = replace(
        plan,
        graph=graph,
        source=source,
        signature=signature,
        parts=(Part(plan.parts[0].name if is_alone else STREAM, signature),),
        streaming=streaming,
        serving=plan if stateless else None,
    )
    return replace(streamed, notes=(*plan.notes, *_notes(streamed, plan, form, stateless=stateless)))


def _ends(parts: Sequence[Part]) -> list[str]:
    return [name for part in parts for name in part.signature.outputs.values()]


def _streaming(draft: _Draft, plan: Plan, *, stateless: bool) -> Streaming:
    """Return the way to run a model in chunks, and parts beside the steps."""
    own = dict(draft.inputs) | {each.key: each.start for each in draft.encoded}
    streaming = _chunks(Signature(own, draft.outputs), draft.states, draft.time)
    beginning = draft.beginning
    is_apart = stateless or not beginning.values
    needed = draft.full.index.ancestors([split(each.tensor)[0] for each in draft.encoded], control=False)
    read = {key: name for key, name in plan.signature.inputs.items() if split(name)[0] in needed}
    given = {each.key: each.tensor for each in draft.encoded}
    given |= {key: name for key, name in plan.signature.outputs.items() if key not in draft.outputs}
    return replace(
        streaming,
        begins={key: name for key, name in plan.source.inputs.items() if key not in draft.inputs},
        begin=beginning.part if is_apart else None,
        given=beginning.given,
        values=beginning.values,
        encoded=draft.encoded,
        encode=Part(ENCODE, Signature(read, given)) if draft.encoded else None,
        whole=plan,
    )


def stream_assembled(plan: Plan) -> Plan:
    """Add the way to run in chunks to a plan with a graph around weights.

    The graph was built for the weights, and its signatures have states already. The plan is unchanged where
    one of its recurrences is bidirectional.
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
    return replace(plan, streaming=_chunks(plan.signature, states, time))


def _chunks(signature: Signature, states: tuple[StreamState, ...], time: TimeAxis) -> Streaming:
    """Return the way to run a signature's model in chunks, from known axes."""
    starts, ends = {state.start for state in states}, {state.end for state in states}
    inputs = {name: key for key, name in signature.inputs.items() if name not in starts}
    outputs = {name: key for key, name in signature.outputs.items() if name not in ends}
    return Streaming(
        states,
        {inputs[name]: axis for name, axis in time.inputs.items() if name in inputs},
        {outputs[name]: axis for name, axis in time.outputs.items() if name in outputs},
        frozenset(inputs[name] for name in time.lengths),
        {inputs[name]: axis for name, axis in time.rows.items() if name in inputs},
    )


def find_obstacles(
    plan: Plan, recurrences: Sequence[Recurrence], *, flag: str = "--states"
) -> dict[str, Reason]:
    """Return a reason by node for each recurrence unable to continue from the last step."""
    index = plan.graph.index
    certain, frames = control_flow.certain(index), control_flow.frames(index)
    expected = f"{flag}: expected a recurrence that goes on from its last step"
    lines: dict[str, Reason] = {}
    for recurrence in recurrences:
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
    """Return the obstacle to continuing a recurrence from the last step; else empty.

    It is found by what the recurrence is and reads.
    """
    if recurrence.sizes.directions == 2:
        return "a bidirectional one, which needs the end of the sequence first"
    turned = index.maker(index.data_inputs(index.nodes[recurrence.node])[INPUT], _CARRIERS)
    is_reversed = turned.op in ("ReverseV2", "ReverseSequence")
    return f"one that reads its steps in reverse ({turned.name})" if is_reversed else ""


def _find_computed_lengths(index: Index, recurrence: Recurrence) -> str:
    """Return the tensor of a recurrence's lengths, if computed by the model; else empty."""
    if not recurrence.lengths:
        return ""
    name = index.origin(index.data_inputs(index.nodes[recurrence.node])[LENGTHS], ["Identity", "Cast"])
    return "" if index.nodes[split(name)[0]].op in ops.PLACEHOLDERS else name


def _name_states(
    recurrences: Sequence[Recurrence], taken_keys: set[str], taken_ops: set[str]
) -> tuple[StreamState, ...]:
    """Return the states of recurrences, with unique keys and tensor names."""
    states = []
    for recurrence, layer in zip(recurrences, layer_names(recurrences), strict=True):
        for kind in "hc" if recurrence.sizes.mode is Mode.LSTM else "h":
            key = claim_key(f"{layer}_{kind}", (NEXT, BEGUN), taken_keys, taken_ops)
            names = {"key": key, "next_key": key + NEXT, "start": f"{key}:0", "end": f"{key}{NEXT}:0"}
            names["begin"] = f"{key}{BEGUN}:0"
            states.append(StreamState.of(recurrence, kind, time_major=recurrence.time_major, **names))
    return tuple(states)


def _name_encoded(name: str, taken_keys: set[str], taken_ops: set[str]) -> EncodedTensor:
    """Return an input for a tensor common to all steps, named after the op."""
    op, k = split(name)
    scopes = [part for part in op.split("/") if not _GENERIC.fullmatch(part)] or ["encoded"]
    plain = re.sub(r"\W", "_", "_".join(scopes)) + (f"_{k}" if k else "")
    key = claim_key(plain, (), taken_keys, taken_ops)
    return EncodedTensor(key, name, f"{key}:0")


def layer_names(recurrences: Sequence[Recurrence]) -> list[str]:
    """Return a name for each recurrence: the layer, with enough scopes to be unique."""
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


def _refuse(plan: Plan, graph: Graph, time: TimeAxis | None, flag: str) -> Iterator[Reason]:
    """Yield a reason for each obstacle to running the streamed graph in chunks."""
    begin, without = f"{flag}: expected", _WITHOUT[flag]
    if time is None:
        yield Reason(f"inputs: {begin} an axis that may be time, found none; {without}")
        return
    index = graph.index
    nodes = [recurrence.node for recurrence in plan.recurrences if recurrence.node in index.nodes]
    front = index.ancestors(nodes, control=False)
    mixing = {op.node: op for op in time.mixing}
    shown = _frontier(index, mixing, front)
    for op in shown[:_SHOWN]:
        if op.node in front:
            cure = _cut_behind(plan, f"{op.node}:0", "cut the graph behind it with")
        else:
            user, outputs = plan.find_user_graph(plan.signature), plan.signature.outputs
            cure = subgraphs.CutFinder(index, user, outputs=outputs).before(op.node, mixing)
        where = ", ".join(name for name in nodes if name in index.descendants([op.node]))
        behind = f", before {where}" if op.node in front and where else ""
        reason = f"{op.node}: {begin} ops that take each step by itself, found {op.what}{behind}"
        yield Reason(f"{reason}; {cure or without}", cure)
    if mixing:
        return
    for node in time.strange:
        reason = (
            f"{node}: {begin} a recurrence over the steps and rows of an input, found one over other axes"
        )
        yield Reason(f"{reason}; {without}")
    fixed = [key for key, name in plan.signature.inputs.items() if name not in time.inputs]
    if not time.inputs:
        yield Reason(
            f"{', '.join(fixed)}: {begin} an input with an open number of steps, found none; {without}"
        )


def _frontier(index: Index, mixing: Mapping[str, Mixing], front: set[str]) -> list[Mixing]:
    """Return the mixing ops nearest to recurrences, on both sides.

    Of ops before recurrences those with no other behind, of the others those with none before.
    """
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
    """Return the remedy for making a tensor, or a carrier of the result, an input.

    None where that is no cut.
    """
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


def _notes(plan: Plan, source: Plan, form: str, *, stateless: bool) -> Iterator[str]:
    streaming = plan.stream
    listed = ", ".join(state.key for state in streaming.states)
    begin = f"signature {STREAM} takes" if stateless else "the model takes"
    how = beginnings.describe_begin(streaming, form)
    own = f", as {source.parts[0].name} does" if stateless and how.endswith("zeros") else ""
    yield f"states: {begin} {listed} and gives what each is after the last step as ...{NEXT}; {how}{own}"
    if streaming.encode is not None:
        encoding = streaming.encode.signature
        inputs, outputs = ", ".join(encoding.inputs), ", ".join(encoding.outputs)
        what = f"signature {ENCODE}" if stateless else f"{ENCODE}.{form}"
        if Keeps.TENSOR_NAMES in FORMATS[form].keeps:
            what, outputs = "the graph", ", ".join(encoding.outputs.values())
        yield f"states: {what} makes {outputs} of {inputs}, once for all steps"
    left = [key for key in source.signature.inputs if key not in plan.signature.inputs]
    before = {key for part in streaming.parts for key in part.signature.inputs}
    if only := [key for key in left if key not in before]:
        yield f"states: no input beside them is {', '.join(only)}, which only made states to begin with"
