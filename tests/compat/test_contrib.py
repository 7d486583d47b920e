"""`install()` serves code that cannot be edited, in a process of its own: it changes TensorFlow's modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cudnn_convert.compat import contrib

#: Old code after `install()`: what it imports, and what it finds missing when it uses it.
PROGRAM = """
from cudnn_convert.compat import cudnn_rnn
cudnn_rnn.install()
cudnn_rnn.install()

import tensorflow
import tensorflow.compat.v1 as tf
import tensorflow.contrib.slim as slim
import tensorflow.contrib.rnn as contrib_rnn
from tensorflow.contrib import crf
from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
from tensorflow.contrib.rnn.python.ops.lstm_ops import LSTMBlockFusedCell

assert tensorflow.contrib.cudnn_rnn is tf.contrib.cudnn_rnn is cudnn_rnn
assert contrib_rnn is tf.contrib.rnn and contrib_rnn.LSTMBlockFusedCell is LSTMBlockFusedCell
assert cudnn_rnn_ops.CudnnLSTM is not cudnn_rnn.CudnnLSTM
with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [None, None, 4])
    cell = tf.nn.rnn_cell.MultiRNNCell([cudnn_rnn.CudnnCompatibleGRUCell(3)])
    y, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    tf.layers.dense(y, 2, name="head")
    names = sorted(variable.op.name for variable in tf.global_variables())
    assert "rnn/multi_rnn_cell/cell_0/cudnn_compatible_gru_cell/gates/bias" in names, names
    assert "head/kernel" in names, names
for use in (lambda: crf.crf_decode(1), lambda: slim.conv2d(1), lambda: tf.contrib.layers.flatten(1)):
    try:
        use()
    except NotImplementedError as error:
        print(error)
"""


def test_a_missing_part_says_so_where_it_is_used() -> None:
    told = "tf.contrib.crf.crf_decode: expected a part of tf.contrib that cudnn_convert.compat has"
    with pytest.raises(NotImplementedError, match=told):
        contrib._Missing("tensorflow.contrib.crf").crf_decode()


@pytest.mark.slow("cudnn_convert/compat")
def test_contrib_is_there_and_says_what_it_has_not() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ending = (
        "expected a part of tf.contrib that cudnn_convert.compat has (cudnn_rnn, rnn), found another, which "
        "left TensorFlow with version 2: replace the call"
    )
    names = ("tf.contrib.crf.crf_decode", "tf.contrib.slim.conv2d", "tf.contrib.layers.flatten")
    assert done.stdout.splitlines() == [f"{name}: {ending}" for name in names]
