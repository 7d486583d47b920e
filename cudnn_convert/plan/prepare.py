"""Makes a plan from a model and options; plans weights that have no graph.

TensorFlow is imported for graphs only. Of weights without a graph each recurrence becomes a signature.
`use_moving_averages` replaces variables by their averages for `--weights ema`. `refuse` lists recurrences
that a checkpoint of CPU-compatible cells cannot store.
"""

import keyword
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert import context
from cudnn_convert.errors import RefusalError, UnsupportedModelError, UsageError, first_line
from cudnn_convert.formats import FORMATS
from cudnn_convert.graph import ops
from cudnn_convert.graph.index import unique
from cudnn_convert.keras import cut_layers
from cudnn_convert.keras.config import channels_first, classes, layer_tree
from cudnn_convert.model import (
    Architecture,
    Array,
    Convention,
    KerasFile,
    Mode,
    Model,
    Part,
    Recurrence,
    Signature,
)
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, applicable, stream_singles
from cudnn_convert.plan.notes import no_numbers
from cudnn_convert.read import architecture_file, checkpoint, keras_checkpoint, keras_hdf5, read, takes_tag
from cudnn_convert.recurrences import graphless, named_weights, weight_copies
from cudnn_convert.recurrences.graphless import Alone, Described, Interface, Single


def read_source(source: Path, options: Options, *, tag: str | None) -> Model:
    """Read the model at `source`, with the layers or the graph of `--architecture`.

    Raises as `read` does, UsageError.
    """
    context.report_progress("reading")
    return _with_architecture(read(source, tag=tag, trust=options.trust), options)


def read_shared(
    source: Path, options: Options, shared: Collection[str]
) -> tuple[Model, Options, tuple[str, ...]]:
    """Read the model at `source` as `read_source`, after `shared` options that mean nothing for its kind.

    The options come back without these, with a note on each.
    """
    context.report_progress("reading")
    tag = None if "tag" in shared and not takes_tag(source) else options.tag
    model = read(source, tag=tag, trust=options.trust)
    options, notes = applicable.leave_out(model, options, shared)
    return _with_architecture(model, options), options, notes


def _with_architecture(model: Model, options: Options) -> Model:
    """A model with the layers or the graph of `--architecture`, where it is given. Raises UsageError."""
    if options.architecture is None:
        return _translate_older(model)
    if model.keras is KerasFile.HDF5:
        return _translate_older(keras_hdf5.with_architecture(model, options.architecture))
    if model.keras is not None or model.graph is not None:
        expected = "weights of Keras, or a checkpoint without .meta"
        raise UsageError(f"--architecture: expected {expected}, found {model.kind} {model.path}")
    if architecture_file.is_config(options.architecture):
        return _translate_older(keras_checkpoint.with_architecture(model, options.architecture))
    return checkpoint.with_graph(model, options.architecture)


def _translate_older(model: Model) -> Model:
    """A model of Keras 1 as one of Keras 2; others unchanged."""
    if model.architecture is None:
        return model
    from cudnn_convert.keras import keras1

    return keras1.translate_model(model)


def cut_at_layers(model: Model, options: Options) -> tuple[Model, Options]:
    """Cut a Keras model at the layers that `--outputs` names, and leave these out of the options.

    Both are unchanged where outputs are tensors of a graph. Raises UsageError for a layer that is not there.
    """
    if not cut_layers.names_layers(model, options.outputs):
        return model, options
    return cut_layers.cut_at_layers(model, options.outputs), replace(options, outputs=())


