"""The drop-in's layers: their states, their checkpoints, wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import STEPS
from support.drop_in import small

from cudnn_convert.compat import cudnn_rnn, cudnn_rnn_ops

v1 = tf.compat.v1


def test_the_default_states_of_a_batch_major_call_fit() -> None:
    """TensorFlow 1.15 took their batch from the number of steps."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = np.random.default_rng(2).normal(size=(3, STEPS, 4)).astype(np.float32)
        layer = small()
        y, (h, c) = layer(tf.constant(x), time_major=False, training=False)
        other, (h_other, c_other) = layer(tf.constant(x.swapaxes(0, 1)), training=False)
        v1.global_variables_initializer().run()
        answers = session.run([y, h, c, other, h_other, c_other])
    for ours, theirs in zip(answers[:3], answers[3:], strict=True):
        np.testing.assert_allclose(ours.swapaxes(0, 1), theirs, atol=1e-6)


def test_a_meta_graph_of_the_drop_in_is_imported(tmp_path: Path) -> None:
    """TensorFlow 1 wrote the saveable's name as that of an op which was not there."""
    with tf.Graph().as_default(), v1.Session() as session:
        y, _ = cudnn_rnn.CudnnGRU(1, 5, direction="bidirectional")(
            v1.placeholder(tf.float32, [None, None, 4], "x"), training=False
        )
        v1.global_variables_initializer().run()
        expected = session.run(y, {"x:0": np.ones((3, 2, 4))})
        v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
        name = y.name
    with tf.Graph().as_default(), v1.Session() as session:
        saver = v1.train.import_meta_graph(str(tmp_path / "model.ckpt.meta"))
        saver.restore(session, str(tmp_path / "model.ckpt"))
        np.testing.assert_array_equal(session.run(name, {"x:0": np.ones((3, 2, 4))}), expected)


def build_twice() -> None:
    layer = small()
    layer.build([None, None, 4])
    layer._create_saveable()


def three(shape: Any = (None, None, 4)) -> Any:
    return v1.placeholder(tf.float32, shape)


def cell() -> Any:
    return cudnn_rnn.CudnnCompatibleLSTMCell(5)


