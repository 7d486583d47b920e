"""Traces a Keras model into the computed graph, with cuDNN ops.

tf_keras builds a Keras 2 model in a TensorFlow 1 graph, where nothing is placed or run, so that ops without a
CPU kernel are allowed. Its layers are TensorFlow 1's, which give missing keys the defaults of that time
(tf_keras 2.21 src/layers/rnn/lstm_v1.py, gru_v1.py: hard_sigmoid, reset_after=False).

Keras 3 builds a model from a vetted config and traces it as a function, without running it. It is traced as
beside a GPU: each recurrence then is one op, which every target supports, instead of a loop that only
TensorFlow runs well (keras v3.15 src/backend/tensorflow/rnn.py cudnn_ok).
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import index, node_defs, session
from cudnn_convert.keras import build_keras3, called_layers, cpu_layers, cut_layers, restore_keras3
from cudnn_convert.keras.config import classes, differences, layer_tree, validate, values, versions
from cudnn_convert.model import SERVING, Architecture, InMemory, Model, Signature, Tensor
from cudnn_convert.private import keras_private, layer_calls, older_keras3, older_layers
from cudnn_convert.recurrences import saved_functions
from cudnn_convert.text import first_line

#: What to do with a model that cannot be built here.
_EXPORT: Final = "save it as a SavedModel where it loads, and convert that"
#: The node that calls the function of a Keras 3 model.
_CALL: Final = "model"
#: What the state variables of a layer hold, in its order: one of a GRU or simple RNN, two of an LSTM.
_STATES: Final = ("state_h", "state_c")
Weights = Mapping[str, tuple[tuple[str, Tensor], ...]]


def trace_model(model: Model, vouched: classes.Vouched = classes.NOTHING, *, cut: bool = False) -> Model:
    """Trace a Keras model: the graph, the variables' values, and the signature.

    Inference: no dropout, moving averages in normalisations. States of stateful layers are variables that
    each call updates. With `cut`, the part before the first layer that may not be built will do. Raises
    UnsupportedModelError for a layer that may not or cannot be built, or whose weights do not fit.
    """
    writer = _find_writer(model)
    if model.layers.is_keras3:
        return _trace_keras3(model, vouched, writer)[0]
    refused = validate.refusals(model.layers, vouched)
    part = validate.own_part(model.layers, vouched) if refused else model.layers
    if part is not None and (cut or not refused):
        traced, _ = _trace(model, part, vouched, writer)
        return replace(traced, notes=(*model.notes, *_note_doubts(model, part, vouched, writer)))
    raise UnsupportedModelError(
        model.path, cut_layers.offer_cut(model.layers, vouched, [str(layer) for layer in refused])
    )


def trace_part(model: Model, vouched: classes.Vouched = classes.NOTHING, *, verify: bool = True) -> Model:
    """Trace the part before the first layer refused for building; notes say so.

    A layer that later versions of Keras compute otherwise is refused, or noted where the proof tells. Without
    such a part: traces the inputs alone, or raises UnsupportedModelError with `verify`. Raises as
    `trace_model` does.
    """
    writer = _find_writer(model)
    if model.layers.is_keras3:
        return _refuse_others(*_trace_keras3(model, vouched, writer), writer)
    refused = validate.refusals(model.layers, vouched)
    part = validate.own_part(model.layers, vouched) if refused else model.layers
    if part is None and verify:
        more = "" if refused[0].runs else ", for --format keras one for Keras 3 too"
        message = "as it stands the model cannot be verified, for nothing comes before this layer"
        reason = f"{refused[0]}{more}; {message}: convert it with --no-verify"
        raise UnsupportedModelError(model.path, [reason])
    if part is None:
        return _inputs_alone(model, model.layers)
    traced, others = _trace(model, part, vouched, writer)
    notes = (*validate.notes(model.layers, vouched), *_note_doubts(model, part, vouched, writer))
    unverified = tuple(layer.layer for layer in refused)
    return _refuse_others(
        replace(traced, notes=(*traced.notes, *notes), unverified=unverified), others, writer
    )


def _refuse_others(traced: Model, others: Mapping[str, Collection[str]], writer: versions.Writer) -> Model:
    """Note or refuse each layer computed otherwise by later versions of Keras.

    `others` are those layers by the difference. Raises UnsupportedModelError where the proof may not tell.
    """
    notes, reasons, suspects = list[str](), list[str](), list[str]()
    for difference in differences.of_writer(writer):
        layers = [*dict.fromkeys(others.get(difference.name, ()))]
        refusals = [difference.refusal(writer.version, layer) for layer in layers]
        if layers and difference.is_proven:
            notes.append(f"{', '.join(layers)}: {difference.message(writer.version)}")
            suspects += refusals
        else:
            reasons += refusals
    if reasons:
        raise UnsupportedModelError(traced.path, reasons)
    return replace(traced, notes=(*traced.notes, *notes), suspects=tuple(suspects))


def _find_writer(model: Model) -> versions.Writer:
    return versions.find_writer(model.layers.keras_version, model.layers.config)


def _find_installed() -> versions.Writer:
    """Return the installed Keras 3, as if it had written a file."""
    import keras

    return versions.find_writer(keras.__version__, {})


def _note_doubts(
    model: Model, part: Architecture, vouched: classes.Vouched, writer: versions.Writer
) -> Iterator[str]:
    """Yield notes on possible differences of the file's Keras, unknown from the file."""
    yield from differences.note_unsaved(writer, part.config)
    rows = [*differences.of_older_releases(writer, part.config)]
    layers = _trace(model, part, vouched, writer._replace(numbers=writer.oldest))[1] if rows else {}
    for row in rows:
        if row.name in layers:
            yield (
                f"{', '.join(dict.fromkeys(layers[row.name]))}: TensorFlow 1.13 {row.older}; the file may be "
                "of a later one, and is computed so; compare with verify --golden"
            )


