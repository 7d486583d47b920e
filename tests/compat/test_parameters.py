"""Parameter blobs as tensors: where each matrix and bias lies."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from cudnn_convert.compat import cudnn_rnn_ops

v1 = tf.compat.v1


def test_a_blob_has_the_matrices_of_each_layer_and_then_all_biases() -> None:
    """Its values are numbers in order, so that each matrix says where it lies."""
    sizes = ("gru", 2, 3, 4)  # layers, units, inputs
    shapes = [(3, 4)] * 3 + [(3, 3)] * 9 + [(3,)] * 12
    ends = np.cumsum([0, *map(np.prod, shapes)])
    blob = np.arange(ends[-1], dtype=np.float32)
    wanted = [
        blob[begin:end].reshape(shape) for shape, begin, end in zip(shapes, ends, ends[1:], strict=False)
    ]
    model = cudnn_rnn_ops.CudnnGRU(2, 3, 4)
    with tf.Graph().as_default(), v1.Session() as session:
        lists = [
            cudnn_rnn_ops.cudnn_rnn_opaque_params_to_canonical(*sizes, blob),
            model.params_to_canonical(tf.constant(blob)),
        ]
        blobs = [
            cudnn_rnn_ops.cudnn_rnn_canonical_to_opaque_params(*sizes, *lists[0]),
            model.canonical_to_params(*lists[1]),
        ]
        counts = [cudnn_rnn_ops.cudnn_rnn_opaque_params_size(*sizes), model.params_size()]
        lists, blobs, counts = session.run((lists, blobs, counts))
    assert counts == [ends[-1]] * 2
    for weights, biases in lists:
        for value, matrix in zip([*weights, *biases], wanted, strict=True):
            np.testing.assert_array_equal(value, matrix)
    for joined in blobs:
        np.testing.assert_array_equal(joined, blob)
