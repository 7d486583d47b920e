"""Batch normalisation in training mode: the statistics are the batch's, and their averages lie beside them.

The twins on the CPU normalise by the averages, as `training=False` does.
"""
import tensorflow as tf
from tensorflow.contrib import slim

from tf1_fixtures.record import Case


def statistics_layers(rnn):
    """tf.layers and tf.keras.layers, fused and not, of ranks 2 to 5, on the way into and out of a recurrence."""
    x = tf.placeholder(tf.float32, [None, None, 6], name="x")
    training = rnn.trains
    y = tf.layers.batch_normalization(x, training=training, name="sequence")
    image = tf.layers.conv2d(y[..., None], 3, [3, 2], padding="same", name="conv")
    image = tf.layers.batch_normalization(image, training=training, name="fused")
    image = tf.layers.batch_normalization(image, training=training, fused=False, momentum=0.9, name="plain")
    image = tf.keras.layers.BatchNormalization(name="keras_image")(image, training=training)
    film = tf.keras.layers.BatchNormalization(name="keras_film")(image[:, :, None], training=training)
    y = tf.reshape(film, [tf.shape(x)[0], -1, 18])
    outputs, _ = rnn.layer("gru", 1, 5)(tf.transpose(y, [1, 0, 2]), training=rnn.trains)
    last = tf.layers.batch_normalization(outputs[-1], training=training, scale=False, name="vector")
    last = tf.keras.layers.BatchNormalization(name="keras_vector")(last, training=training)
    if rnn.trains:
        train(last)
    tf.nn.softmax(tf.layers.dense(last, 4, name="head"), name="probs")
    return Case(["probs:0"], [{"x:0": (3, 7, 6)}, {"x:0": (2, 12, 6)}])


def statistics_slim(rnn):
    """tf.contrib.layers and slim: averages in UPDATE_OPS or updated in place, with and without gamma; a
    branch that is taken for long sequences."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    training = rnn.trains
    y = slim.batch_norm(x, is_training=training, decay=0.95, scope="collected")
    y = tf.contrib.layers.batch_norm(
        y, is_training=training, updates_collections=None, scale=True, scope="in_place")
    image = tf.contrib.layers.batch_norm(
        y[..., None] * [1.0, 0.5, -2.0], is_training=training, fused=True, updates_collections=None, scope="fused")
    y = tf.reduce_sum(image, 3)
    outputs, _ = rnn.layer("lstm", 1, 5)(tf.transpose(y, [1, 0, 2]), training=rnn.trains)
    long = slim.batch_norm(outputs, is_training=training, zero_debias_moving_mean=True, scope="long")
    either = tf.cond(
        tf.shape(x)[1] > 8, lambda: long,
        lambda: slim.batch_norm(outputs, is_training=training, scope="short"))
    if rnn.trains:
        train(either)
    tf.layers.dense(either, 4, name="scores")
    return Case(["scores/BiasAdd:0"], [{"x:0": (3, 7, 4)}, {"x:0": (2, 12, 4)}])


def statistics_by_hand(rnn):
    """tf.nn.moments with an ExponentialMovingAverage, with assignments, and a variance of squares; in a loop
    over steps too."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    y = averaged(x, rnn.trains)
    outputs, _ = rnn.layer("gru", 1, 5, directions=2)(tf.transpose(y, [1, 0, 2]), training=rnn.trains)
    y = assigned(outputs, [0, 1], 10, rnn.trains, "assigned")
    y = squared(y, rnn.trains)
    if rnn.trains:
        train(y)
    tf.layers.dense(steps(y, rnn.trains), 3, name="scores")
    return Case(["scores/BiasAdd:0"], [{"x:0": (3, 7, 4)}, {"x:0": (2, 12, 4)}])


def averaged(x, training):
    """The averages of tf.train.ExponentialMovingAverage, which start at 0 and are corrected for it."""
    with tf.variable_scope("averaged"):
        mean, variance = tf.nn.moments(x, [0, 1], name="moments")
        ema = tf.train.ExponentialMovingAverage(0.98)
        with tf.control_dependencies([ema.apply([mean, variance])]):
            mean, variance = tf.identity(mean), tf.identity(variance)
        if not training:
            mean, variance = [ema.average(x.graph.get_tensor_by_name(name)) for name in
                              ("averaged/moments/Squeeze:0", "averaged/moments/Squeeze_1:0")]
        beta, gamma = tf.get_variable("beta", [4]), tf.get_variable("gamma", [4])
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3)


