"""Traces a Keras 3 model into the graph that it computes, with cuDNN ops.

Keras 3 builds the model of a config that was looked at before, and traces it as a function; nothing of it is
run. Told that there is a GPU, it traces one op for each recurrence, which every target knows; told that there
is none, a loop that only TensorFlow runs well. Source: keras v3.15 src/backend/tensorflow/rnn.py cudnn_ok.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import MissingDependencyError, UnsupportedModelError, first_line
from cudnn_convert.graph import index, node_defs
from cudnn_convert.keras.config import classes, validate
from cudnn_convert.model import SERVING, Architecture, InMemory, Model, Signature, Tensor
from cudnn_convert.private import keras_private
from cudnn_convert.recurrences import saved_functions

_CALL: Final = "model"
_EXPORT: Final = "export it where it loads, and convert that"


def trace_model(model: Model, vouched: classes.Vouched = classes.NOTHING) -> Model:
    """The model with a graph, its variables' values and the signature of its inputs and outputs.

    Raises UnsupportedModelError where it may not or cannot be built, MissingDependencyError where Keras 3
    runs on another backend.
    """
    import keras

    assert model.architecture is not None
    if keras.backend.backend() != "tensorflow":
        found = f"KERAS_BACKEND={keras.backend.backend()}"
        reason = f"expected KERAS_BACKEND=tensorflow, found {found}; set it in the environment"
        raise MissingDependencyError(f"{model.path}: {reason}")
    built = _build(model.path, model.architecture, vouched)
    _assign(model.path, model.architecture, built)
    with keras_private.trace_as_on_gpu():
        concrete = _function(built)
    variable_by_handle = {id(found.handle): found for found in concrete.graph.variables}
    graph = graph_pb2.GraphDef(library=concrete.graph.as_graph_def().library)
    graph.library.function.add().CopyFrom(concrete.function_def)
    variables: dict[str, Tensor] = {}
    captured = []
    for position, found in enumerate(concrete.captured_inputs):
        node, value = _placeholder_of_capture(
            variable_by_handle.get(id(found)), found, f"constant_{position}", variables
        )
        variables |= {} if value is None else {node.name: value}
        captured.append(node.name)
        graph.node.append(node)
    graph.node.extend(saved_functions.call(_CALL, concrete.function_def, captured))
    given = [node.name for node in graph.node if node.op == "Placeholder"]
    inputs = {found.name: f"{name}:0" for found, name in zip(built.inputs, given, strict=True)}
    outputs = {key: f"{_CALL}:{position}" for position, key in enumerate(built.output_names)}
    signature = Signature(inputs, outputs)
    return replace(model, graph=graph, variables=variables, signatures={SERVING: signature})


def _build(path: Path, described: Architecture, vouched: classes.Vouched) -> Any:
    import keras

    refused = validate.layers_not_allowed(described.config, vouched.for_keras_3())
    reasons = [str(replace(refusal, library="Keras 3")) for refusal in refused]
    config = classes.by_name(vouched.keras, described.config)
    if not reasons and (names := validate.modules(config)):
        message = f"config: expected Keras' own classes, found {', '.join(names)} of another module"
        reasons = [f"{message}; bring it with --custom-objects MODULE:{names[0]}"]
    if reasons:
        raise UnsupportedModelError(path, reasons)
    try:
        built = keras.saving.deserialize_keras_object(
            config, custom_objects=dict(vouched.keras), safe_mode=not vouched.trust
        )
    except Exception as cause:
        expected = f"a model that Keras {keras.__version__} can build"
        raise UnsupportedModelError(
            path, [f"config: expected {expected}, found one it refuses: {first_line(cause)}; {_EXPORT}"]
        ) from cause
    if not built.built or not built.inputs:
        expected = "a model whose inputs have shapes"
        raise UnsupportedModelError(
            path, [f"config: expected {expected}, found none; build it, and save it again"]
        )
    return keras_private.functional_model(built)  # what a Sequential model is made of


def _assign(path: Path, described: Architecture, built: Any) -> None:
    """The values of the file, paired with the layers' weights by order."""
    reasons = []
    for layer in built.layers:
        wanted = [*layer.trainable_weights, *layer.non_trainable_weights]
        given = described.weights.get(layer.name, ())
        if [tuple(weight.shape) for weight in wanted] != [value.shape for _, value in given]:
            shapes = [list(value.shape) for _, value in given]
            expected = [list(weight.shape) for weight in wanted]
            actual = f"{shapes}; are config and weights of one model?"
            reasons.append(f"layer {layer.name}: expected weights of shapes {expected}, found {actual}")
            continue
        for weight, (_, value) in zip(wanted, given, strict=True):
            weight.assign(value.read())
    if reasons:
        raise UnsupportedModelError(path, reasons)


def _function(built: Any) -> Any:
    """The model's call as a concrete function of its inputs, flat and in order."""
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, f"input_{k}") for k, tensor in enumerate(built.inputs)]

    def call(*given: Any) -> Any:
        packed = keras_private.pack_inputs(built, given)
        return tf.nest.flatten(built(packed, training=False))

    return tf.function(call, autograph=False).get_concrete_function(*specs)


def _placeholder_of_capture(
    variable: Any, value_of_capture: Any, name: str, taken: Collection[str]
) -> tuple[Any, Tensor | None]:
    """The node that stands for what a function captures, called `name` for a constant; a variable's value."""
    if variable is None:
        return node_defs.constant(name, np.asarray(value_of_capture)), None
    value, name = np.asarray(variable), index.unique(variable.name.partition(":")[0], taken)
    dtype, shape = tf.as_dtype(value.dtype), tf.TensorShape(value.shape)
    node = node_defs.node(name, "VarHandleOp", dtype=dtype, shape=shape, shared_name=name, container="")
    return node, InMemory(value)