def _inputs_alone(model: Model, described: Architecture) -> Model:
    """Return the model with a graph of inputs passed through as outputs."""
    entries = layer_tree.layer_entries(described.config)
    given = [entry["config"] for entry in entries if entry["class_name"] == "InputLayer"]
    given = given or [{**entries[0]["config"], "name": f"{layer_tree.layer_name(entries[0])}_input"}]
    with tf.Graph().as_default() as graph:
        inputs = {
            tensor["name"]: tf.compat.v1.placeholder(
                values.dtype(tensor.get("dtype")) or "float32", values.shape(tensor.get("batch_input_shape"))
            )
            for tensor in given
        }
        outputs = {key: tf.identity(value) for key, value in inputs.items()}
    signature = Signature(*({key: value.name for key, value in of.items()} for of in (inputs, outputs)))
    notes = (*model.notes, *validate.notes(described))
    return replace(model, graph=graph.as_graph_def(), signatures={SERVING: signature}, notes=notes)


def _trace(
    model: Model, described: Architecture, vouched: classes.Vouched, writer: versions.Writer
) -> tuple[Model, Mapping[str, Collection[str]]]:
    """Trace the model as `writer` computes, and return the layers changed in newer versions.

    The layers are by the difference.
    """
    lost = layer_tree.unreachable_layers(described.config)
    if lost:
        expected = "expected a call with outputs of other layers, found one without inputs"
        reason = f"layer {lost[0]}: {expected}; {_EXPORT}"
        raise UnsupportedModelError(model.path, [reason])
    rows = {difference.name for difference in differences.of_writer(writer)}
    with (
        tf.Graph().as_default() as graph,
        keras_private.build_for_inference(),
        older_layers.compute_as(rows) as others,
        layer_calls.note_calls() as noted,
    ):
        built = build_model(model.path, described, vouched)
        signature = _signature(model.path, built)
        variables = _variables(model.path, built, _weights(model.path, described))
        states = state_variables(built)
        variables |= {name: InMemory(np.zeros(shape, dtype)) for name, shape, dtype in states.values()}
    named = {old: name for old, (name, _, _) in states.items()}
    renamed = rename_state_variables(graph.as_graph_def(), named)
    calls = tuple(called_layers.describe(noted, frozenset(rows)))
    traced = replace(
        model,
        graph=renamed,
        variables=variables,
        signatures={SERVING: signature},
        calls=calls,
        state_variables=tuple(named.values()),
    )
    return traced, others