def stack(forward: Any, backward: Any, **named: Any) -> Any:
    return cudnn_rnn.stack_bidirectional_dynamic_rnn(forward, backward, three(), dtype=tf.float32, **named)


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5, direction="both"),
        ValueError,
        "Invalid direction: both, expecting unidirectional or bidirectional",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5, input_mode="none"),
        ValueError,
        "Invalid input_mode: none, expect one of (linear_input, skip_input, auto_select)",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5, dtype=tf.int32),
        ValueError,
        "Only support float16, float32, float64, provided <dtype: 'int32'>",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5).build([None, 4]),
        ValueError,
        "Expecting input_shape with 3 dims, got 2",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5)(three([None, None, None])),
        ValueError,
        "The last dimension of the inputs to `CudnnRNN` should be defined. Found `None`.",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5).input_size,
        ValueError,
        "'input_size' is unknown since layer has not been built.",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5).canonical_weight_shapes,
        RuntimeError,
        "CudnnGRU.canonical_weight_shapes invoked before input shape is known",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5)(three(), initial_state=[tf.zeros([1, 2, 5])]),
        TypeError,
        "Invalid initial_state type: list, expecting tuple.",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 5)(three(), initial_state=(tf.zeros([1, 2, 5]),)),
        ValueError,
        "Invalid initial_state: expecting 2 tensors, got 1",
    ),
    (
        lambda: cudnn_rnn.CudnnLSTM(1, 4, input_mode="auto_select")(three()),
        ValueError,
        "Invalid input_mode: auto_select, expecting linear_input for a layer with input_size == num_units; "
        "cudnn_rnn_ops has classes for skip_input",
    ),
    (build_twice, RuntimeError, "Cudnn saveable already created."),
    (
        lambda: cudnn_rnn_ops.CudnnLSTM(1, 5, 4, input_mode="skip_input"),
        ValueError,
        "Invalid input_mode: skip_input, expecting input_size == num_units, got 4 and 5",
    ),
    (
        lambda: cudnn_rnn_ops.cudnn_rnn_opaque_params_size("rnn", 1, 5, 4),
        ValueError,
        "Invalid rnn_mode: rnn, expect one of (lstm, gru, rnn_tanh, rnn_relu)",
    ),
    (
        lambda: cudnn_rnn.build_for("TPU").__enter__(),
        ValueError,
        "Invalid device: TPU, expecting one of (CPU, GPU)",
    ),
    (
        lambda: cudnn_rnn.CudnnGRU(1, 5).canonical_bias_shapes,
        RuntimeError,
        "CudnnGRU.canonical_bias_shapes invoked before input shape is known",
    ),
    (
        lambda: [(layer := cudnn_rnn.CudnnGRU(1, 5, name="gru"))(three()), layer(three([None, None, 6]))],
        ValueError,
        'Input 0 of layer "gru" is incompatible with the layer: expected axis -1 of input shape to '
        "have value 4, but received input with shape (None, None, 6)",
    ),
    (
        lambda: cudnn_rnn_ops.CudnnGRU(1, 5, 4, num_proj=3),
        ValueError,
        "Invalid num_proj: 3, expecting none for rnn_mode gru",
    ),
    (
        lambda: cudnn_rnn_ops.CudnnRNNTanh(1, 5, 4).canonical_to_params([tf.zeros([5, 4])], []),
        ValueError,
        "canonical parameters: expected 2 matrices and 2 biases, found 1 and 0",
    ),
    (
        lambda: cudnn_rnn_ops.cudnn_gru(three(), three([None, 2, 5]), tf.zeros([9]), False),
        ValueError,
        "Expecting known sizes of input_h [num_layers * num_dirs, batch, num_units] and of inputs' last "
        "dimension, got (None, 2, 5) and (None, None, 4)",
    ),
    (
        lambda: cudnn_rnn.CudnnCompatibleGRUCell(5).build([None, None]),
        ValueError,
        "Expected inputs.shape[-1] to be known, saw shape: (None, None)",
    ),
    (
        lambda: cudnn_rnn.CudnnCompatibleLSTMCell(5).build([None, None]),
        ValueError,
        "Expecting inputs_shape[1] to be set: (None, None)",
    ),
    (
        lambda: cudnn_rnn.CudnnCompatibleLSTMCell(5)(three([2, 4]), tuple([tf.zeros([2, 5])] * 3)),
        ValueError,
        "Expecting state to be a tuple with length 2.",
    ),
    (
        lambda: cudnn_rnn.LSTMBlockFusedCell(5)(three([None, None, None]), dtype=tf.float32),
        ValueError,
        "Expecting inputs_shape[2] to be set: (None, None, None)",
    ),
    (
        lambda: cudnn_rnn.LSTMBlockFusedCell(5)(three()),
        ValueError,
        "Either initial_state or dtype needs to be specified",
    ),
    (
        lambda: cudnn_rnn.LSTMBlockFusedCell(5)(three(), initial_state=[tf.zeros([2, 5])]),
        ValueError,
        "Expecting initial_state to be a tuple with length 2 or None",
    ),
    (lambda: stack([], [cell()]), ValueError, "Must specify at least one fw cell for BidirectionalRNN."),
    (lambda: stack([cell()], []), ValueError, "Must specify at least one bw cell for BidirectionalRNN."),
    (lambda: stack((cell(),), [cell()]), ValueError, "cells_fw must be a list of RNNCells (one per layer)."),
    (lambda: stack([cell()], (cell(),)), ValueError, "cells_bw must be a list of RNNCells (one per layer)."),
    (
        lambda: stack([cell()], [cell(), cell()]),
        ValueError,
        "Forward and Backward cells must have the same depth.",
    ),
    (
        lambda: stack([cell()], [cell()], initial_states_fw=()),
        ValueError,
        "initial_states_fw must be a list of state tensors (one per layer).",
    ),
    (
        lambda: stack([cell()], [cell()], initial_states_bw=[None, None]),
        ValueError,
        "initial_states_bw must be a list of state tensors (one per layer).",
    ),
    (
        lambda: tf.train.Checkpoint(layer=cudnn_rnn.CudnnGRU(1, 5)).save("unused"),
        NotImplementedError,
        "CudnnGRU: tf.train.Checkpoint is not supported, use tf.compat.v1.train.Saver",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "message"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_a_wrong_argument_gets_the_error_of_tensorflow_1(
    wrong: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with tf.Graph().as_default(), v1.Session(), pytest.raises(kind) as caught:
        wrong()
    assert str(caught.value).splitlines()[0] == message
