"""Plans a model with a graph: the subgraph between inputs and outputs.

`plan_graph` inlines all calls, resolves the request, and takes the graph through the passes of `plan.passes`:
from what the file has to what inference needs between the inputs and outputs of the request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cudnn_convert.errors import AmbiguousSourceError, Reason, Remedy, UsageError
from cudnn_convert.formats import Keeps
from cudnn_convert.graph import control_flow, moving_averages, ops, recurrent_state, session
from cudnn_convert.graph.graph import Graph, share_without_devices
from cudnn_convert.graph.index import Index, NodeDef, split
from cudnn_convert.graph.passes import batch_statistics, inference, inlining, replicas, state_io, subgraphs
from cudnn_convert.graph.passes.run import run_passes
from cudnn_convert.graph.passes.subgraphs import InputCut, ParsedFeature
from cudnn_convert.model import SERVING, Model, Part, Recurrence, Signature
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, axes, notes, obstacles, passes, requests, statistics
from cudnn_convert.plan.from_weights import warn_of_lost_graph
from cudnn_convert.plan.moving_averages import describe_unused_averages, use_moving_averages
from cudnn_convert.plan.notes import Spec
from cudnn_convert.plan.requests import Request, request
from cudnn_convert.plan.source import convention_of, ensure_graph
from cudnn_convert.recurrences import resolve, restored_blobs


@dataclass(frozen=True, slots=True)
class Section:
    """A graph cut by a request, before and after the passes, with signatures.

    `cut` has the graph before simplification, `settled.graph` what inference needs of it, with its state
    placed. `source` has the signature by the file's tensor names, `signature` by those of the graphs, both
    with the next values of state that became outputs; `asked` is `source` without these. `streams`, and
    `features` of tf.Examples, were cut without being asked for. `unread` are inputs of the file's signature
    that were left out. `statistics` tells what stands for statistics of the batch.
    """

    cut: statistics.CutGraph
    settled: state_io.Settled
    source: Signature
    signature: Signature
    asked: Signature
    streams: tuple[str, ...]
    features: tuple[ParsedFeature, ...]
    unread: tuple[Spec, ...]
    statistics: statistics.Decision


def cut_section(model: Model, graph: Graph, request: Request, options: Options, *, forgets: bool) -> Section:
    """Cut and simplify a graph, and place the state. Raises UsageError, UnsupportedModelError.

    `forgets`: recurrent state begins anew with each call. With `--states` other state becomes inputs and
    outputs. Where tf.Examples cannot stay inputs, the features parsed out of them become inputs.
    """
    index, names, keeps = graph.index, request.names, options.form.keeps
    keeps_examples = model.together or (Keeps.STRINGS in keeps and not options.draws_inputs)
    cuts = [InputCut(spec.tensor, spec.shape) for spec in request.inputs if spec.tensor not in request.states]
    stop = [*(cut.tensor for cut in cuts), *request.constants]
    streams = [] if request.complete else subgraphs.find_input_pipelines(index, names, stop=stop)
    cuts += [InputCut(name) for name in streams]
    stop += streams
    parsed = [] if request.complete or keeps_examples else subgraphs.features(index, names, stop=stop)
    cuts += [InputCut(cut.tensor) for cut in parsed]

    def cut_out(source: Graph) -> tuple[statistics.CutGraph, Graph, dict[str, str]]:
        whole, moved = subgraphs.extract_subgraph(
            source, inputs=cuts, constants=request.constants, outputs=names
        )
        whole, kept = recurrent_state.read_values(whole, [moved.get(name, name) for name in names])
        flagged, flags = inference.bind_stored_flags(whole, _read_flags(model, whole))
        simple = inference.simplify_for_inference(flagged, kept)
        return statistics.CutGraph(whole, kept, request.constants, tuple(flags)), simple, moved

    cut, stateful, moved = cut_out(graph)
    decision = statistics.decide(model, graph, cut, stateful)
    if decision.averages:
        shape = partial(statistics.read_shape, model)
        cut, stateful, moved = cut_out(batch_statistics.take_averages(graph, decision.averages, shape))
    whole, kept = cut.graph, cut.outputs
    settled = state_io.place_state(
        model,
        stateful,
        graph,
        kept,
        keep=Keeps.VARIABLES in keeps,
        forget=forgets,
        promote=options.states,
        shapes={spec.tensor: spec.shape for spec in request.inputs if spec.tensor in request.states},
        asked={
            new: request.writes[old] for new, old in zip(kept, names, strict=True) if old in request.writes
        },
    )
    if any(state.forgotten for state in settled.carried):  # what asked for their shape is known now
        simple = inference.simplify_for_inference(settled.graph, settled.outputs)
        settled = replace(settled, graph=simple)
    unread = requests.find_unread(index, request)
    if options.form.has_layers or model.has_functions:  # layers or functions still take them
        beside = [index.nodes[split(spec.tensor)[0]] for spec in unread]
        whole, simple = (_add_nodes(each, beside) for each in (whole, settled.graph))
        cut = replace(cut, graph=whole)
        settled, unread = replace(settled, graph=simple), ()
    keys = notes.key_tensors(_inputs(model, settled, moved, request, parsed))
    ends = requests.next_outputs(settled, stateful, keys, settled.outputs)
    source = Signature(keys, notes.key_tensors([*request.outputs, *(spec for spec, _ in ends)]))
    tensors = [*settled.outputs, *(name for _, name in ends)]
    union = Signature(
        {key: moved.get(name, name) for key, name in keys.items()},
        dict(zip(source.outputs, tensors, strict=True)),
    )
    asked = Signature(keys, dict(list(source.outputs.items())[: len(names)]))
    return Section(cut, settled, source, union, asked, tuple(streams), tuple(parsed), tuple(unread), decision)


def _read_flags(model: Model, graph: Graph) -> dict[str, float]:
    """Return the values of scalar variables read but unassigned by `graph`, by op."""
    index = graph.index
    written = {recurrent_state.root(index, node.name) for node in graph.node if node.op in ops.WRITES}
    flags = {}
    for node in graph.node:
        value = model.variables.get(session.checkpoint_key(node)) if node.op in ops.VARIABLES else None
        if value is not None and node.name not in written and value.shape == ():
            flags[node.name] = value.read().item()
    return flags


def _add_nodes(graph: Graph, nodes: Sequence[NodeDef]) -> Graph:
    return share_without_devices(Graph(graph, [*graph.node, *nodes])) if nodes else graph


def _inputs(
    model: Model,
    settled: state_io.Settled,
    moved: Mapping[str, str],
    request: Request,
    parsed: Sequence[ParsedFeature],
) -> list[Spec]:
    """List the inputs of the cut graph in the request's order, by source names.

    State that became an input need not be requested. Raises UsageError for missing or unneeded inputs.
    """
    graph, free = settled.graph, [state.state.tensor for state in settled.leaving]
    origin = {name: source for source, name in moved.items()}
    keys = {feature.tensor: Spec(feature.key, feature.tensor) for feature in parsed}
    keys |= {spec.tensor: spec for spec in request.inputs}
    # Without --inputs every stream was cut; with it, one may be left where inference goes.
    nodes = graph.node
    missing = subgraphs.find_input_pipelines(graph.index, [f"{node.name}:0" for node in nodes], stop=())
    specs = []
    for node in nodes:
        if node.op in ops.PLACEHOLDERS:
            name = origin.get(f"{node.name}:0", f"{node.name}:0")
            specs.append(keys.get(name, Spec(None, name)))
            missing += [] if name in keys or name in free or not request.complete else [name]
    if missing:
        advice = "add them, or bind them with --set"
        raise UsageError(f"{model.path}: --inputs: the outputs also need {', '.join(missing)}; {advice}")
    unused = [spec.tensor for spec in request.inputs if spec not in specs]
    if unused and request.complete:
        listed = ", ".join(unused)
        raise UsageError(f"{model.path}: --inputs: the outputs do not need {listed}; leave them out")
    order = {spec.tensor: position for position, spec in enumerate(request.inputs)}
    return sorted(specs, key=lambda spec: order.get(spec.tensor, len(order)))


def plan_model(model: Model, options: Options) -> Plan:
    """Plan a model by `options`, with a graph built for weights or layers.

    Raises UnsupportedModelError, AmbiguousSourceError, UsageError.
    """
    forgets = options.streams and not model.is_graphless
    plan = plan_graph(ensure_graph(model, options), options, forgets=forgets)
    return replace(plan, alone=True, warnings=warn_of_lost_graph(model, plan)) if model.is_graphless else plan


def plan_graph(model: Model, options: Options, *, forgets: bool = False) -> Plan:
    """Plan a model with a graph.

    Where the format does not keep variables, state becomes inputs and outputs; if it `forgets`, each call
    begins with the state that the source holds. With `--states`, what a graph without recurrences reads and
    writes in variables becomes inputs and outputs. The layers of a format of layers take all inputs of the
    file. Raises as `plan_model`.
    """
    model = restored_blobs.with_restored_blobs(model)
    model, copy = use_moving_averages(inline_model(model), options.weights)
    original = Graph.of(model.graph)
    index = original.index
    wanted = request(model, original, options)
    source = run_passes(original, passes.BEFORE_CUT, wanted.names)
    model = replace(model, graph=source)
    section = cut_section(model, source, wanted, options, forgets=forgets)
    model = section.settled.model
    simple = section.settled.graph
    on_cpu = passes.list_cpu_passes(carries_layouts=Keeps.CHANNELS_FIRST not in options.form.keeps)
    graph = run_passes(simple, on_cpu, section.signature.tensors)
    left = _without_training(model, index, wanted, graph)
    chosen = not options.outputs and not wanted.given
    hint = notes.note_outputs(section.asked) if chosen else None
    obstacles.check_runs_on_cpu(
        model.path,
        graph,
        outputs=section.signature.outputs,
        hint=hint,
        asked=section.statistics.asked,
        cut=section.cut,
    )
    recurrences = resolve.recurrences(model, graph, copy=copy, convention=convention_of(options))
    session.check_values(
        model.path, graph, model.variables, decoded={recurrence.shared for recurrence in recurrences}
    )
    graph = axes.state_widths(graph, [*section.signature.inputs.values()], recurrences)
    choices = (
        *model.notes,
        *notes.notes(section.asked, recurrences, section.streams, chosen_here=chosen),
        *(() if options.signature else notes.note_signatures(model.signatures, wanted.given)),
        *notes.note_examples(section.features),
        *notes.note_other_outputs(wanted.choice.left, wanted.names),
        *notes.note_read_by_training(wanted.choice.beside, wanted.names),
        *notes.note_unread(section.unread),
        *notes.note_bound(wanted.bound),
        *notes.untaken(left),
        *section.statistics.notes,
        *notes.note_flags(section.cut.flags),
        *replicas.describe(original, simple.index.nodes),
        *(() if options.form.has_layers else obstacles.note_gpu_ops(simple)),
        *notes.note_padding(original.index, recurrences),
        *describe_unused_averages(model, options.weights, _variables(graph, recurrences)),
        *requests.state_notes(
            section.settled,
            _list_dropped_updates(index, graph, section.signature.outputs.values()),
            wanted.names,
        ),
    )
    shapes = {spec.tensor: spec.shape for spec in wanted.inputs if spec.shape is not None}
    # A SavedModel that stays whole is asked for by no flag at all.
    repeated = requests.without_promoted(section.source, section.settled)
    flags = notes.flags(repeated, shapes, options.set) if not model.has_functions else ()
    flags += () if options.weights == "auto" else (f"--weights={options.weights}",)
    parts = _parts(model, wanted.given, section.signature)
    words = (f"{key}={tensor}" for key, tensor in section.source.inputs.items())
    named = dict(zip(section.signature.inputs.values(), words, strict=True))
    fills = session.fills(model, graph, named, section.signature.outputs.values())
    whole, graph = (session.with_fills(each, model, fills) for each in (section.cut.graph, graph))
    return Plan(
        model, whole, graph, section.source, section.signature, parts, recurrences, choices, flags,
        section.settled.carried, fills,
    )  # fmt: skip


def _without_training(model: Model, index: Index, wanted: Request, graph: Graph) -> list[str]:
    """Return the training recurrences in branches absent from the planned `graph`.

    Raises AmbiguousSourceError where the graph has one and the user did not say so.
    """
    kept = {node.name for node in graph.node}
    bound = {*wanted.constants, *(spec.tensor for spec in wanted.inputs)}
    cures: dict[str, tuple[Remedy, list[str]]] = {}
    for name in wanted.choice.training:
        predicates = control_flow.leaving(index, name)
        if name in kept and not (predicates and f"{predicates[0]}:0" in bound):
            outputs = ",".join(wanted.names)
            cure = control_flow.bind(*predicates) if predicates else Remedy({"outputs": (outputs,)})
            cures.setdefault(str(cure), (cure, []))[1].append(name)
    if cures:
        begin = f"outputs: {', '.join(wanted.names)} may come from"
        reasons = [
            Reason(f"{begin} {', '.join(names)}, meant for training; choose with {cure}", cure)
            for cure, names in cures.values()
        ]
        raise AmbiguousSourceError(model.path, reasons)
    return [name for name in wanted.choice.training if name not in kept]


def _list_dropped_updates(index: Index, graph: Graph, outputs: Iterable[str]) -> list[tuple[str, str]]:
    """Return the updates `(op, variable)` of recurrent state missing from `graph`, except averages."""
    needed = graph.index.ancestors((split(name)[0] for name in outputs), control=False)
    averages = moving_averages.list_averages(index, needed)
    updates = recurrent_state.find_dropped_updates(index, graph)
    return [(op, variable) for op, variable in updates if variable not in averages]


def _variables(graph: Graph, recurrences: Sequence[Recurrence]) -> set[str]:
    """Return the names of possible weight variables of a graph and of recurrences."""
    return {node.name for node in graph.node} | {recurrence.shared for recurrence in recurrences}


def inline_model(model: Model) -> Model:
    """Return the model with a flat `Graph`, where functions are free of cuDNN nodes.

    If it has signatures, functions are inlined only for them and the initializers.
    """
    graph = Graph.of(model.graph)
    ends = [name for signature in model.signatures.values() for name in signature.tensors]
    keep = [*ends, *model.initializers] if ends else [node.name for node in graph.node]
    return replace(model, graph=inlining.flatten(graph, keep))


def _parts(model: Model, given: Sequence[Part], union: Signature) -> tuple[Part, ...]:
    """Return the parts in the tensors of the cut graph."""
    if not model.together or not given:
        return (Part(SERVING, union),)

    def of(part: Part) -> Signature:
        kept, prefix = part.signature, part.prefix
        return Signature(
            {key: union.inputs[prefix + key] for key in kept.inputs if prefix + key in union.inputs},
            {key: union.outputs[prefix + key] for key in kept.outputs},
        )

    return tuple(Part(part.name, of(part), part.prefix) for part in given)
