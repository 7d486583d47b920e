"""Building the layers of a config with tf_keras, for inference, in the current graph of TensorFlow 1's kind.

The layers are those of old: their defaults are what a config means that does not say (tf_keras 2.21
src/layers/rnn/lstm_v1.py, gru_v1.py: hard_sigmoid, reset_after=False).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.errors import UnsupportedModelError, first_line
from cudnn_convert.keras import plain
from cudnn_convert.model import Architecture

#: What to do with a model that cannot be built here.
EXPORT: Final = "save it as a SavedModel where it loads, and convert that"


@contextmanager
def inference() -> Iterator[None]:
    """Layers built within compute what they do at inference, loops as TensorFlow 1 wrote them.

    Such a loop writes each place of an array once. tf_keras (2.21 src/backend.py rnn) writes all steps to the
    first where it needs the last alone; here it keeps them all.
    """
    from tf_keras.src import backend

    loops, steps = tf.compat.v1.control_flow_v2_enabled(), backend.rnn

    def all_steps(*args: Any, **named: Any) -> Any:
        return steps(*args, **{**named, "return_all_outputs": True})

    tf.compat.v1.disable_control_flow_v2()
    backend.rnn = all_steps
    try:
        with backend.deprecated_internal_learning_phase_scope(0), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        backend.rnn = steps
        if loops:
            tf.compat.v1.enable_control_flow_v2()


def _layers_of_old() -> dict[str, Any]:
    import tf_keras
    from tf_keras.src.layers.rnn import cudnn_gru, cudnn_lstm, gru_v1, lstm_v1

    class LayerNormalization(tf_keras.layers.LayerNormalization):  # type: ignore[misc]
        """In plain ops. Its other form is a batch normalisation in training mode over one row each."""

        def _fused_can_be_used(self, ndims: int) -> bool:
            return False

    return {
        "CuDNNLSTM": cudnn_lstm.CuDNNLSTM,
        "CuDNNGRU": cudnn_gru.CuDNNGRU,
        "LSTM": lstm_v1.LSTM,
        "GRU": gru_v1.GRU,
        "LSTMCell": lstm_v1.LSTMCell,
        "GRUCell": gru_v1.GRUCell,
        "LayerNormalization": LayerNormalization,
    }


def built(path: Path, described: Architecture, vouched: Mapping[str, Any]) -> Any:
    """The model of tf_keras for a vetted config. Raises UnsupportedModelError where none can be built."""
    import tf_keras

    config, failure = plain.plain(described.config, kept=vouched), None
    with tf_keras.utils.custom_object_scope({**_layers_of_old(), **vouched}), _floats(described):
        for shaped in plain.with_input_shape(config):
            try:
                made = tf_keras.layers.deserialize(shaped, use_legacy_format=True)
            except Exception as cause:  # noqa: BLE001 - whatever a layer says to a config not its own
                failure = cause
                continue
            if isinstance(made, tf_keras.Model) and made.built and made.inputs:
                return made
    found = "one whose input has no shape; build it, and save it again"
    if failure is not None:
        found = f"one it refuses: {first_line(failure)}; {EXPORT}"
    raise UnsupportedModelError(
        path, [f"config: expected a model that tf_keras can build, found {found}"]
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
