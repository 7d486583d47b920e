"""Patches and private attributes of Keras 3 and tf_keras.

Source: keras v3.15.0 src/backend/tensorflow/rnn.py, src/models/functional.py; tf_keras v2.21.0
src/backend.py, src/layers/rnn. `tests/house/test_private.py` calls each. The patches are seen by all threads:
their caller holds the process lock (`context.hold_process_lock`), as every library call does.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import tensorflow as tf

#: The ops of an initial state that a call is not given (tf_keras v2.21.0 src/layers/rnn/rnn_utils.py).
_ZEROS: Final = frozenset({"Fill", "Const"})


@contextmanager
def _replace(owner: Any, name: str, value: Callable[..., Any]) -> Iterator[None]:
    """Replace an attribute of a module within the context."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


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
        with _keep_bases(), _replace(backend, "rnn", all_steps), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with backend.deprecated_internal_learning_phase_scope(0):
                yield
    finally:
        if is_v2:
            tf.compat.v1.enable_control_flow_v2()


@contextmanager
def compute_as_keras_team(*, first_state: bool) -> Iterator[dict[str, bool]]:
    """Build layers of tf_keras that compute as those of keras-team's Keras 2, within the context.

    It resizes images from their corners, not from pixel centres. At a masked step it repeats what came
    before, also inside a Bidirectional, where TensorFlow's Keras gives zeros; with `first_state` that is the
    first state, which an initial state may begin, else the output, which begins with zeros. TimeDistributed
    has no mask. The dict gets the scopes of masked layers that tf_keras computes otherwise, and whether for
    an initial state.
    Source: keras v2.2.4 and v2.3.1 backend/tensorflow_backend.py `rnn`, `resize_images`, layers/wrappers.py;
    tf_keras v2.21.0 src/backend.py, src/layers/rnn/bidirectional.py, time_distributed.py.
    """
    from tf_keras.src import backend

    steps, resize, others = backend.rnn, backend.resize_images, dict[str, bool]()

    def run_steps(step: Any, inputs: Any, initial_states: Any, **named: Any) -> Any:
        mask = named.pop("mask", None) if initial_states else None
        repeats_state = first_state and not named.get("unroll")
        given = [state for state in tf.nest.flatten(initial_states) if state.op.type not in _ZEROS]
        if mask is not None and (named.get("zero_output_for_mask") or (repeats_state and given)):
            others[tf.compat.v1.get_default_graph().get_name_scope()] = bool(repeats_state and given)
        named = {**named, "zero_output_for_mask": False}
        if mask is None or not repeats_state:
            return steps(step, inputs, initial_states, **{**named, "mask": mask})

        kept_steps = tf.expand_dims(tf.cast(mask, tf.bool), -1)

        def step_or_repeat(given: Any, states: Any) -> Any:
            current, kept = given
            output, new_states = step(current, states)
            old_states = states[: len(new_states)]
            new_states = tf.nest.map_structure(lambda *pair: tf.where(kept, *pair), new_states, [*old_states])
            return tf.where(kept, output, tf.nest.flatten(states)[0]), new_states

        return steps(step_or_repeat, (inputs, kept_steps), initial_states, **named)

    def resize_images(
        images: Any, rows: int, columns: int, data_format: str, interpolation: str = "nearest"
    ) -> Any:
        if interpolation != "bilinear":
            return resize(images, rows, columns, data_format, interpolation=interpolation)
        channels_first = data_format == "channels_first"
        last = tf.transpose(images, [0, 2, 3, 1]) if channels_first else images
        known = last.shape[1:3]
        size = tf.constant(known.as_list()) if known.is_fully_defined() else tf.shape(last)[1:3]
        resized = tf.compat.v1.image.resize_bilinear(last, size * [rows, columns])
        return tf.transpose(resized, [0, 3, 1, 2]) if channels_first else resized

    with _replace(backend, "rnn", run_steps), _replace(backend, "resize_images", resize_images):
        yield others


@contextmanager
def load_code(*, allowed: bool) -> Iterator[None]:
    """Let tf_keras run the code of Lambdas that it builds within the context, or refuse it."""
    from tf_keras.src.saving import serialization_lib

    with serialization_lib.SafeModeScope(safe_mode=not allowed):
        yield


