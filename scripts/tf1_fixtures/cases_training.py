"""Graphs as they are after training: twin towers, gradients, optimizer slots, summaries, several savers."""
import tensorflow as tf

from tf1_fixtures.record import Case


def twins_training(rnn):
    """One layer object shared by a training tower with dropout between its layers and a prediction tower.
    Loss, Adam, summaries, global_step and two savers."""
    x = tf.placeholder(tf.float32, [None, None, 3], name="x")
    layer = rnn.layer("lstm", 2, 5, dropout=0.3)
    if rnn.trains:
        outputs, _ = layer(x, training=True)
        train(tf.layers.dense(outputs, 4, name="head"))
    outputs, _ = layer(x, training=False)
    probs = tf.nn.softmax(tf.layers.dense(outputs, 4, name="head", reuse=rnn.trains), name="probs")
    tf.summary.histogram("probs_histogram", probs)
    if rnn.trains:
        for kept in (5, 1):
            tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver(max_to_keep=kept))
    return Case(["probs:0"], [{"x:0": (7, 3, 3)}, {"x:0": (12, 2, 3)}])


def twins_backprop(rnn):
    """A training and a prediction tower that both have is_training=True, the default of the call: only
    CudnnRNNBackprop tells them apart. Two layer objects share the weights through a reused scope."""
    x = tf.placeholder(tf.float32, [None, None, 5], name="x")
    for tower in ("train", "predict") if rnn.trains else ("predict",):
        with tf.variable_scope("model", reuse=rnn.trains and tower == "predict"):
            outputs, _ = rnn.layer("gru", 1, 6, directions=2)(x)
            logits = tf.layers.dense(outputs, 4, name="head")
        if tower == "train":
            train(logits)
    tf.identity(logits, name="logits")
    return Case(["logits:0"], [{"x:0": (7, 3, 5)}, {"x:0": (12, 2, 5)}])


def train(logits):
    """Loss on a placeholder of labels, Adam with clipped gradients, and a summary."""
    labels = tf.placeholder(tf.int32, [None, None], name="labels")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses, name="loss")
    tf.summary.scalar("loss_summary", loss)
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.AdamOptimizer(1e-3)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    clipped, _ = tf.clip_by_global_norm(gradients, 5.0)
    optimizer.apply_gradients(list(zip(clipped, variables)), global_step=step, name="train_op")
    tf.summary.merge_all()


CASES = (twins_training,)
CASES_1_15 = (twins_backprop,)
