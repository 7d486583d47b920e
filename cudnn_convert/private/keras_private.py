"""Patches and private attributes of Keras 3 and tf_keras.

Source: keras v3.15.0 src/backend/tensorflow/rnn.py, src/models/functional.py; tf_keras v2.21.0
src/backend.py, src/layers/rnn. `tests/private` calls each. The patches are seen by all threads:
their caller holds the process lock (`context.hold_process_lock`), as every library call does.
"""

import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import tensorflow as tf

from cudnn_convert.private import fused_layers


@contextmanager
def build_for_inference() -> Iterator[None]:
    """Build layers of tf_keras for inference, with TensorFlow 1's loops, within the context.

    Such a loop writes each place of an array once. tf_keras (src/backend.py rnn) writes all steps to the
    first where it needs the last alone; here it keeps them all.
    """
    from tf_keras.src import backend

    steps, is_v2 = backend.rnn, tf.compat.v1.control_flow_v2_enabled()

    def all_steps(*args: Any, **named: Any) -> Any:
        return steps(*args, **{**named, "return_all_outputs": True})

    tf.compat.v1.disable_control_flow_v2()
    try:
        with _keep_bases(), patch.object(backend, "rnn", all_steps), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with backend.deprecated_internal_learning_phase_scope(0):
                yield
    finally:
        if is_v2:
            tf.compat.v1.enable_control_flow_v2()


@contextmanager
def load_code(*, allowed: bool) -> Iterator[None]:
    """Let tf_keras run or refuse the code of Lambdas built within the context."""
    from tf_keras.src.saving import serialization_lib

    with serialization_lib.SafeModeScope(safe_mode=not allowed):
        yield


@contextmanager
def _keep_bases() -> Iterator[None]:
    """Restore the base classes of tf_keras' layers and models after the context.

    A layer that is built in a graph of TensorFlow 1 gives its class the bases of version 1. Models of the
    caller share the class, and cannot be called then.
    Source: tf_keras v2.21.0 src/utils/version_utils.py `swap_class`.
    """
    from tf_keras.src.utils import version_utils

    selectors = (version_utils.ModelVersionSelector, version_utils.LayerVersionSelector)
    kept = {kind: kind.__bases__ for selector in selectors for kind in _subclasses(selector)}
    try:
        yield
    finally:
        for kind, bases in kept.items():
            if kind.__bases__ != bases:
                kind.__bases__ = bases


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    below: type[Any]
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


def has_mask(tensor: Any) -> bool:
    """Return True if a symbolic tensor of Keras 3 has a mask.

    Source: keras v3.15.0 src/backend/common/masking.py.
    """
    return getattr(tensor, "_keras_mask", None) is not None


def list_calls(layer: Any) -> list[list[Any]]:
    """Return the symbolic tensors of each call of a Keras 3 layer, except masks.

    Source: keras v3.15.0 src/ops/node.py, src/ops/symbolic_arguments.py; src/layers/layer.py `__call__` adds
    the masks to a call's arguments.
    """
    import keras

    calls = []
    for node in layer._inbound_nodes:
        named = {key: value for key, value in node.arguments.kwargs.items() if not key.endswith("mask")}
        given = keras.tree.flatten([node.arguments.args, named])
        calls.append([value for value in given if isinstance(value, keras.KerasTensor)])
    return calls