def is_portable(model: Model, options: Options) -> bool:
    """Whether the source is what was asked for: it runs on a CPU unchanged, and the format keeps its kind."""
    if stays_whole(model, options):
        from cudnn_convert.recurrences import saved_functions

        assert model.saved is not None
        return not any(saved_functions.needing_gpu(meta) for meta in model.saved.meta_graphs)
    if model.architecture is None or _asks_for_another(options) or options.architecture is not None:
        return False
    if options.format != _own_format(model.keras, model.architecture):
        return False
    from cudnn_convert.keras import cpu_layers

    is_known = layer_tree.is_model(model.architecture.config)
    keras3 = options.form.is_keras3
    is_plain = not (
        cpu_layers.has_cudnn(model.architecture)
        or channels_first.find_layers(model.architecture, keras3=keras3)
    )
    return is_known and is_plain


def _own_format(kind: KerasFile | None, architecture: Architecture) -> str | None:
    """The format that a Keras file has already; None where today's libraries do not open it as it is."""
    if architecture.translated:
        return None
    if architecture.is_keras3:  # Keras 3 finds no operations in HDF5 files
        return "keras" if kind is KerasFile.ARCHIVE else None
    is_keras2 = architecture.keras_version.partition(".")[0] == "2"
    return "h5" if kind is KerasFile.HDF5 and is_keras2 else None


def needs_gpu(model: Model) -> bool:
    """Whether a model has cuDNN's ops or layers, or is weights of such."""
    if model.saved is not None:
        from cudnn_convert.recurrences import saved_functions

        return any(saved_functions.needing_gpu(meta) for meta in model.saved.meta_graphs)
    if model.architecture is not None:
        from cudnn_convert.keras import cpu_layers

        return cpu_layers.has_cudnn(model.architecture)
    if model.graph is None:
        return True
    bodies = (node for function in model.graph.library.function for node in function.node_def)
    return any(node.op in ops.CUDNN for node in (*model.graph.node, *bodies))


def make_plan(model: Model, options: Options) -> Plan:
    """Plan a model that was read.

    Raises as `from_graph` and `from_weights` do, UsageError.
    """
    context.report_progress("planning")
    model, options = cut_at_layers(model, options)
    convention = Convention(options.gate_order, options.forget_bias)
    _refuse_keras_flags(model, options)
    _require_layers(model, options)
    form = options.form
    is_graphless = model.graph is None and model.architecture is None
    if options.decode and is_graphless:
        expected = f"--decode {options.decode}: expected a model with its graph"
        cure = "give the source that it was trained in, or convert without --decode"
        raise UsageError(f"{expected}, found {model.kind} {model.path}; {cure}")
    if options.states and not (form.takes_states or is_graphless):
        formats = ", ".join(name for name, form in FORMATS.items() if form.takes_states)
        raise UsageError(f"--states: expected --format {formats}, found {options.format}")
    if form.alone or _needs_no_graph(model, options):
        plan = _plan_alone(model, options, convention)
        plan = plan_layers(plan, options) if options.recurrences_only else plan
        lost = warn_of_lost_graph(model, plan) if is_graphless and not _is_meant_alone(options) else ()
        plan = replace(plan, alone=True, warnings=lost)
        return stream_singles(plan) if options.states else plan
    from cudnn_convert.graph import session
    from cudnn_convert.plan import decoding, obstacles, streaming
    from cudnn_convert.plan.from_graph import plan_graph

    drawn = options.verify and options.data is None and options.golden is None
    plan = plan_graph(
        ensure_graph(model, options),
        inputs=options.inputs,
        outputs=options.outputs,
        constants=options.set,
        signature=options.signature,
        weights=options.weights,
        convention=convention,
        keeps_variables=form.keeps_variables,
        keeps_examples=form.keeps_strings and not drawn,
        forgets=options.streams and not is_graphless,
        promotes=options.states,
        for_layers=form.layers,
        carries_layouts=not form.is_channels_first,
    )
    plan = replace(plan, alone=is_graphless, warnings=warn_of_lost_graph(model, plan) if is_graphless else ())
    if not form.keeps_tables:
        words = (f"{key}={tensor}" for key, tensor in plan.source.inputs.items())
        named = dict(zip(plan.signature.inputs.values(), words, strict=True))
        session.refuse(model.path, plan.graph, named, plan.signature.outputs.values(), options.format)
    if form.keeps_cells:
        refuse(model.path, plan.recurrences)
    if form.shares_names:
        plan = _separate_keys(plan)
    if form.keys_are_parameters:
        plan = _avoid_keywords(plan)
    if options.streams:
        plan = streaming.stream_assembled(plan) if is_graphless else _stream(plan, options)
    if options.decode is not None:
        plan = decoding.plan_decoder(plan, options)
    if drawn and (reasons := obstacles.undrawable(plan)):
        raise UnsupportedModelError(model.path, reasons)
    return plan


