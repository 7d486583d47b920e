"""CudnnRNNV3: ragged, unsorted sequence lengths, the first axis time or batch."""
import tensorflow as tf

from tf1_fixtures.record import Case


def v3_lengths_time_major(rnn):
    """Two bidirectional LSTM layers with lengths, time-major, default zero states."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    outputs, (h, c) = rnn.layer("lstm", 2, 5, directions=2)(x, sequence_lengths=lengths, training=False)
    name_all(outputs, h, c)
    return Case(
        ["rnn_out:0", "state_h:0", "state_c:0"],
        [{"x:0": (7, 3, 4), "lengths:0": [4, 7, 1]}, {"x:0": (12, 4, 4), "lengths:0": [9, 3, 12, 5]}],
    )


def v3_lengths_batch_major(rnn):
    """Two bidirectional LSTM layers with lengths, batch-major: fed states are [batch, rows, units] too."""
    x = tf.placeholder(tf.float32, [None, None, 6], name="x")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    h0 = tf.placeholder(tf.float32, [None, 4, 5], name="h0")
    c0 = tf.placeholder(tf.float32, [None, 4, 5], name="c0")
    outputs, (h, c) = rnn.layer("lstm", 2, 5, directions=2)(
        x, initial_state=(h0, c0), sequence_lengths=lengths, time_major=False, training=False
    )
    name_all(outputs, h, c)

    def feed(batch, steps, row_lengths):
        states = {"h0:0": (batch, 4, 5), "c0:0": (batch, 4, 5)}
        return dict(states, **{"x:0": (batch, steps, 6), "lengths:0": row_lengths})

    return Case(
        ["rnn_out:0", "state_h:0", "state_c:0"], [feed(3, 7, [5, 2, 7]), feed(2, 12, [12, 8])]
    )


def v3_batch_major(rnn):
    """Batch-major without lengths, a bidirectional tanh layer: every row runs to its end."""
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    h0 = tf.placeholder(tf.float32, [None, 2, 6], name="h0")
    outputs, (h,) = rnn.layer("rnn_tanh", 1, 6, directions=2)(x, (h0,), time_major=False, training=False)
    name_all(outputs, h)
    return Case(
        ["rnn_out:0", "state_h:0"],
        [{"x:0": (3, 7, 3), "h0:0": (3, 2, 6)}, {"x:0": (2, 12, 3), "h0:0": (2, 2, 6)}],
    )


def v3_gru_lengths(rnn):
    """A bidirectional GRU with lengths and a fed initial state, time-major."""
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    h0 = tf.placeholder(tf.float32, [2, None, 7], name="h0")
    outputs, (h,) = rnn.layer("gru", 1, 7, directions=2)(x, (h0,), sequence_lengths=lengths, training=False)
    name_all(outputs, h)
    return Case(
        ["rnn_out:0", "state_h:0"],
        [
            {"x:0": (7, 3, 3), "h0:0": (2, 3, 7), "lengths:0": [2, 7, 5]},
            {"x:0": (12, 2, 3), "h0:0": (2, 2, 7), "lengths:0": [10, 6]},
        ],
    )


def name_all(outputs, *states):
    tf.identity(outputs, name="rnn_out")
    for name, state in zip(("state_h", "state_c"), states):
        tf.identity(state, name=name)


CASES_1_15 = (v3_lengths_time_major, v3_lengths_batch_major, v3_batch_major, v3_gru_lengths)