def build_model(path: Path, described: Architecture, vouched: classes.Vouched) -> Any:
    """Build the tf_keras model of a vetted config. Raises UnsupportedModelError on failure."""
    import tf_keras

    if "Lambda" not in vouched.tf_keras and (others := [*classes.other_bytecode(described.config)]):
        raise UnsupportedModelError(path, [f"{reason}; {_EXPORT}" for reason in others])
    config, failure = values.to_legacy_form(described.config, kept=vouched.tf_keras), None
    brought = {**keras_private.tf1_layers(), **vouched.tf_keras}
    with (
        tf_keras.utils.custom_object_scope(brought),
        keras_private.load_code(allowed=vouched.trust),
        _floats(described),
    ):
        for shaped in values.with_input_shape(config):
            try:
                layer = tf_keras.layers.deserialize(shaped, use_legacy_format=True)
            except Exception as cause:  # noqa: BLE001 - whatever a layer says to a config not its own
                failure = cause
                continue
            if isinstance(layer, tf_keras.Model) and layer.built and layer.inputs:
                return layer
    actual = "one whose input has no shape; build it, and save it again"
    if failure is not None:
        actual = f"one it refuses: {first_line(failure)}; {_EXPORT}"
    reason = f"config: expected a model that tf_keras can build, found {actual}"
    raise UnsupportedModelError(path, [reason]) from failure


@contextmanager
def _floats(described: Architecture) -> Iterator[None]:
    """Set the default dtype of layers to the weights' dtype, within the context."""
    import tf_keras

    kinds = {value.dtype.name for listed in described.weights.values() for _, value in listed}
    usual, own = tf_keras.backend.floatx(), kinds & {"float16", "float32", "float64"}
    if len(own) == 1:
        tf_keras.backend.set_floatx(own.pop())
    try:
        yield
    finally:
        tf_keras.backend.set_floatx(usual)


def _signature(path: Path, built: Any) -> Signature:
    """Return the inputs and outputs by name in Keras.

    Outputs wait for the updates of states.
    """
    tensors = [*built.inputs, *built.outputs]
    if not all(isinstance(tensor, tf.Tensor) for tensor in tensors):
        reason = "config: expected dense inputs and outputs, found sparse or ragged; build it with dense ones"
        raise UnsupportedModelError(path, [reason])
    inputs = dict(zip(built.input_names, built.inputs, strict=True))
    outputs = dict(zip(built.output_names, built.outputs, strict=True))
    if writes := updates(built):
        with tf.control_dependencies(writes):
            outputs = {key: tf.identity(value, f"{key}/after_update") for key, value in outputs.items()}
    return Signature(*({key: value.name for key, value in tensor.items()} for tensor in (inputs, outputs)))


def _weights(path: Path, described: Architecture) -> Weights:
    """Return the weights in the form expected by the layers.

    Those of CPU layers may have been saved by cuDNN layers (keras 2.2.4 engine/saving.py
    preprocess_weights_for_loading).
    """
    converted = cpu_layers.convert_weights(path, described)
    cudnn = {
        layer_tree.layer_name(entry)
        for entry in layer_tree.layer_entries(described.config)
        if any(classes.is_cudnn(layer) for _, layer in layer_tree.walk(entry))
    }
    return {name: listed if name in cudnn else converted[name] for name, listed in described.weights.items()}


def _variables(path: Path, built: Any, weights: Weights) -> dict[str, Tensor]:
    """Return the file's values by the names of variables, paired by layer and order."""
    values_by_name: dict[str, Tensor] = {}
    reasons = []
    for layer in built.layers:
        wanted = [*layer.trainable_weights, *layer.non_trainable_weights]
        given = weights.get(layer.name, ())
        if len(wanted) != len(given):
            reasons.append(f"layer {layer.name}: expected {len(wanted)} weights, found {len(given)}")
            continue
        for weight, (stored, value) in zip(wanted, given, strict=True):
            what = f"layer {layer.name}: weight {stored}"
            if tuple(weight.shape) != tuple(value.shape):
                reasons.append(f"{what}: expected shape {list(weight.shape)}, found {list(value.shape)}")
            if weight.dtype.as_numpy_dtype != value.dtype:
                reasons.append(f"{what}: expected {weight.dtype.name}, found {value.dtype}")
            values_by_name[weight.handle.op.name] = value
    lost = sorted(set(weights) - {layer.name for layer in built.layers})
    reasons += [f"layer {name}: expected a layer of the model, found its weights alone" for name in lost]
    if reasons:
        cure = "does the architecture belong to these weights?"
        raise UnsupportedModelError(path, [f"{reason}; {cure}" for reason in reasons])
    return values_by_name