def _is_meant_alone(options: Options) -> bool:
    """Whether recurrences alone are what the user asks for."""
    return options.form.alone or options.recurrences_only


def warn_of_lost_graph(model: Model, plan: Plan | None = None) -> tuple[str, ...]:
    """A warning of what weights without their graph leave out, with the file that has it.

    `plan` is what is made of them, if that is known.
    """
    others = graphless.list_other_tensors(model, {part.name for part in plan.parts} if plan else ())
    if not others:
        return ()
    if model.keras is None:
        lead = f"{model.path.name}.meta is missing"
        cure = "put that file beside the checkpoint, or give the graph with --architecture"
    else:
        lead = f"{model.path.name} has no layers, only their weights"
        cure = "give the JSON of the model with --architecture"
    more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
    left = f"{', '.join(others[:_LISTED])}{more}"
    return (f"{lead}, so that recurrences alone are converted; left out: {left}; {cure}",)


def _stream(plan: Plan, options: Options) -> Plan:
    """Plan the states of a graph as inputs and outputs, those of its recurrences or those in variables."""
    from cudnn_convert.plan import streaming, variable_states

    form, flag = options.form, "--states" if options.decode is None else "--decode"
    if any(state.promoted for state in plan.states):
        plan = variable_states.plan_variable_states(plan, options.format)
    else:
        plan = streaming.plan_stream(plan, stateless=form.keeps_signatures, form=options.format, flag=flag)
    return replace(plan, flags=(*plan.flags, "--states")) if options.states else plan


def _separate_keys(plan: Plan) -> Plan:
    """Rename outputs that have the key of an input, as modules of TensorFlow Hub do with `default`."""
    inputs, outputs = plan.source.inputs, plan.source.outputs
    keys = {key: unique(f"{key}_output", {*inputs, *outputs}) for key in outputs if key in inputs}
    notes = [f"output {key} is {new}: an input has its key" for key, new in keys.items()]
    return _rename_keys(plan, {}, keys, notes)


def _avoid_keywords(plan: Plan) -> Plan:
    """Rename inputs whose keys cannot be parameters: TensorFlow loads a signature as a function of its keys.

    Source: tensorflow v2.21.0 core/function/polymorphism/function_type.py Parameter, which is that of
    `inspect`; python/eager/polymorphic_function/concrete_function.py ConcreteFunction.__call__, a method.
    """
    inputs, outputs = plan.source.inputs, plan.source.outputs
    reserved = [key for key in inputs if keyword.iskeyword(key) or key == "self"]
    keys = {key: unique(f"{key}_", {*inputs, *outputs}) for key in reserved}
    notes = [f"input {key} is {new}: Python reserves the word" for key, new in keys.items()]
    return _rename_keys(plan, keys, {}, notes)


def _rename_keys(
    plan: Plan, inputs: Mapping[str, str], outputs: Mapping[str, str], notes: Sequence[str]
) -> Plan:
    """Give inputs and outputs new keys, if there are some, in all signatures of a plan."""
    if not (inputs or outputs):
        return plan

    def rename(signature: Signature) -> Signature:
        return replace(
            signature,
            inputs={inputs.get(key, key): tensor for key, tensor in signature.inputs.items()},
            outputs={outputs.get(key, key): tensor for key, tensor in signature.outputs.items()},
        )

    return replace(
        plan,
        source=rename(plan.source),
        signature=rename(plan.signature),
        parts=tuple(replace(part, signature=rename(part.signature)) for part in plan.parts),
        notes=(*plan.notes, *notes),
    )


