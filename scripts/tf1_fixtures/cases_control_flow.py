"""The recurrence inside a v1 control flow frame, its variable made outside of it."""
import tensorflow as tf

from tf1_fixtures.record import Case


def cond(rnn):
    """The recurrence in a branch of tf.cond, taken for more than 8 steps; a dense layer in the other."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    layer = rnn.layer("lstm", 1, 5)
    with tf.variable_scope("recurrent"):
        layer.build([None, None, 4])
    short = tf.layers.dense(x, 5, name="short")
    either = tf.cond(tf.shape(x)[0] > 8, lambda: layer(x, training=False)[0], lambda: tf.tanh(short))
    tf.identity(either, name="features")
    return Case(["features:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}, {"x:0": (9, 1, 4)}])


def while_refine(rnn):
    """A layer applied once outside and three times in a tf.while_loop on its own projected output."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    layer = rnn.layer("gru", 1, 6)
    outputs, _ = layer(x, training=False)
    project = tf.get_variable("project", [6, 4])

    def body(step, outputs):
        inputs = x + tf.tensordot(outputs, project, axes=1)
        again, _ = layer(tf.reshape(inputs, tf.shape(x)), training=False)
        return step + 1, again

    _, outputs = tf.while_loop(
        lambda step, _: step < 3, body, [0, outputs],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, None, 6])],
    )
    tf.identity(outputs, name="refined")
    return Case(["refined:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def while_rows(rnn):
    """A tf.while_loop over the rows of the batch, each through a layer built before the loop."""
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    layer = rnn.layer("lstm", 1, 5)
    layer.build([None, None, 3])

    def body(row, collected):
        outputs, _ = layer(x[:, row:row + 1, :], training=False)
        return row + 1, tf.concat([collected, outputs], axis=1)

    none_yet = tf.zeros([tf.shape(x)[0], 0, 5])
    _, outputs = tf.while_loop(
        lambda row, _: row < tf.shape(x)[1], body, [0, none_yet],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, None, 5])],
    )
    tf.identity(outputs, name="rows_out")
    return Case(["rows_out:0"], [{"x:0": (7, 3, 3)}, {"x:0": (12, 2, 3)}])


def while_nested(rnn):
    """A layer applied twice for each of two scales: a tf.while_loop in the body of a tf.while_loop."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    layer = rnn.layer("lstm", 1, 5)
    layer.build([None, None, 4])
    project = tf.get_variable("project", [5, 4])
    scales = tf.get_variable("scales", [2])

    def scale(number, total):
        def refine(step, inputs):
            outputs, _ = layer(inputs, training=False)
            refined = inputs + scales[number] * tf.tensordot(outputs, project, axes=1)
            return step + 1, tf.reshape(refined, tf.shape(x))

        _, refined = tf.while_loop(
            lambda step, _: step < 2, refine, [0, x], shape_invariants=[tf.TensorShape([]), x.shape]
        )
        return number + 1, tf.reshape(total + refined, tf.shape(x))

    _, total = tf.while_loop(
        lambda number, _: number < 2,
        scale,
        [0, tf.zeros_like(x)],
        shape_invariants=[tf.TensorShape([]), x.shape],
    )
    tf.identity(total, name="scaled")
    return Case(["scaled:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def cond_in_while(rnn):
    """A tf.while_loop whose every second step takes the layer, in a branch of tf.cond in its body."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    layer = rnn.layer("gru", 1, 6)
    layer.build([None, None, 4])
    project = tf.get_variable("project", [6, 4])

    def body(step, inputs):
        def recurrent():
            outputs, _ = layer(inputs, training=False)
            return tf.tensordot(outputs, project, axes=1)

        refined = tf.cond(tf.equal(step % 2, 0), recurrent, lambda: 0.5 * tf.reverse(inputs, [0]))
        return step + 1, tf.reshape(refined + x, tf.shape(x))

    _, outputs = tf.while_loop(
        lambda step, _: step < 4, body, [0, x], shape_invariants=[tf.TensorShape([]), x.shape]
    )
    tf.identity(outputs, name="alternated")
    return Case(["alternated:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


CASES = (cond, while_refine)
CASES_1_15 = (while_rows, while_nested, cond_in_while)