def updates(built: Any) -> list[Any]:
    """List the ops for updating the layers' states from the model's inputs alone."""
    given = {update.op for update in built.inputs}
    return [update for update in dict.fromkeys(built.state_updates) if _placeholders(update) <= given]


def _placeholders(op: Any) -> set[Any]:
    needed = index.walk([op], lambda other: [*(value.op for value in other.inputs), *other.control_inputs])
    return {other for other in needed if other.type == "Placeholder"}


def state_variables(built: Any) -> dict[str, tuple[str, tuple[int, ...], Any]]:
    """Return the name, shape and dtype of each state of stateful layers, by op.

    Keras writes no states into its files: they begin with zeros.
    """
    variables = {}
    for layer in keras_private.flatten_layers(built):
        states = tf.nest.flatten(getattr(layer, "states", None))
        states = [variable for variable in states if hasattr(variable, "handle")]
        kinds = _STATES if len(states) <= len(_STATES) else [f"state_{n}" for n in range(len(states))]
        for kind, state in zip(kinds, states, strict=False):
            old = state.handle.op.name
            name = f"{old.rpartition('/')[0]}/{kind}"
            variables[old] = (name, tuple(state.shape), state.dtype.as_numpy_dtype)
    return variables


def rename_state_variables(graph: Any, names: Mapping[str, str]) -> Any:
    """Rename a GraphDef's state variables in place, all called Variable by tf_keras."""
    for node in graph.node:
        if node.name in names:
            node.name = names[node.name]
            node.attr["shared_name"].s = node.name.encode()
        node.input[:] = [names.get(source, source) for source in node.input]
    return graph


def _trace_keras3(
    model: Model, vouched: classes.Vouched, writer: versions.Writer
) -> tuple[Model, Mapping[str, Collection[str]]]:
    """Trace a model of Keras 3 as `_trace` does.

    Raises UnsupportedModelError where it may not or cannot be built, MissingDependencyError where Keras 3
    runs on another backend.
    """
    build_keras3.require_tensorflow(model.path)
    rows = {difference.name for difference in differences.of_writer(writer)}
    rows -= {difference.name for difference in differences.of_writer(_find_installed())}
    with older_keras3.compute_as(rows) as others:
        restored = restore_keras3.restore_model(model.path, model.layers, vouched)
        built = keras_private.functional_model(restored)  # a Sequential model wraps it
        with keras_private.trace_as_on_gpu():
            concrete = _trace_function(built)
    variable_by_handle = {id(variable.handle): variable for variable in concrete.graph.variables}
    graph = graph_pb2.GraphDef(library=concrete.graph.as_graph_def().library)
    graph.library.function.add().CopyFrom(concrete.function_def)
    variables: dict[str, Tensor] = {}
    for position, tensor in enumerate(concrete.captured_inputs):
        variable = variable_by_handle.get(id(tensor))
        if variable is None:
            graph.node.append(node_defs.constant(f"constant_{position}", np.asarray(tensor)))
            continue
        name, value = index.unique(variable.name.partition(":")[0], variables), np.asarray(variable)
        graph.node.append(session.handle(name, name, value))
        variables[name] = InMemory(value)
    captured = [node.name for node in graph.node]
    graph.node.extend(saved_functions.call(_CALL, concrete.function_def, captured))
    given = [node.name for node in graph.node if node.op == "Placeholder"]
    inputs = {tensor.name: f"{name}:0" for tensor, name in zip(built.inputs, given, strict=True)}
    outputs: dict[str, str] = {}
    for position, key in enumerate(built.output_names):  # a layer that is called twice names both
        outputs[index.unique(key, outputs)] = f"{_CALL}:{position}"
    signature = Signature(inputs, outputs)
    return replace(model, graph=graph, variables=variables, signatures={SERVING: signature}), others


def _trace_function(built: Any) -> Any:
    """Return the model's call as a concrete function of inputs, flat and in order."""
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, f"input_{k}") for k, tensor in enumerate(built.inputs)]

    def call(*given: Any) -> Any:
        packed = keras_private.pack_inputs(built, given)
        return tf.nest.flatten(built(packed, training=False))

    return tf.function(call, autograph=False).get_concrete_function(*specs)