def _plan_alone(model: Model, options: Options, convention: Convention) -> Plan:
    """Plan a model's recurrences, each a signature of its own."""
    flags: dict[str, Any] = {"signature": options.signature, "weights": options.weights}
    if not _needs_no_graph(model, options):
        from cudnn_convert.plan import from_graph

        return from_graph.plan_recurrences(ensure_graph(model, options), **flags, convention=convention)
    interface = _interface(options)
    if options.recurrences_only and interface.layout is None:
        interface = replace(interface, layout="batch")  # which Keras leaves no choice of
    if options.form.alone:  # the user of the weights may need the states, so each recurrence has them
        interface = replace(interface, states=True)
    return plan_weights(model, _describe(options), interface, **flags, convention=convention)


def plan_layers(plan: Plan, options: Options) -> Plan:
    """A plan of recurrences as models of Keras: batch-major, with full rows, states only on demand.

    Raises UnsupportedModelError for what Keras has no layer of, UsageError for flags without effect.
    """
    if options.layout == "time":
        raise UsageError(
            "--layout: expected batch with --format keras, as its layers are, found time; leave out --layout"
        )
    if options.lengths:
        raise UsageError(
            "--lengths: expected none with --format keras, whose layers take a mask; leave out --lengths"
        )
    reasons = [
        named_weights.explain_keras_refusal(single.name, single.recurrence.sizes) for single in plan.singles
    ]
    if any(reasons):
        lines = [f"{reason}; take another format" for reason in reasons if reason]
        raise UnsupportedModelError(plan.model.path, lines)
    singles, notes, taken = [], list(plan.notes), list[str]()
    for single in plan.singles:
        taken.append(unique(named_weights.name_keras_model(single.name), taken))
        singles.append(
            replace(
                single,
                name=taken[-1],
                batch_major=True,
                states=options.states,
                recurrence=replace(single.recurrence, lengths=single.recurrence.lengths and options.states),
            )
        )
        if single.recurrence.lengths and options.states:
            notes.append(f"{taken[-1]}: its input mask [batch, time] is false past each row's length")
        elif single.recurrence.lengths:
            notes.append(f"{taken[-1]}: sequence lengths are not in the model; call its layers with a mask")
    again = {*no_numbers(plan.recurrences)}  # notes that are written anew
    notes = [note for note in notes if note not in again]
    return join_plans(plan.model, singles, notes=notes, flags=plan.flags, graph=plan.graph)


def list_other_ops(model: Model) -> tuple[str, ...]:
    """Describe ops that feed or read the recurrences of a graph, beside placeholders.

    Raises UnsupportedModelError where TensorFlow cannot import the graph.
    """
    from cudnn_convert.plan import from_graph

    return from_graph.list_other_ops(model)


def _refuse_keras_flags(model: Model, options: Options) -> None:
    if options.custom_objects and not applicable.applies("custom_objects", model):
        raise UsageError(f"--custom-objects: expected a Keras model, found {model.kind} {model.path}")


def _require_layers(model: Model, options: Options) -> None:
    if model.architecture is None:
        return
    from cudnn_convert.keras.config import validate

    if reason := validate.describe_unknown_model(model.architecture.config, options.custom_class_names):
        raise UnsupportedModelError(model.path, [reason])


def _needs_no_graph(model: Model, options: Options) -> bool:
    """Whether weights without a graph go to a format of recurrences, uncut."""
    cut = options.inputs or options.outputs or options.set
    has_layers = model.graph is not None or model.architecture is not None
    return not has_layers and options.form.states_recurrences and not cut