def tf1_layers() -> dict[str, Any]:
    """Return the layers of TensorFlow 1, and layers changed in graphs, by class name."""
    import tf_keras
    from tf_keras.src.layers.core import tf_op_layer
    from tf_keras.src.layers.rnn import gru_v1, lstm_v1, rnn_utils

    class LayerNormalization(tf_keras.layers.LayerNormalization):  # type: ignore[misc]
        """A layer in plain ops: the fused form is a batch normalisation in training mode."""

        def _fused_can_be_used(self, ndims: int) -> bool:
            return False

    class RNN(tf_keras.layers.RNN):  # type: ignore[misc]
        """A layer taking states of stacked cells in a flat sequence or by cells.

        Keras 2.2 hands them on one after the other.
        """

        def __call__(
            self, inputs: Any, initial_state: Any = None, constants: Any = None, **named: Any
        ) -> Any:
            inputs, states, constants = rnn_utils.standardize_args(
                inputs, initial_state, constants, self._num_constants
            )
            sizes = self.cell.state_size
            if states is not None and len(states) == len(tf.nest.flatten(sizes)) != len(sizes):
                states = tf.nest.pack_sequence_as([*sizes], states)
            return super().__call__(inputs, initial_state=states, constants=constants, **named)

    class TFOpLambda(tf_op_layer.TFOpLambda):  # type: ignore[misc]
        """A layer kept in a model even if the first argument is a number.

        Version 1 looks at the first argument alone.
        """

        def __call__(self, *args: Any, **named: Any) -> Any:
            outputs = super().__call__(*args, **named)
            given = any(_is_of_model(value) for value in tf.nest.flatten((args, named)))
            if given and not any(map(_is_of_model, tf.nest.flatten(outputs))):
                return self._set_connectivity_metadata(args, named, outputs)
            return outputs

    return {
        **fused_layers.list_cudnn_layers(),
        **fused_layers.list_fused_layers(),
        "LSTMCell": lstm_v1.LSTMCell,
        "GRUCell": gru_v1.GRUCell,
        "LayerNormalization": LayerNormalization,
        "RNN": RNN,
        "TFOpLambda": TFOpLambda,
    }


def _is_of_model(value: Any) -> bool:
    """Return True if a value is a tensor returned by a layer of a model."""
    return hasattr(value, "_keras_history")


def legacy_layer() -> Any:
    """Return the base class of TensorFlow 1's `tf.layers`: variable scopes, reference variables."""
    from tf_keras.src.legacy_tf_layers import base

    return base.Layer


def legacy_cells() -> Any:
    """Return the module of TensorFlow 1's `tf.nn.rnn_cell`, with `LayerRNNCell`."""
    from tf_keras.src.layers.rnn import legacy_cells

    return legacy_cells


def legacy_namespaces() -> tuple[Any, Any]:
    """Return TensorFlow 1's `tf.nn.rnn_cell` and `tf.layers`.

    TensorFlow 2 has them with tf_keras alone.
    """
    legacy = "tf_keras.api._v1.keras.__internal__.legacy"
    return importlib.import_module(f"{legacy}.rnn_cell"), importlib.import_module(f"{legacy}.layers")


@contextmanager
def trace_as_on_gpu() -> Iterator[None]:
    """Trace Keras 3 models as beside a GPU: with cuDNN ops, gates in cuDNN's order."""
    module = importlib.import_module("keras.src.backend.tensorflow.rnn")
    build_info = {**tf.sysconfig.get_build_info(), "is_cuda_build": True, "is_rocm_build": False}
    with (
        patch.object(module, "_is_gpu_available", lambda: True),
        patch.object(tf.sysconfig, "get_build_info", lambda: build_info),
    ):
        yield


def trace_as_on_cpu() -> AbstractContextManager[Any]:
    """Trace Keras 3 models as on a CPU-only machine, with loops for cuDNN ops.

    Where Keras 3 is not imported, no model is its own.
    """
    module = sys.modules.get("keras.src.backend.tensorflow.rnn")
    return patch.object(module, "_is_gpu_available", lambda: False) if module else nullcontext()


def flatten_layers(model: Any) -> Iterator[Any]:
    """Return all layers of a Keras 3 or tf_keras model, nested models and wrappers included."""
    layers: Iterator[Any] = iter(model._flatten_layers())
    return layers


def functional_model(model: Any) -> Any:
    """Return the functional model inside a Keras 3 Sequential; else the model."""
    return getattr(model, "_functional", None) or model


def pack_inputs(model: Any, tensors: Sequence[Any]) -> Any:
    """Pack tensors, in the order of a model's `inputs`, into the model's lists and dicts.

    Keras 3 refuses a list for a dict whose keys are not in sorted order.
    Source: keras v3.15.0 src/models/functional.py Functional._standardize_inputs.
    """
    taken = getattr(model, "input", None)  # a Sequential of Keras 3 has none before a model calls it
    return tf.nest.pack_sequence_as(taken, tensors) if tf.nest.is_nested(taken) else tensors[0]


def innermost_line(cause: BaseException) -> str:
    """Return the first line of a layer's error, cleared of Keras 3's configs.

    Source: keras v3.15.0 src/saving/serialization_lib.py deserialize_keras_object.
    """
    innermost = str(cause).rpartition("Exception encountered: ")[2]
    without_config = innermost.partition("Full object config:")[0].strip()
    return (without_config.splitlines() or [""])[0] or type(cause).__name__
