"""LSTM and GRU layers of tf_keras, traced to a cuDNN op as in Keras 3.

Every format has a form of the op, such as the fused node of ONNX. The op replaces a layer that computes the
same: gates of tanh and sigmoid, a bias, and for a GRU a reset gate after the product. Two kinds stay loops.
A mask may have holes, which need more than cuDNN's lengths. A stateful layer keeps its states in variables
of their own shape, which `--states` turns into inputs for calls of any number of steps.
Source: tf_keras v2.21.0 src/layers/rnn/lstm.py `LSTM.__init__` (`_could_use_gpu_kernel`), `gpu_lstm`; gru.py.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import tensorflow as tf


def list_fused_layers() -> dict[str, Any]:
    """Define the LSTM and GRU of TensorFlow 1 graphs, by class name."""
    from tf_keras.src.layers.rnn import gru, gru_v1, lstm, lstm_v1

    lstm_layer = _fuse(lstm_v1.LSTM, lstm.tf, lstm.gpu_lstm)
    return {"LSTM": lstm_layer, "GRU": _fuse(gru_v1.GRU, gru.tf, gru.gpu_gru)}


def _fuse(base: Any, module: Any, op: Callable[..., Any]) -> Any:
    """Define a layer with the cuDNN op for unmasked calls, named like the base."""

    def call(
        self: Any, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None
    ) -> Any:
        if mask is not None or not _matches_cudnn(self):
            return base.call(self, inputs, mask=mask, training=training, initial_state=initial_state)
        with _on_a_gpu(module):
            return _call_op(self, op, inputs, initial_state)

    return type(base.__name__, (base,), {"call": call})


def list_cudnn_layers() -> dict[str, Any]:
    """Define the CuDNNLSTM and CuDNNGRU of TensorFlow 1 graphs, by class name.

    Both write `CudnnRNNV3` with the lengths of whole rows, as those of tf_keras 2.18 do and those of 2.16 do
    not, so that an artifact has the same tensors whichever TensorFlow wrote it.
    Source: tf_keras v2.21.0 src/layers/rnn/cudnn_lstm.py `CuDNNLSTM._process_batch`; cudnn_gru.py.
    """
    from tf_keras.src.layers.rnn import cudnn_gru, cudnn_lstm

    bases = ((cudnn_lstm.CuDNNLSTM, cudnn_lstm.tf.raw_ops), (cudnn_gru.CuDNNGRU, cudnn_gru.tf.raw_ops))
    return {base.__name__: _add_lengths(base, ops) for base, ops in bases}


def _add_lengths(base: Any, ops: Any) -> Any:
    """Define a cuDNN layer with lengths, named like the base."""

    def _process_batch(self: Any, inputs: Any, initial_state: Any) -> Any:
        with _with_lengths(ops):
            return base._process_batch(self, inputs, initial_state)

    return type(base.__name__, (base,), {"_process_batch": _process_batch})


def _with_lengths(ops: Any) -> AbstractContextManager[Any]:
    """Make `CudnnRNNV2` write `CudnnRNNV3` over whole rows, within the context."""

    def of_whole_rows(*, input: Any, **named: Any) -> Any:  # noqa: A002 - the op's name of it
        batch, steps = tf.shape(input)[1], tf.shape(input)[0]
        return ops.CudnnRNNV3(input=input, sequence_lengths=tf.fill([batch], steps), **named)

    return patch.object(ops, "CudnnRNNV2", of_whole_rows)


def _matches_cudnn(layer: Any) -> bool:
    gates = (layer.activation.__name__, layer.recurrent_activation.__name__)
    is_usual = gates == ("tanh", "sigmoid") and layer.use_bias and getattr(layer, "reset_after", True)
    return is_usual and not layer.time_major and not layer.stateful


def _call_op(layer: Any, op: Any, inputs: Any, initial_state: Any) -> Any:
    """Call a layer through a GPU function of tf_keras; return the results of `RNN.call`."""
    inputs, begin, _ = layer._process_inputs(inputs, initial_state, None)
    steps = tf.transpose(tf.reverse(inputs, [1]) if layer.go_backwards else inputs, [1, 0, 2])
    weights = layer.cell.kernel, layer.cell.recurrent_kernel, layer.cell.bias
    of_all = {"mask": None, "sequence_lengths": None, "time_major": True, "go_backwards": False}
    last, each, *end, _ = op(steps, *begin, *weights, return_sequences=True, **of_all)
    output = tf.transpose(each, [1, 0, 2]) if layer.return_sequences else last
    return [output, *end] if layer.return_state else output


@contextmanager
def _on_a_gpu(module: Any) -> Iterator[None]:
    """Make the GPU functions of tf_keras write `CudnnRNNV2`, with gates in the order of cuDNN.

    `CudnnRNNV3` would get lengths. For an input of fixed sizes TensorFlow writes them as numbers, which hide
    the axis that they come from.
    """
    ops, settings = module.raw_ops, module.sysconfig
    build_info = {**settings.get_build_info(), "is_cuda_build": True, "is_rocm_build": False}

    def without_lengths(*, sequence_lengths: Any, time_major: bool, **named: Any) -> Any:
        return ops.CudnnRNNV2(**named)

    with (
        patch.object(ops, "CudnnRNNV3", without_lengths),
        patch.object(settings, "get_build_info", lambda: build_info),
    ):
        yield