def _describe(options: Options) -> Described:
    mode = Mode(options.mode) if options.mode else None
    return Described(mode, options.layers, options.units, options.directions)


def _interface(options: Options) -> Interface:
    return Interface(options.layout, options.states, options.lengths)


def ensure_graph(model: Model, options: Options) -> Model:
    """The model with its graph, or with one built for its weights or layers.

    Raises UnsupportedModelError, AmbiguousSourceError, UsageError.
    """
    described, interface = _describe(options), _interface(options)
    model = _whole(model) if stays_whole(model, options) else replace(model, saved=None)
    if model.architecture is not None:
        model = _trace(model, model.architecture, options)
    if model.graph is None:
        from cudnn_convert.recurrences.graph_from_weights import assemble_graph

        return assemble_graph(model, described, interface, wanted=options.signature)
    if described != Described() or replace(interface, states=False) != Interface():
        flags = "--mode, --layers, --units, --directions, --layout, --lengths"
        raise UsageError(f"{flags}: expected a source without a graph, found {model.kind} {model.path}")
    from cudnn_convert.graph.passes import tf1_ops
    from cudnn_convert.recurrences import drop_in

    graph = tf1_ops.number_axes(tf1_ops.keep_integers(tf1_ops.replace_gather_tree(model.graph)))
    return replace(model, graph=drop_in.restore_nodes(graph))


def stays_whole(model: Model, options: Options) -> bool:
    """Whether the artifact is the whole SavedModel of TensorFlow 2, repaired in place."""
    is_whole = options.form.keeps_functions and model.saved is not None
    return is_whole and not _asks_for_another(options)


def _asks_for_another(options: Options) -> bool:
    """Whether a model of other inputs and outputs than the source's is asked for."""
    cut = options.inputs or options.outputs or options.set or options.signature
    return bool(cut) or options.streams


def _whole(model: Model) -> Model:
    """The model with all signatures except training steps, and its objects' functions."""
    from cudnn_convert.recurrences import saved_functions

    assert model.saved is not None
    steps = saved_functions.training(model.graph, model.signatures)
    left = {key: signature for key, signature in model.signatures.items() if key not in steps}
    what = "its steps of training need a GPU, and stay as they are"
    notes = [f"signature {key}: {what}" for key in steps]
    (meta,) = model.saved.meta_graphs
    beside = saved_functions.find_uncalled_functions(meta, left)
    graph, signature = saved_functions.add_calls(meta, model.graph, beside)
    if rest := [name for name in beside if name not in signature]:
        notes.append(f"repaired, but not verified, for no signature calls them: {', '.join(rest)}")
    signatures, notes = {**left, **signature}, [*model.notes, *notes]
    graph_of_all = replace(model, graph=graph, together=True, signatures=signatures, notes=tuple(notes))
    return replace(graph_of_all, unverified=(*steps, *rest))


def _trace(model: Model, architecture: Architecture, options: Options) -> Model:
    """Trace a Keras model to a graph. Raises UnsupportedModelError where it cannot be built."""
    from cudnn_convert.keras import cpu_layers, trace

    if options.form.layers:
        return trace.trace_part(model, user_code(options), verify=options.verify)
    stateless = layer_tree.without_states(architecture.config)  # states are inputs, and fix no batch
    is_plain = model.keras is not KerasFile.ARCHIVE and not cpu_layers.has_cudnn(architecture)
    keeps_states = options.states and is_plain and stateless is not architecture.config
    if not options.streams or keeps_states:  # in variables, which become inputs and outputs later
        return trace.trace_model(model, user_code(options), cut=bool(options.outputs))
    opened = layer_tree.with_open_steps(stateless)
    notes = () if opened is stateless else ("the number of steps is open; the source fixed it",)
    architecture = replace(architecture, config=opened)
    try:
        return trace.trace_model(
            replace(model, architecture=architecture, notes=(*model.notes, *notes)), user_code(options)
        )
    except UnsupportedModelError as error:
        if opened is stateless:
            raise
        flag = "--states" if options.decode is None else "--decode"
        expected = f"{flag}: expected layers that take any number of steps, found one that does not"
        reason = f"{expected}: {first_line(error.__cause__ or error)}; convert without {flag}"
        raise UnsupportedModelError(model.path, [reason]) from error


