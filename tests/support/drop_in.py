"""Layers of the drop-in, as tests build them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cudnn_convert.compat import cudnn_rnn
from cudnn_convert.model import Mode

v1 = tf.compat.v1
LAYERS = {
    Mode.LSTM: cudnn_rnn.CudnnLSTM,
    Mode.GRU: cudnn_rnn.CudnnGRU,
    Mode.RNN_TANH: cudnn_rnn.CudnnRNNTanh,
    Mode.RNN_RELU: cudnn_rnn.CudnnRNNRelu,
}


def small(mode: Mode = Mode.LSTM, **named: Any) -> Any:
    """A layer of two bidirectional layers with random biases."""
    biases = v1.random_uniform_initializer(-0.5, 0.5, seed=3)
    return LAYERS[mode](2, 5, direction="bidirectional", bias_initializer=biases, seed=7, **named)
