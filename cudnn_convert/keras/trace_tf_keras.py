"""Traces a Keras 2 model into the graph that it computes, cuDNN layers included.

Building the layers of a config with tf_keras, for inference, in the current graph of TensorFlow 1's kind.

The layers are those of old: their defaults are what a config means that does not say (tf_keras 2.21
src/layers/rnn/lstm_v1.py, gru_v1.py: hard_sigmoid, reset_after=False).

The states of stateful layers in a built model: variables of the graph, and what a call writes there.

A Keras model as the graph that it computes, its cuDNN layers in it.

tf_keras builds the layers in a graph of TensorFlow 1's kind: there nothing is placed or run, so that the ops
without a CPU kernel stand in it like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError, first_line
from cudnn_convert.graph.index import walk
from cudnn_convert.keras import cpu_layers, trace_keras3
from cudnn_convert.keras.config import classes, layer_tree, validate, values
from cudnn_convert.model import SERVING, Architecture, InMemory, Model, Signature, Tensor
from cudnn_convert.private import keras_private

#: What to do with a model that cannot be built here.
EXPORT: Final = "save it as a SavedModel where it loads, and convert that"


def build_model(path: Path, described: Architecture, vouched: Mapping[str, Any]) -> Any:
    """The model of tf_keras for a vetted config. Raises UnsupportedModelError where none can be built."""
    import tf_keras

    config, failure = values.to_legacy_form(described.config, kept=vouched), None
    with tf_keras.utils.custom_object_scope({**keras_private.tf1_layers(), **vouched}), _floats(described):
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
        actual = f"one it refuses: {first_line(failure)}; {EXPORT}"
    raise UnsupportedModelError(
        path, [f"config: expected a model that tf_keras can build, found {actual}"]
    ) from failure


@contextmanager
def _floats(described: Architecture) -> Iterator[None]:
    """Layers that do not say their type have the weights': what Keras was set to when it wrote them."""
    import tf_keras

    kinds = {value.dtype.name for listed in described.weights.values() for _, value in listed}
    usual, own = tf_keras.backend.floatx(), kinds & {"float16", "float32", "float64"}
    if len(own) == 1:
        tf_keras.backend.set_floatx(own.pop())
    try:
        yield
    finally:
        tf_keras.backend.set_floatx(usual)


#: What the state variables of a layer hold, in its order: one of a GRU or simple RNN, two of an LSTM.
_STATES: Final = ("state_h", "state_c")


def updates(built: Any) -> list[Any]:
    """What a call of the model writes into the states of its layers, and nothing that needs other inputs."""
    given = {update.op for update in built.inputs}
    return [update for update in dict.fromkeys(built.state_updates) if _placeholders(update) <= given]


def _placeholders(op: Any) -> set[Any]:
    needed = walk([op], lambda other: [*(value.op for value in other.inputs), *other.control_inputs])
    return {other for other in needed if other.type == "Placeholder"}


def state_variables(built: Any) -> dict[str, tuple[str, tuple[int, ...], Any]]:
    """The states of stateful layers by the op of each: its name among the layer's, shape and dtype.

    Keras writes no states into its files: they begin with zeros.
    """
    variables = {}
    for layer in keras_private.flatten_layers(built):
        states = [
            variable
            for variable in tf.nest.flatten(getattr(layer, "states", None))
            if hasattr(variable, "handle")
        ]
        kinds = _STATES if len(states) <= len(_STATES) else [f"state_{n}" for n in range(len(states))]
        for kind, state in zip(kinds, states, strict=False):
            old = state.handle.op.name
            name = f"{old.rpartition('/')[0]}/{kind}"
            variables[old] = (name, tuple(state.shape), state.dtype.as_numpy_dtype)
    return variables


def rename_state_variables(graph: Any, names: Mapping[str, str]) -> Any:
    """The graph with its state variables called what they are: tf_keras calls them all Variable."""
    for node in graph.node:
        if node.name in names:
            node.name = names[node.name]
            node.attr["shared_name"].s = node.name.encode()
        for position, source in enumerate(node.input):
            node.input[position] = names.get(source, source)
    return graph


Weights = Mapping[str, tuple[tuple[str, Tensor], ...]]


def trace_model(model: Model, vouched: classes.Vouched = classes.NOTHING) -> Model:
    """The model with a graph, its variables' values and the signature of its input and output layers.

    Inference: no dropout, moving averages in normalisations. States of stateful layers are variables that
    each call updates. Raises UnsupportedModelError for a layer that may not or cannot be built, or whose
    weights do not fit.
    """
    assert model.architecture is not None
    if model.architecture.keras_version.partition(".")[0] == "3":
        return trace_keras3.trace_model(model, vouched)
    refused = [*validate.layers_not_allowed(model.architecture.config, vouched)]
    if refused:
        raise UnsupportedModelError(model.path, [str(layer) for layer in refused])
    return _trace(model, model.architecture, vouched.tf_keras)


