"""Recurrent state kept in variables from one call to the next: the feeds are calls in a row."""
import tensorflow as tf

from tf1_fixtures.record import Case

SIZES = (7, 3, 12)  # steps of the recorded calls; the batch is fixed by the variables


def state_lstm(rnn):
    """An LSTM whose states are reference variables; the assignments hang on the output by control edges."""
    x = tf.placeholder(tf.float32, [None, 2, 4], name="x")
    with tf.variable_scope("stream"):
        h, c = [tf.get_variable(n, [1, 2, 5], trainable=False) for n in ("h_state", "c_state")]
    y, (next_h, next_c) = rnn.layer("lstm", 1, 5)(x, initial_state=(h, c), training=False)
    with tf.control_dependencies([h.assign(next_h), c.assign(next_c)]):
        y = tf.identity(y)
    tf.identity(tf.layers.dense(y, 3), name="logits")
    tf.group(h.initializer, c.initializer, name="reset")  # which no output needs
    states = [("stream/h_state:0", "Assign:0"), ("stream/c_state:0", "Assign_1:0")]
    return Case(["logits:0"], [{"x:0": (steps, 2, 4)} for steps in SIZES], states=states)


def state_gru_resource(rnn):
    """A bidirectional GRU of two layers whose state is a resource variable."""
    x = tf.placeholder(tf.float32, [None, 3, 5], name="x")
    h = tf.get_variable("state", [4, 3, 6], trainable=False, use_resource=True)
    layer = rnn.layer("gru", 2, 6, directions=2)
    y, (next_h,) = layer(x, initial_state=(h.read_value(),), training=False)
    with tf.control_dependencies([h.assign(next_h)]):
        tf.identity(y, name="rnn_out")
    states = [("state:0", "AssignVariableOp:0")]
    return Case(["rnn_out:0"], [{"x:0": (steps, 3, 5)} for steps in SIZES], states=states)


def state_reset(rnn):
    """One variable holds both states of an LSTM; a branch sets it to zeros before the recurrence reads it."""
    x = tf.placeholder(tf.float32, [None, 2, 3], name="x")
    reset = tf.placeholder(tf.bool, [], name="reset")
    state = tf.get_variable("state", [2, 1, 2, 4], trainable=False)
    start = tf.cond(reset, lambda: state.assign(tf.zeros([2, 1, 2, 4])), lambda: tf.identity(state))
    y, (h, c) = rnn.layer("lstm", 1, 4)(x, initial_state=(start[0], start[1]), training=False)
    with tf.control_dependencies([state.assign(tf.stack([h, c]))]):
        tf.identity(y, name="rnn_out")
    feeds = [{"x:0": (steps, 2, 3), "reset:0": steps == 3} for steps in SIZES]
    return Case(["rnn_out:0"], feeds, states=[("state:0", "Assign:0")])


CASES_1_15 = (state_lstm, state_gru_resource, state_reset)
