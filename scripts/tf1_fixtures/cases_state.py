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


def state_scalar(rnn):
    """State in a variable without a shape: a scalar at first, then of the batch that the last call had."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    saved = tf.Variable(0.0, trainable=False, validate_shape=False, name="saved")
    batch = tf.shape(x)[1]
    empty = tf.zeros([2, batch, 5])

    def of_this_batch():
        held = tf.shape(saved)[-2]
        return tf.cond(
            held < batch,
            lambda: tf.concat([saved, tf.zeros([2, batch - held, 5])], -2),
            lambda: tf.slice(saved, [0, 0, 0], [2, batch, 5]),
        )

    start = tf.cond(tf.equal(tf.size(tf.shape(saved)), 0), lambda: empty, of_this_batch)
    start = tf.reshape(start, tf.shape(empty))
    y, (next_h,) = rnn.layer("gru", 2, 5)(x, initial_state=(start,), training=False)
    with tf.control_dependencies([tf.assign(saved, next_h, validate_shape=False)]):
        tf.identity(tf.layers.dense(y, 3), name="logits")
    feeds = [{"x:0": (steps, batch, 4)} for steps, batch in zip(SIZES, (3, 2, 4))]
    return Case(["logits:0"], feeds, states=[("saved:0", "Assign:0")])


CASES_1_15 = (state_lstm, state_gru_resource, state_reset, state_scalar)