def user_code(options: Options) -> classes.Vouched:
    """The user's classes and functions, in the form that the format needs."""
    brought = classes.import_user_objects(options.custom_objects, trust=options.trust)
    return brought.for_both() if options.form.is_keras3 else brought


#: How many tensors that are left out a warning lists.
_LISTED: Final = 12
#: tensorflow v1.15.0 python/training/moving_averages.py ExponentialMovingAverage, its default name.
_AVERAGE: Final = "ExponentialMovingAverage"


def use_moving_averages(model: Model, weights: str) -> tuple[Model, str]:
    """The model with the values that `--weights` asks for, and the copy to take."""
    return (_use_averages(model), "raw") if weights == "ema" else (model, weights)


def _use_averages(model: Model) -> Model:
    """The model with each variable replaced by its moving average.

    Canonical keys have no averages. A saver of averages alone stores no other values. Raises
    UnsupportedModelError where there are no averages.
    """
    ending = f"/{_AVERAGE}"
    values = model.variables
    averages = {key.removesuffix(ending): values[key] for key in values if key.endswith(ending)}
    if not averages:
        reason = f"--weights ema: expected keys ...{ending}, found none; take the weights without --weights"
        raise UnsupportedModelError(model.path, [reason])
    # The user asked for averages, so the graph's saver does not decide.
    return replace(model, variables={**values, **averages}, keys={}, checkpoint=None)


def describe_unused_averages(model: Model, weights: str, taken: Iterable[str]) -> tuple[str, ...]:
    """A note that the file has moving averages of `taken` variables that are not used."""
    known = {key for key in model.variables if key.endswith(f"/{_AVERAGE}")}
    # A saver may restore a variable from its average: then the average is used already.
    own = [name for name in taken if name in model.variables and model.keys.get(name) not in known]
    count = sum(f"{name}/{_AVERAGE}" in known for name in own)
    if weights == "ema" or not count:
        return ()
    what = f"moving averages of {count} variable{'' if count == 1 else 's'}"
    return (f"{what} lie in the file and are not taken; --weights ema takes them",)


def refuse(path: Path, recurrences: Sequence[Recurrence]) -> None:
    """Refuse recurrences that CPU-compatible cells cannot store.

    Raises UnsupportedModelError with all reasons.
    """
    reasons, what = [], "--format checkpoint: expected"
    dtypes: dict[str, Any] = {}
    for recurrence in recurrences:
        if recurrence.sizes.projection:
            reasons.append(f"{recurrence.node}: {what} no projection, which CudnnCompatibleLSTMCell has not")
        dtype = dtypes.setdefault(recurrence.shared, recurrence.dtype)
        if dtype != recurrence.dtype:
            types = f"{dtype} and {recurrence.dtype}"
            reasons.append(f"{recurrence.node}: {what} one dtype for {recurrence.shared}, found {types}")
    if reasons:
        raise UnsupportedModelError(path, [f"{reason}; take another format" for reason in reasons])


_USUAL: Final = Convention()


def plan_weights(
    model: Model,
    description: Described,
    interface: Interface,
    *,
    signature: str | None = None,
    weights: str = "auto",
    convention: Convention = _USUAL,
) -> Plan:
    """Plan a model without a graph; `signature` and `weights` are the flags.

    Raises UnsupportedModelError with all reasons at once, AmbiguousSourceError where flags must decide.
    """
    model, copy = use_moving_averages(model, weights)
    alone = _choose(model, graphless.find_blob_recurrences(model, description, wanted=signature), signature)
    left_out = describe_unused_averages(model, weights, [recurrence.variable for recurrence in alone])
    choices = (note for recurrence in alone for note in interface.notes(recurrence))
    singles = _singles(model, alone, interface, copy=copy, convention=convention)
    flags = describe_choices(interface, signature, weights)
    return join_plans(model, singles, notes=(*model.notes, *choices, *left_out), flags=flags)


