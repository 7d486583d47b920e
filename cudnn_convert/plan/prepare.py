"""Makes a plan from a model and options. Imports TensorFlow for graphs only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cudnn_convert import context
from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.formats import FORMATS
from cudnn_convert.keras.config import classes
from cudnn_convert.model import Architecture, Convention, KerasFile, Mode, Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, from_weights
from cudnn_convert.read import keras_hdf5, read
from cudnn_convert.recurrences.graphless import Described, Interface


def read_source(source: Path, options: Options, *, tag: str | None) -> Model:
    """Read the model at `source`, with the layers of `--architecture`.

    Raises as `read` does, UsageError.
    """
    context.report_progress("reading")
    model = read(source, tag=tag, trust=options.trust)
    if options.architecture is None:
        return model
    if model.keras is not KerasFile.HDF5:
        raise UsageError(f"--architecture: expected Keras weights, found {model.kind} {model.path}")
    return keras_hdf5.with_architecture(model, options.architecture)


def is_portable(model: Model, options: Options) -> bool:
    """Whether the source runs on a CPU unchanged, and the format keeps its kind."""
    if stays_whole(model, options):
        from cudnn_convert.recurrences import saved_functions

        assert model.saved is not None
        return not any(saved_functions.needing_gpu(meta) for meta in model.saved.meta_graphs)
    form = FORMATS[options.format]
    if model.architecture is None or not (form.layers or form.keeps_functions):
        return False
    from cudnn_convert.keras import cpu_layers
    from cudnn_convert.keras.config import layer_tree

    is_known = layer_tree.is_model(model.architecture.config)
    return model.keras is KerasFile.ARCHIVE and is_known and not cpu_layers.has_cudnn(model.architecture)


def make_plan(model: Model, options: Options) -> Plan:
    """Plan a model that was read.

    Raises as `from_graph` and `from_weights` do, UsageError.
    """
    context.report_progress("planning")
    convention = Convention(options.gate_order, options.forget_bias)
    _refuse_keras_flags(model, options)
    _require_layers(model, options)
    form = FORMATS[options.format]
    if _needs_no_graph(model, options):
        interface = _interface(options)
        return from_weights.plan_weights(
            model,
            _describe(options),
            # The use of written weights is unknown, so the states are included.
            replace(interface, states=True) if form.alone else interface,
            signature=options.signature,
            weights=options.weights,
            convention=convention,
        )
    if form.alone:
        from cudnn_convert.plan import from_graph

        return from_graph.plan_recurrences(
            ensure_graph(model, options),
            signature=options.signature,
            weights=options.weights,
            convention=convention,
        )
    from cudnn_convert.graph import lookup_tables
    from cudnn_convert.plan import obstacles
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
    )
    if not form.keeps_tables:
        words = (f"{key}={tensor}" for key, tensor in plan.source.inputs.items())
        named = dict(zip(plan.signature.inputs.values(), words, strict=True))
        lookup_tables.refuse(model.path, plan.graph, named, plan.signature.outputs.values(), options.format)
    if form.keeps_cells:
        from_weights.refuse(model.path, plan.recurrences)
    if drawn and (reasons := obstacles.undrawable(plan)):
        raise UnsupportedModelError(model.path, reasons)
    return plan


def _refuse_keras_flags(model: Model, options: Options) -> None:
    if model.architecture is None and (options.custom_objects or options.allow_plain):
        flags = "--custom-objects, --allow-plain"
        raise UsageError(f"{flags}: expected a Keras model, found {model.kind} {model.path}")


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
    return not has_layers and FORMATS[options.format].states_recurrences and not cut


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
    if described != Described() or interface != Interface():
        flags = "--mode, --layers, --units, --directions, --layout, --states, --lengths"
        raise UsageError(f"{flags}: expected a source without a graph, found {model.kind} {model.path}")
    from cudnn_convert.graph.passes import tf1_ops

    return replace(model, graph=tf1_ops.replace_gather_tree(model.graph))


def stays_whole(model: Model, options: Options) -> bool:
    """Whether the artifact is the whole SavedModel of TensorFlow 2, repaired in place."""
    cut = options.inputs or options.outputs or options.set or options.signature
    return FORMATS[options.format].keeps_functions and model.saved is not None and not cut


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
    return replace(model, graph=graph, together=True, signatures=signatures, notes=tuple(notes))


def _trace(model: Model, architecture: Architecture, options: Options) -> Model:
    """Trace a Keras model to a graph. Raises UnsupportedModelError where it has no CuDNN layer."""
    from cudnn_convert.keras import cpu_layers, trace_tf_keras

    if model.keras is not KerasFile.ARCHIVE and not options.allow_plain:
        cpu_layers.require_cudnn(model.path, architecture)
    if FORMATS[options.format].layers:
        return trace_tf_keras.trace_part(model, user_code(options), verify=options.verify)
    return trace_tf_keras.trace_model(model, user_code(options))


def user_code(options: Options) -> classes.Vouched:
    """The user's classes and functions, in the form that the format needs."""
    brought = classes.import_user_objects(options.custom_objects, trust=options.trust)
    return brought.for_both() if FORMATS[options.format].is_keras3 else brought