def assigned(x, axes, width, training, scope):
    """`pop = pop * decay + batch * (1 - decay)`, as tutorials write it."""
    with tf.variable_scope(scope):
        pop_mean = tf.get_variable("moving_mean", [width], trainable=False)
        pop_variance = tf.get_variable("moving_variance", [width], trainable=False)
        scale = tf.get_variable("scale", [width])
        mean, variance = pop_mean, pop_variance
        if training:
            mean, variance = tf.nn.moments(x, axes)
            updates = [tf.assign(pop_mean, pop_mean * 0.99 + mean * (1 - 0.99)),
                       tf.assign(pop_variance, 0.99 * pop_variance + (1 - 0.99) * variance)]
            with tf.control_dependencies(updates):
                mean, variance = tf.identity(mean), tf.identity(variance)
        return (x - mean) * scale / tf.sqrt(variance + 1e-5)


def squared(x, training):
    """E[x^2] - E[x]^2, averaged over calls by their number."""
    with tf.variable_scope("squared"):
        calls = tf.get_variable("calls", [], initializer=tf.ones_initializer(), trainable=False)
        kept_mean = tf.get_variable("moving_mean", [1, 1, 10], trainable=False)
        kept_variance = tf.get_variable("moving_variance", [1, 1, 10], trainable=False)
        mean, variance = kept_mean, kept_variance
        if training:
            mean = tf.reduce_mean(x, [0, 1], keepdims=True)
            variance = tf.reduce_mean(x * x, [0, 1], keepdims=True) - mean ** 2
            for kept, batch in ((kept_mean, mean), (kept_variance, variance)):
                tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(kept, (batch - kept) / calls))
        return (x - mean) * tf.rsqrt(variance + 1e-3)


def steps(x, training):
    """A cell that normalises each step, in a tf.while_loop."""
    with tf.variable_scope("steps"):
        mean = tf.get_variable("moving_mean", [10], trainable=False)
        variance = tf.get_variable("moving_variance", [10], trainable=False)

        def step(number, state):
            taken = x[number] + 0.5 * state
            used = mean, variance
            if training:
                used = tf.nn.moments(taken, [0])
                for kept, batch in zip((mean, variance), used):
                    tf.add_to_collection("updates_in_loop", tf.assign_sub(kept, (kept - batch) * 0.1))
            return number + 1, tf.tanh(tf.nn.batch_normalization(taken, used[0], used[1], None, None, 1e-3))

        start = tf.zeros([tf.shape(x)[1], 10])
        return tf.while_loop(lambda number, _: number < tf.shape(x)[0], step, [0, start])[1]


def statistics_flag(rnn):
    """The flag that the author feeds: a placeholder without a default, of layers fused and not, and dropout."""
    x = tf.placeholder(tf.float32, [None, None, 6], name="x")
    training = tf.placeholder(tf.bool, [], name="is_training")
    y = tf.layers.batch_normalization(x, training=training, name="before")
    outputs, _ = rnn.layer("lstm", 1, 5)(tf.transpose(y, [1, 0, 2]), training=rnn.trains)
    y = tf.layers.batch_normalization(outputs[..., None], training=training, name="fused")[..., 0]
    y = tf.layers.dropout(y, 0.4, training=training)
    if rnn.trains:
        train(y)
    tf.layers.dense(y, 4, name="scores")
    flags = ["--outputs", "scores/BiasAdd:0", "--set", "is_training:0=false"]
    feeds = [{"x:0": (3, 7, 6)}, {"x:0": (2, 12, 6)}]
    return Case(["scores/BiasAdd:0"], feeds, flags, {"is_training:0": False})


def train(values):
    loss = tf.reduce_mean(tf.square(values), name="loss")
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    with tf.control_dependencies(updates):
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, name="train_op")


CASES_1_15 = (statistics_layers, statistics_slim, statistics_by_hand, statistics_flag)