def trace_part(model: Model, vouched: classes.Vouched = classes.NOTHING, *, verify: bool = True) -> Model:
    """As `trace_model`, of what stands before the first layer that may not be built; notes say so.

    Where that is nothing: its inputs alone, unless someone is to `verify` it.
    """
    assert model.architecture is not None
    version = model.architecture.keras_version
    if version.partition(".")[0] == "3":
        message = f"model: expected one of Keras 2, found Keras {version}; it loads as it is"
        raise UnsupportedModelError(model.path, [message])
    refused = [*validate.layers_not_allowed(model.architecture.config, vouched)]
    part = validate.own_part(model.architecture, vouched) if refused else model.architecture
    if part is None and verify:
        more = "" if refused[0].runs else ", for --format keras one for Keras 3 too"
        message = "as it stands the model cannot be verified, for nothing comes before this layer"
        reason = f"{refused[0]}{more}; {message}: convert it with --no-verify"
        raise UnsupportedModelError(model.path, [reason])
    if part is None:
        return _inputs_alone(model, model.architecture.config)
    notes = validate.notes(model.architecture.config, vouched)
    return replace(_trace(model, part, vouched.tf_keras), notes=(*model.notes, *notes))


def _inputs_alone(model: Model, config: layer_tree.Entry) -> Model:
    """The model with a graph that hands on its inputs."""
    entries = layer_tree.layer_entries(config)
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
    notes = (*model.notes, *validate.notes(config))
    return replace(model, graph=graph.as_graph_def(), signatures={SERVING: signature}, notes=notes)


def _trace(model: Model, described: Architecture, vouched: Mapping[str, Any]) -> Model:
    lost = layer_tree.unreachable_layers(described.config)
    if lost:
        expected = "expected calls on what other layers give"
        reason = f"layer {lost[0]}: {expected}, found one on nothing; {EXPORT}"
        raise UnsupportedModelError(model.path, [reason])
    with tf.Graph().as_default() as graph, keras_private.build_for_inference():
        built = build_model(model.path, described, vouched)
        signature = _signature(model.path, built)
        variables = _variables(model.path, built, _weights(model.path, described))
        states = state_variables(built)
        variables |= {name: InMemory(np.zeros(shape, dtype)) for name, shape, dtype in states.values()}
    named = {old: name for old, (name, _, _) in states.items()}
    return replace(
        model,
        graph=rename_state_variables(graph.as_graph_def(), named),
        variables=variables,
        signatures={SERVING: signature},
    )


def _signature(path: Path, built: Any) -> Signature:
    """Inputs and outputs by Keras' names for them; each output waits for the states to be updated."""
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
    """The weights as the layers want them: CPU layers may have been saved by cuDNN layers (keras 2.2.4
    engine/saving.py preprocess_weights_for_loading).
    """
    converted = cpu_layers.convert_weights(path, described)
    cudnn = {
        layer_tree.layer_name(entry)
        for entry in layer_tree.layer_entries(described.config)
        if any(classes.is_cudnn(layer) for _, layer in layer_tree.walk(entry))
    }
    return {name: listed if name in cudnn else converted[name] for name, listed in described.weights.items()}


def _variables(path: Path, built: Any, weights: Weights) -> dict[str, Tensor]:
    """The values of the file by the names of the graph's variables, paired by layer and order."""
    values_by_name: dict[str, Tensor] = {}
    reasons = []
    for layer in built.layers:
        wanted = [*layer.trainable_weights, *layer.non_trainable_weights]
        given = weights.get(layer.name, ())
        if len(wanted) != len(given):
            reasons.append(f"layer {layer.name}: expected {len(wanted)} weights, found {len(given)}")
            continue
        for weight, (stored, value) in zip(wanted, given, strict=True):
            if tuple(weight.shape) != tuple(value.shape):
                what = f"layer {layer.name}: weight {stored}"
                reasons.append(f"{what}: expected shape {list(weight.shape)}, found {list(value.shape)}")
            if weight.dtype.as_numpy_dtype != value.dtype:
                what = f"layer {layer.name}: weight {stored}"
                reasons.append(f"{what}: expected {weight.dtype.name}, found {value.dtype}")
            values_by_name[weight.handle.op.name] = value
    lost = sorted(set(weights) - {layer.name for layer in built.layers})
    reasons += [f"layer {name}: expected a layer of the model, found weights alone" for name in lost]
    if reasons:
        raise UnsupportedModelError(
            path, [f"{reason}; is the architecture that of the weights?" for reason in reasons]
        )
    return values_by_name
