"""Sequences `[time, batch, columns]` whose rows have lengths; `None` is the whole of each."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def backwards(x: Any, lengths: Any) -> Any:
    """Time reversed inside each row's valid part."""
    return tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(x, lengths, 0, 1)


def alive(x: Any, lengths: Any) -> Any:
    """`[time, batch, 1]`: whether a step lies inside its row's length."""
    return tf.transpose(tf.sequence_mask(lengths, tf.shape(x)[0]))[:, :, None]


def at_end(first: Any, steps: Any, lengths: Any) -> Any:
    """The state at each row's own end: `first` at length 0, else the step before the length."""
    if lengths is None:
        return tf.concat([first[None], steps[-1:]], 0)[-1]
    rows = tf.range(tf.shape(first)[0])
    return tf.gather_nd(tf.concat([first[None], steps], 0), tf.stack([lengths, rows], 1))


def times(x: Any, matrix: Any, bias: Any = None) -> Any:
    """`x [time, batch, inputs] @ matrix [inputs, outputs]` in one product, plus `bias [outputs]` if given."""
    time, batch = tf.shape(x)[0], tf.shape(x)[1]
    # A size of -1 would have no answer in TensorFlow Lite where there are no rows.
    rows = tf.reshape(x, tf.stack([time * batch, matrix.shape[0]]))
    rows = rows @ matrix if bias is None else affine(rows, matrix, bias)
    return tf.reshape(rows, tf.stack([time, batch, matrix.shape[1]]))


def affine(x: Any, matrix: Any, bias: Any) -> Any:
    """`x [rows, inputs] @ matrix [inputs, outputs] + bias [outputs]`.

    TensorFlow makes one op of a product and a BiasAdd on a CPU, and two of a product and any other sum.
    Source: tensorflow v2.21.0 core/grappler/optimizers/remapper.cc, its supported patterns.
    """
    return tf.nn.bias_add(x @ matrix, bias)
