"""Every recurrence mode, in one and in both directions, with and without fed initial states."""
import tensorflow as tf

from tf1_fixtures.record import Case

SIZES = ((7, 3), (12, 2))  # (steps, batch) of the recorded feeds


def time_major_input(width):
    return tf.placeholder(tf.float32, [None, None, width], name="x")


def feeds(width, **states):
    """One feed per (steps, batch); states: placeholder name -> (rows, units)."""
    made = []
    for steps, batch in SIZES:
        feed = {"x:0": (steps, batch, width)}
        for name, (rows, units) in states.items():
            feed[name + ":0"] = (rows, batch, units)
        made.append(feed)
    return made


def lstm_uni_3l(rnn):
    """Three stacked LSTM layers in one direction with a softmax head."""
    outputs, _ = rnn.layer("lstm", 3, 6)(time_major_input(4), training=False)
    tf.nn.softmax(tf.layers.dense(outputs, 5), name="probs")
    return Case(["probs:0"], feeds(4))


def lstm_bi_2l_states(rnn):
    """Two bidirectional LSTM layers; initial states are fed, all three outputs are used."""
    h0 = tf.placeholder(tf.float32, [4, None, 5], name="h0")
    c0 = tf.placeholder(tf.float32, [4, None, 5], name="c0")
    layer = rnn.layer("lstm", 2, 5, directions=2)
    outputs, (h, c) = layer(time_major_input(7), initial_state=(h0, c0), training=False)
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    tf.identity(c, name="state_c")
    return Case(["rnn_out:0", "state_h:0", "state_c:0"], feeds(7, h0=(4, 5), c0=(4, 5)))


def gru_uni_2l(rnn):
    """Two GRU layers in one direction; outputs and final state."""
    outputs, (h,) = rnn.layer("gru", 2, 7)(time_major_input(3), training=False)
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    return Case(["rnn_out:0", "state_h:0"], feeds(3))


def gru_bi(rnn):
    """A bidirectional GRU layer with a fed initial state."""
    h0 = tf.placeholder(tf.float32, [2, None, 6], name="h0")
    outputs, (h,) = rnn.layer("gru", 1, 6, directions=2)(time_major_input(5), (h0,), training=False)
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    return Case(["rnn_out:0", "state_h:0"], feeds(5, h0=(2, 6)))


def gru_bi_2l_float64(rnn):
    """Two bidirectional GRU layers in double precision."""
    x = tf.placeholder(tf.float64, [None, None, 4], name="x")
    outputs, _ = rnn.layer("gru", 2, 5, directions=2, dtype=tf.float64)(x, training=False)
    tf.identity(outputs, name="rnn_out")
    return Case(["rnn_out:0"], feeds(4))


def lstm_float16(rnn):
    """An LSTM in half precision, weights and answers alike."""
    x = tf.placeholder(tf.float16, [None, None, 3], name="x")
    outputs, _ = rnn.layer("lstm", 1, 5, dtype=tf.float16)(x, training=False)
    tf.identity(outputs, name="rnn_out")
    return Case(["rnn_out:0"], feeds(3))


def rnn_tanh_bi_2l(rnn):
    """Two bidirectional tanh layers with a fed initial state."""
    return plain_rnn(rnn, "rnn_tanh", layers=2, units=8, directions=2, width=5)


def rnn_tanh_uni(rnn):
    """One tanh layer in one direction with a fed initial state."""
    return plain_rnn(rnn, "rnn_tanh", layers=1, units=5, directions=1, width=9)


def rnn_relu_uni_2l(rnn):
    """Two relu layers in one direction with a fed initial state."""
    return plain_rnn(rnn, "rnn_relu", layers=2, units=6, directions=1, width=8)


def rnn_relu_bi(rnn):
    """One bidirectional relu layer with a fed initial state."""
    return plain_rnn(rnn, "rnn_relu", layers=1, units=7, directions=2, width=4)


def plain_rnn(rnn, mode, layers, units, directions, width):
    h0 = tf.placeholder(tf.float32, [layers * directions, None, units], name="h0")
    layer = rnn.layer(mode, layers, units, directions)
    outputs, (h,) = layer(time_major_input(width), initial_state=(h0,), training=False)
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    return Case(["rnn_out:0", "state_h:0"], feeds(width, h0=(layers * directions, units)))


CASES = (lstm_bi_2l_states, gru_uni_2l, gru_bi, rnn_tanh_bi_2l, rnn_relu_uni_2l)
CASES_1_15 = (lstm_uni_3l, lstm_float16, gru_bi_2l_float64, rnn_tanh_uni, rnn_relu_bi)
