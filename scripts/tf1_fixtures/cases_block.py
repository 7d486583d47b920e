"""TensorFlow 1's own fused LSTM ops, BlockLSTM and LSTMBlockCell, and the loops of CudnnCompatible cells.

They run on a CPU as they are, so that one graph gives checkpoint and answers (record_cpu).
"""
import tensorflow as tf
from tensorflow.contrib import cudnn_rnn
from tensorflow.contrib import rnn as contrib_rnn

from tf1_fixtures.record import Case

SIZES = ((7, 3), (12, 2))  # (steps, batch) of the recorded feeds


def sequence(width):
    return tf.placeholder(tf.float32, [None, None, width], name="x")


def states(units):
    """Fed initial states (c, h), as the fused cells take them."""
    return tuple(tf.placeholder(tf.float32, [None, units], name=name) for name in ("c0", "h0"))


def feeds(width, units=None, lengths=None):
    made = []
    for run, (steps, batch) in enumerate(SIZES):
        feed = {"x:0": (steps, batch, width)}
        if units:
            feed.update({"c0:0": (batch, units), "h0:0": (batch, units)})
        if lengths:
            feed["lengths:0"] = lengths[run]
        made.append(feed)
    return made


def named(**tensors):
    """Gives each tensor the name of its key; the names as tensors, sorted."""
    for name, tensor in sorted(tensors.items()):
        tf.identity(tensor, name=name)
    return [name + ":0" for name in sorted(tensors)]


def block_fused():
    """LSTMBlockFusedCell in both directions, fed initial states, the default forget bias of 1."""
    x, start = sequence(5), states(4)
    y, final = contrib_rnn.LSTMBlockFusedCell(4)(x, start)
    reverse = contrib_rnn.TimeReversedFusedRNN(contrib_rnn.LSTMBlockFusedCell(4, name="backward"))
    back, end = reverse(x, start)
    outputs = named(rnn_out=tf.concat([y, back], 2), state_c=final.c, state_h=end.h, back_c=end.c)
    return Case(outputs, feeds(5, 4))


def block_fused_lengths():
    """LSTMBlockFusedCell with sequence lengths, none of which need be the number of steps; final states."""
    x, start = sequence(3), states(5)
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    y, final = contrib_rnn.LSTMBlockFusedCell(5, forget_bias=0.25)(x, start, sequence_length=lengths)
    outputs = named(rnn_out=y, state_c=final.c, state_h=final.h)
    return Case(outputs, feeds(3, 5, [[4, 0, 6], [12, 3]]))


def block_fused_stacked():
    """Two LSTMBlockFusedCells with lengths, outputs only, as sequence taggers have them."""
    x = sequence(3)
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    below, _ = contrib_rnn.LSTMBlockFusedCell(6)(x, dtype=tf.float32, sequence_length=lengths)
    y, _ = contrib_rnn.LSTMBlockFusedCell(4, name="above")(below, dtype=tf.float32, sequence_length=lengths)
    return Case(named(rnn_out=y), feeds(3, lengths=[[5, 2, 6], [12, 3]]))


def block_fused_peephole():
    """LSTMBlockFusedCell with peepholes."""
    x, start = sequence(5), states(4)
    y, final = contrib_rnn.LSTMBlockFusedCell(4, use_peephole=True)(x, start)
    return Case(named(rnn_out=y, state_c=final.c, state_h=final.h), feeds(5, 4))


def block_fused_clip():
    """LSTMBlockFusedCell with a clipped cell state, peepholes too."""
    x, start = sequence(5), states(4)
    y, final = contrib_rnn.LSTMBlockFusedCell(4, cell_clip=0.3, use_peephole=True)(x, start)
    return Case(named(rnn_out=y, state_c=final.c, state_h=final.h), feeds(5, 4))


def block_cell_loop():
    """Two LSTMBlockCells in a dynamic_rnn with lengths, the default forget bias of 1."""
    x = sequence(3)
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    cell = tf.nn.rnn_cell.MultiRNNCell([contrib_rnn.LSTMBlockCell(units) for units in (5, 4)])
    y, final = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32, time_major=True)
    outputs = named(rnn_out=y, below_c=final[0].c, state_c=final[1].c, state_h=final[1].h)
    return Case(outputs, feeds(3, lengths=[[5, 2, 7], [9, 12]]))


def block_cell_clip():
    """Two LSTMBlockCells in a dynamic_rnn from fed states, the upper one with a clip and peepholes."""
    x, (c0, h0) = sequence(3), states(4)
    lower = contrib_rnn.LSTMBlockCell(4, forget_bias=0.5)
    upper = contrib_rnn.LSTMBlockCell(4, cell_clip=0.3, use_peephole=True)
    start = tf.nn.rnn_cell.LSTMStateTuple(c0, h0), tf.nn.rnn_cell.LSTMStateTuple(h0, c0)
    cell = tf.nn.rnn_cell.MultiRNNCell([lower, upper])
    y, final = tf.nn.dynamic_rnn(cell, x, initial_state=start, time_major=True)
    return Case(named(rnn_out=y, state_c=final[1].c, state_h=final[0].h), feeds(3, 4))


def block_cell_bidirectional():
    """A bidirectional dynamic_rnn of LSTMBlockCells with lengths, batch-major."""
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    y, (forward, backward) = tf.nn.bidirectional_dynamic_rnn(
        contrib_rnn.LSTMBlockCell(5), contrib_rnn.LSTMBlockCell(4), x, lengths, dtype=tf.float32
    )
    outputs = named(rnn_out=tf.concat(y, 2), forward_c=forward.c, backward_h=backward.h)
    feeds = [{"x:0": (3, 7, 3), "lengths:0": [5, 2, 7]}, {"x:0": (2, 12, 3), "lengths:0": [9, 12]}]
    return Case(outputs, feeds)


def compatible_gru_loop():
    """Two CudnnCompatibleGRUCells in a dynamic_rnn with lengths."""
    x = sequence(3)
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    cell = tf.nn.rnn_cell.MultiRNNCell([cudnn_rnn.CudnnCompatibleGRUCell(units) for units in (5, 4)])
    y, final = tf.nn.dynamic_rnn(cell, x, lengths, dtype=tf.float32, time_major=True)
    return Case(named(rnn_out=y, below_h=final[0], state_h=final[1]), feeds(3, lengths=[[5, 2, 7], [9, 12]]))


CASES_1_15 = (
    block_fused,
    block_fused_lengths,
    block_fused_stacked,
    block_fused_peephole,
    block_fused_clip,
    block_cell_loop,
    block_cell_clip,
    block_cell_bidirectional,
    compatible_gru_loop,
)
