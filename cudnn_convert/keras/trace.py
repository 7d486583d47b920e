"""A Keras model as the graph that it computes, its cuDNN layers in it.

tf_keras builds the layers in a graph of TensorFlow 1's kind: there nothing is placed or run, so that the ops
without a CPU kernel stand in it like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import (
    architecture,
    calls,
    export,
    inference,
    layers,
    objects,
    rewrite,
    states,
    vetting,
)
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.keras.custom import NOTHING, Vouched
from cudnn_convert.model import SERVING, Architecture, InMemory, Model, Signature, Tensor

Weights = Mapping[str, tuple[tuple[str, Tensor], ...]]


def traced(model: Model, vouched: Vouched = NOTHING) -> Model:
    """The model with a graph, its variables' values and the signature of its input and output layers.

    Inference: no dropout, moving averages in normalisations. States of stateful layers are variables that
    each call updates. Raises UnsupportedModelError for a layer that may not or cannot be built, or whose
    weights do not fit.
    """
    assert model.architecture is not None
    if model.architecture.keras_version.partition(".")[0] == "3":
        return export.traced(model, vouched)
    found = [*vetting.refused(model.architecture.config, vouched)]
    if found:
        raise UnsupportedModelError(model.path, [str(one) for one in found])
    return _traced(model, model.architecture, vouched.tf_keras)


def traced_part(model: Model, vouched: Vouched = NOTHING, *, verify: bool = True) -> Model:
    """As `traced`, of what stands before the first layer that may not be built; notes say so.

    Where that is nothing: its inputs alone, unless someone is to `verify` it.
    """
    assert model.architecture is not None
    version = model.architecture.keras_version
    if version.partition(".")[0] == "3":
        told = f"model: expected one of Keras 2, found Keras {version}; it loads as it is"
        raise UnsupportedModelError(model.path, [told])
    found = [*vetting.refused(model.architecture.config, vouched)]
    part = vetting.own_part(model.architecture, vouched) if found else model.architecture
    if part is None and verify:
        more = "" if found[0].runs else ", for --format keras one for Keras 3 too"
        told = "as it stands the model cannot be verified, for nothing comes before this layer"
        reason = f"{found[0]}{more}; {told}: convert it with --no-verify"
        raise UnsupportedModelError(model.path, [reason])
    if part is None:
        return _inputs_alone(model, model.architecture.config)
    notes = vetting.notes(model.architecture.config, vouched)
    return replace(_traced(model, part, vouched.tf_keras), notes=(*model.notes, *notes))


def _inputs_alone(model: Model, config: Entry) -> Model:
    """The model with a graph that hands on its inputs."""
    entries = architecture.layers(config)
    given = [entry["config"] for entry in entries if entry["class_name"] == "InputLayer"]
    given = given or [{**entries[0]["config"], "name": f"{architecture.name(entries[0])}_input"}]
    with tf.Graph().as_default() as graph:
        inputs = {
            found["name"]: tf.compat.v1.placeholder(
                objects.dtype(found.get("dtype")) or "float32", objects.shape(found.get("batch_input_shape"))
            )
            for found in given
        }
        outputs = {key: tf.identity(value) for key, value in inputs.items()}
    signature = Signature(*({key: value.name for key, value in of.items()} for of in (inputs, outputs)))
    notes = (*model.notes, *vetting.notes(config))
    return replace(model, graph=graph.as_graph_def(), signatures={SERVING: signature}, notes=notes)


def _traced(model: Model, described: Architecture, vouched: Mapping[str, Any]) -> Model:
    lost = calls.unreached(described.config)
    if lost:
        expected = "expected calls on what other layers give"
        reason = f"layer {lost[0]}: {expected}, found one on nothing; {inference.EXPORT}"
        raise UnsupportedModelError(model.path, [reason])
    with tf.Graph().as_default() as graph, inference.inference():
        built = inference.built(model.path, described, vouched)
        signature = _signature(model.path, built)
        variables = _variables(model.path, built, _weights(model.path, described))
        held = states.variables(built)
        variables |= {name: InMemory(np.zeros(shape, dtype)) for name, shape, dtype in held.values()}
    named = {old: name for old, (name, _, _) in held.items()}
    return replace(
        model,
        graph=states.renamed(graph.as_graph_def(), named),
        variables=variables,
        signatures={SERVING: signature},
    )


def _signature(path: Path, built: Any) -> Signature:
    """Inputs and outputs by Keras' names for them; each output waits for the states to be updated."""
    tensors = [*built.inputs, *built.outputs]
    if not all(isinstance(found, tf.Tensor) for found in tensors):
        reason = "config: expected dense inputs and outputs, found sparse or ragged; build it with dense ones"
        raise UnsupportedModelError(path, [reason])
    inputs = dict(zip(built.input_names, built.inputs, strict=True))
    outputs = dict(zip(built.output_names, built.outputs, strict=True))
    if writes := states.updates(built):
        with tf.control_dependencies(writes):
            outputs = {key: tf.identity(value, f"{key}/after_update") for key, value in outputs.items()}
    return Signature(*({key: value.name for key, value in found.items()} for found in (inputs, outputs)))


def _weights(path: Path, described: Architecture) -> Weights:
    """The weights as the layers want them: CPU layers may have been saved by cuDNN layers (keras 2.2.4
    engine/saving.py preprocess_weights_for_loading).
    """
    converted = rewrite.rewritten(path, described).architecture.weights
    cudnn = {
        architecture.name(entry)
        for entry in architecture.layers(described.config)
        if any(layers.is_cudnn(found) for _, found in architecture.walk(entry))
    }
    return {name: listed if name in cudnn else converted[name] for name, listed in described.weights.items()}


def _variables(path: Path, built: Any, weights: Weights) -> dict[str, Tensor]:
    """The values of the file by the names of the graph's variables, paired by layer and order."""
    found: dict[str, Tensor] = {}
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
            found[weight.handle.op.name] = value
    lost = sorted(set(weights) - {layer.name for layer in built.layers})
    reasons += [f"layer {name}: expected a layer of the model, found weights alone" for name in lost]
    if reasons:
        raise UnsupportedModelError(
            path, [f"{reason}; is the architecture that of the weights?" for reason in reasons]
        )
    return found