@contextmanager
def _keep_bases() -> Iterator[None]:
    """Give the layers and models of tf_keras their base classes back after the context.

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


def tf1_layers() -> dict[str, Any]:
    """The layers of TensorFlow 1 by their class names, and those that change in its graphs."""
    import tf_keras
    from tf_keras.src.layers.core import tf_op_layer
    from tf_keras.src.layers.rnn import cudnn_gru, cudnn_lstm, gru_v1, lstm_v1

    class LayerNormalization(tf_keras.layers.LayerNormalization):  # type: ignore[misc]
        """Computes in plain ops: the fused form is a batch normalisation in training mode."""

        def _fused_can_be_used(self, ndims: int) -> bool:
            return False

    class TFOpLambda(tf_op_layer.TFOpLambda):  # type: ignore[misc]
        """Is part of a model where its first argument is a number: version 1 looks at that one alone."""

        def __call__(self, *args: Any, **named: Any) -> Any:
            outputs = super().__call__(*args, **named)
            given = any(_is_of_model(value) for value in tf.nest.flatten((args, named)))
            if given and not any(map(_is_of_model, tf.nest.flatten(outputs))):
                return self._set_connectivity_metadata(args, named, outputs)
            return outputs

    return {
        "CuDNNLSTM": cudnn_lstm.CuDNNLSTM,
        "CuDNNGRU": cudnn_gru.CuDNNGRU,
        "LSTM": lstm_v1.LSTM,
        "GRU": gru_v1.GRU,
        "LSTMCell": lstm_v1.LSTMCell,
        "GRUCell": gru_v1.GRUCell,
        "LayerNormalization": LayerNormalization,
        "TFOpLambda": TFOpLambda,
    }


def _is_of_model(value: Any) -> bool:
    """Whether a value is a tensor that a layer of a model returned."""
    return hasattr(value, "_keras_history")


def legacy_layer() -> Any:
    """The base class of TensorFlow 1's `tf.layers`: variable scopes, reference variables."""
    from tf_keras.src.legacy_tf_layers import base

    return base.Layer


def legacy_cells() -> Any:
    """The module of TensorFlow 1's `tf.nn.rnn_cell`, with its `LayerRNNCell`."""
    from tf_keras.src.layers.rnn import legacy_cells

    return legacy_cells


def legacy_namespaces() -> tuple[Any, Any]:
    """TensorFlow 1's `tf.nn.rnn_cell` and `tf.layers`, which TensorFlow 2 has with tf_keras alone."""
    legacy = "tf_keras.api._v1.keras.__internal__.legacy"
    return importlib.import_module(f"{legacy}.rnn_cell"), importlib.import_module(f"{legacy}.layers")


@contextmanager
def trace_as_on_gpu() -> Iterator[None]:
    """Trace Keras 3 models as beside a GPU: with cuDNN ops, gates in cuDNN's order."""
    module = importlib.import_module("keras.src.backend.tensorflow.rnn")
    build_info = {**tf.sysconfig.get_build_info(), "is_cuda_build": True, "is_rocm_build": False}
    with (
        _replace(module, "_is_gpu_available", lambda: True),
        _replace(tf.sysconfig, "get_build_info", lambda: build_info),
    ):
        yield


@contextmanager
def trace_as_on_cpu() -> Iterator[None]:
    """Trace Keras 3 models as on a machine without a GPU: with loops in place of cuDNN ops.

    Where Keras 3 is not imported, no model is its own.
    """
    module = sys.modules.get("keras.src.backend.tensorflow.rnn")
    with _replace(module, "_is_gpu_available", lambda: False) if module else nullcontext():
        yield


def flatten_layers(model: Any) -> Iterator[Any]:
    """All layers of a Keras 3 or tf_keras model, of nested models and wrappers too."""
    layers: Iterator[Any] = iter(model._flatten_layers())
    return layers


def functional_model(model: Any) -> Any:
    """The functional model inside a Sequential model of Keras 3; any other model itself."""
    return getattr(model, "_functional", None) or model


def pack_inputs(model: Any, tensors: Sequence[Any]) -> Any:
    """Tensors in the order of a model's `inputs`, in the lists and dicts that it takes.

    Keras 3 refuses a list for a dict whose keys are not in sorted order.
    Source: keras v3.15.0 src/models/functional.py Functional._standardize_inputs.
    """
    taken = getattr(model, "input", None)  # a Sequential of Keras 3 has none before a model calls it
    return tf.nest.pack_sequence_as(taken, tensors) if tf.nest.is_nested(taken) else tensors[0]


def innermost_line(cause: BaseException) -> str:
    """Return the first line of a layer's error, without the configs Keras 3 adds.

    Source: keras v3.15.0 src/saving/serialization_lib.py deserialize_keras_object.
    """
    innermost = str(cause).rpartition("Exception encountered: ")[2]
    without_config = innermost.partition("Full object config:")[0].strip()
    return (without_config.splitlines() or [""])[0] or type(cause).__name__
