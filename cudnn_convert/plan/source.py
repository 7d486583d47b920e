"""From a path to a model with a graph: reads, cuts at layers, traces, repairs."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from cudnn_convert import context
from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.formats import Keeps
from cudnn_convert.graph import ops
from cudnn_convert.keras import cut_layers
from cudnn_convert.keras.config import channels_first, classes, layer_tree
from cudnn_convert.model import Architecture, Convention, KerasFile, Mode, Model, PartialSizes
from cudnn_convert.options import Options
from cudnn_convert.plan import applicable
from cudnn_convert.read import architecture_file, checkpoint, keras_checkpoint, keras_hdf5, read, takes_tag
from cudnn_convert.recurrences.graphless import SignatureOptions
from cudnn_convert.text import first_line


def read_source(source: Path, options: Options, *, tag: str | None) -> Model:
    """Read the model at `source`, with the layers or the graph of `--architecture`.

    Raises as `read` does, UsageError.
    """
    context.report_progress("reading")
    return _with_architecture(read(source, tag=tag, trust=options.trust), options)


def read_shared(
    source: Path, options: Options, shared: Collection[str]
) -> tuple[Model, Options, tuple[str, ...]]:
    """Read the model at `source` as `read_source`, and drop meaningless `shared` options.

    Options that mean nothing for the kind of the model are dropped: the options come back without these, with
    a note on each.
    """
    context.report_progress("reading")
    tag = None if "tag" in shared and not takes_tag(source) else options.tag
    model = read(source, tag=tag, trust=options.trust)
    options, notes = applicable.leave_out(model, options, shared)
    return _with_architecture(model, options), options, notes


def _with_architecture(model: Model, options: Options) -> Model:
    """Return a model with the layers or graph of `--architecture`, if given. Raises UsageError."""
    if options.architecture is None:
        return _translate_older(model)
    if model.keras is KerasFile.HDF5:
        return _translate_older(keras_hdf5.with_architecture(model, options.architecture))
    if model.keras is not None or not model.graphless.cure:
        expected = "weights of Keras, or a checkpoint without .meta"
        raise UsageError(f"--architecture: expected {expected}, found {model.kind} {model.path}")
    if architecture_file.is_config(options.architecture):
        return _translate_older(keras_checkpoint.with_architecture(model, options.architecture))
    return checkpoint.with_graph(model, options.architecture)


def _translate_older(model: Model) -> Model:
    """Translate a model of Keras 1 to Keras 2.

    Other models are unchanged.
    """
    if not model.has_layers:
        return model
    from cudnn_convert.keras import keras1

    return keras1.translate_model(model)


def cut_at_layers(model: Model, options: Options) -> tuple[Model, Options]:
    """Cut a Keras model at the layers of `--outputs`, and clear the option.

    Both are unchanged where outputs are tensors of a graph. Raises UsageError for a layer that is not there.
    """
    if not cut_layers.names_layers(model, options.outputs):
        return model, options
    return cut_layers.cut_at_layers(model, options.outputs), replace(options, outputs=())


def is_portable(model: Model, options: Options) -> bool:
    """Return True if the source is already the requested artifact.

    It runs on a CPU unchanged, and the format keeps its kind.
    """
    if stays_whole(model, options):
        return not needs_gpu(model)
    if not model.has_layers or _asks_for_another(options) or options.architecture is not None:
        return False
    if options.format != _own_format(model.keras, model.layers):
        return False
    keras3, is_known = options.form.is_keras3, layer_tree.is_model(model.layers.config)
    is_plain = not (needs_gpu(model) or channels_first.find_layers(model.layers, keras3=keras3))
    return is_known and is_plain


def _own_format(kind: KerasFile | None, architecture: Architecture) -> str | None:
    """Return the present format of a Keras file.

    None where today's libraries do not open it as it is.
    """
    if architecture.translated:
        return None
    if architecture.is_keras3:  # Keras 3 finds no operations in HDF5 files
        return "keras" if kind is KerasFile.ARCHIVE else None
    is_keras2 = architecture.keras_version.partition(".")[0] == "2"
    return "h5" if kind is KerasFile.HDF5 and is_keras2 else None


def needs_gpu(model: Model) -> bool:
    """Return True if a model has cuDNN's ops or layers, or weights for cuDNN."""
    if model.has_functions:
        from cudnn_convert.recurrences import saved_functions

        return any(saved_functions.needing_gpu(meta) for meta in model.saved.meta_graphs)
    if model.has_layers:
        from cudnn_convert.keras import cpu_layers

        return cpu_layers.has_cudnn(model.layers)
    if model.is_graphless:
        return True
    bodies = (node for function in model.graph.library.function for node in function.node_def)
    return any(node.op in ops.CUDNN for node in (*model.graph.node, *bodies))


def needs_no_graph(model: Model, options: Options) -> bool:
    """Return True if graphless weights go uncut to a format of recurrences."""
    cut = options.inputs or options.outputs or options.set
    return model.is_graphless and Keeps.WEIGHTS in options.form.keeps and not cut


def convention_of(options: Options) -> Convention:
    """Return the difference of the source's weights from TensorFlow's convention, by `options`."""
    return Convention(options.gate_order, options.forget_bias)


def describe_weights(options: Options) -> PartialSizes:
    mode = Mode(options.mode) if options.mode else None
    return PartialSizes(mode, options.layers, options.units, options.directions)


def interface_of(options: Options) -> SignatureOptions:
    return SignatureOptions(options.layout, options.states, options.lengths)


def ensure_graph(model: Model, options: Options) -> Model:
    """Return the model with a graph: present, or built for weights or layers.

    Raises UnsupportedModelError, AmbiguousSourceError, UsageError.
    """
    described, interface = describe_weights(options), interface_of(options)
    model = _whole(model) if stays_whole(model, options) else replace(model, saved=None)
    if model.has_layers:
        model = _trace(model, model.layers, options)
    if model.is_graphless:
        from cudnn_convert.recurrences.graph_from_weights import assemble_graph

        return assemble_graph(model, described, interface, wanted=options.signature)
    if described != PartialSizes() or replace(interface, states=False) != SignatureOptions():
        flags = "--mode, --layers, --units, --directions, --layout, --lengths"
        raise UsageError(f"{flags}: expected a source without a graph, found {model.kind} {model.path}")
    from cudnn_convert.graph.graph import Graph
    from cudnn_convert.graph.passes.run import run_passes
    from cudnn_convert.plan import passes

    return replace(model, graph=run_passes(Graph.of(model.graph), passes.OF_SOURCE, ()))


def stays_whole(model: Model, options: Options) -> bool:
    """Return True if the artifact is the whole SavedModel of TensorFlow 2, repaired in place."""
    return Keeps.FUNCTIONS in options.form.keeps and model.has_functions and not _asks_for_another(options)


def _asks_for_another(options: Options) -> bool:
    """Return True if `options` request inputs and outputs different from the source's."""
    cut = options.inputs or options.outputs or options.set or options.signature
    return bool(cut) or options.streams


def _whole(model: Model) -> Model:
    """Return the model with all signatures except training steps, and the objects' functions."""
    from cudnn_convert.recurrences import saved_functions

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
    """Trace a Keras model to a graph. Raises UnsupportedModelError if building fails."""
    from cudnn_convert.keras import cpu_layers, trace

    if options.form.has_layers:
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
    """Return the user's classes and functions, in the form for the format."""
    brought = classes.import_user_objects(options.custom_objects, trust=options.trust)
    return brought.for_both() if options.form.is_keras3 else brought