def join_plans(
    model: Model, singles: Sequence[Single], *, notes: Sequence[str], flags: Sequence[str], graph: Any = None
) -> Plan:
    """The plan of separate recurrences, one signature each.

    `graph` is the one from which their weights were computed, if any.
    """
    several = len(singles) > 1
    parts = tuple(
        Part(single.name, single.signature, f"{single.name}/" if several else "") for single in singles
    )
    union = Signature(
        {part.prefix + key: name for part in parts for key, name in part.signature.inputs.items()},
        {part.prefix + key: name for part in parts for key, name in part.signature.outputs.items()},
    )
    return Plan(
        model=replace(model, together=True),
        whole=None,
        graph=graph,
        source=union,
        signature=union,
        parts=parts,
        recurrences=tuple(single.recurrence for single in singles),
        notes=(*notes, *no_numbers([single.recurrence for single in singles])),
        flags=tuple(flags),
        singles=tuple(singles),
    )


def _choose(model: Model, alone: Sequence[Alone], signature: str | None) -> list[Alone]:
    chosen = [single for single in alone if signature in (None, single.name)]
    if not chosen:
        listed = ", ".join(sorted(single.name for single in alone))
        raise UsageError(f"{model.path}: --signature: expected one of {listed}, found {signature}")
    return chosen


def _singles(
    model: Model, alone: Sequence[Alone], interface: Interface, *, copy: str, convention: Convention
) -> tuple[Single, ...]:
    reasons: list[str] = []
    singles: list[Single] = []
    for each in alone:
        try:
            recurrence = _recurrence(model, each, interface, copy=copy, convention=convention)
        except RefusalError as error:
            reasons += error.reasons
        else:
            singles.append(Single(each.name, recurrence, interface.batch_major(each), interface.states))
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return tuple(singles)


def _recurrence(
    model: Model, recurrence: Alone, interface: Interface, *, copy: str, convention: Convention
) -> Recurrence:
    """The recurrence, as it would be decoded from a graph."""
    sizes = recurrence.sizes
    facts = weight_copies.Facts(
        node=f"{recurrence.name}/CudnnRNN",
        mode=sizes.mode,
        directions=sizes.directions,
        layers=sizes.layers,
        units=sizes.units,
        dtype=recurrence.dtype,
        input_size=sizes.input_size,
        input_mode="linear_input",
        projection=0,
    )

    def read() -> Array | None:
        return model.variables[recurrence.variable].read() if recurrence.variable in model.variables else None

    taken = weight_copies.take(model, facts, recurrence.variable, read, copy=copy, convention=convention)
    return Recurrence(
        node=facts.node,
        op="CudnnRNNV3" if interface.lengths else "CudnnRNN",
        sizes=taken.sizes,
        time_major=True,
        lengths=interface.lengths,
        dtype=recurrence.dtype,
        cells=taken.cells,
        evidence=taken.evidence,
        shared=recurrence.variable,
        convention=convention,
    )


def describe_choices(interface: Interface, signature: str | None, weights: str) -> tuple[str, ...]:
    """The flags that repeat the choices; sizes come from the file or from flags already."""
    choices = {"signature": signature, "layout": interface.layout}
    choices |= {"weights": None if weights == "auto" else weights}
    asked = {"states": interface.states, "lengths": interface.lengths}
    values = tuple(f"--{name}={value}" for name, value in choices.items() if value is not None)
    return (*values, *(f"--{name}" for name, value in asked.items() if value))
