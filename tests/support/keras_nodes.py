"""CudnnRNNV3 nodes as Keras 3 makes them where it sees a GPU: blobs packed from a layer's three matrices.

Source: keras v3.15.0 src/backend/tensorflow/rnn.py `_cudnn_lstm`, `_cudnn_gru`, `_standardize_cudnn_weights`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

INPUTS, UNITS = 3, 4


class Layer(tf.Module):
    """Keras' three matrices of an LSTM or GRU."""

    def __init__(self, mode: str, dtype: Any = tf.float32, units: int = UNITS, name: str = "layer") -> None:
        super().__init__()
        gates = {"lstm": 4, "gru": 3}[mode]
        random = np.random.default_rng([gates, units, *name.encode()])
        bias = [2, gates * units] if mode == "gru" else [gates * units]
        shapes = {"kernel": [INPUTS, gates * units], "recurrent": [units, gates * units], "bias": bias}
        for part, shape in shapes.items():
            setattr(self, part, tf.Variable(random.uniform(-1, 1, shape), dtype=dtype, name=f"{name}/{part}"))
        self.mode, self.units = mode, units

    def blob(self) -> Any:
        return packed(self.mode, self.kernel, self.recurrent, self.bias)


def packed(mode: str, kernel: Any, recurrent: Any, bias: Any) -> Any:
    """The blob of the three matrices, gate for gate and transposed."""

    def matrices(matrix: Any) -> list[Any]:
        parts = tf.split(matrix, 4 if mode == "lstm" else 3, axis=1)
        parts = parts if mode == "lstm" else [parts[1], parts[0], parts[2]]
        return [tf.reshape(tf.transpose(part), [-1]) for part in parts]

    if mode == "lstm":
        biases = tf.split(tf.concat([tf.zeros_like(bias), bias], 0), 8)
    else:
        rows = tf.split(tf.reshape(bias, [-1]), 6)
        biases = [rows[place] for place in (1, 0, 2, 4, 3, 5)]
    return tf.concat([*matrices(kernel), *matrices(recurrent), *biases], 0)


def recurrence(x: Any, mode: str, blob: Any, units: int = UNITS, lengths: Any = None, **options: Any) -> Any:
    """A CudnnRNNV3 node as Keras makes it; `x [B, T, INPUTS]`."""
    batch, steps = tf.shape(x)[0], tf.shape(x)[1]
    state = tf.zeros([batch, 1, units], x.dtype)
    return tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=state,
        input_c=state if mode == "lstm" else tf.zeros([], x.dtype),
        params=blob,
        sequence_lengths=tf.fill([batch], steps) if lengths is None else lengths,
        rnn_mode=mode,
        time_major=False,
        **options,
    ).output
