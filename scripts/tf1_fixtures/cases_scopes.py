"""Which variables and keys there are: nested scopes, explicit builds, blobs alone, averages, resources."""
import os

import tensorflow as tf

from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import Case


def two_layers(rnn):
    """A bidirectional LSTM and a GRU under nested scopes with one repeated name: outer/inner/name, name_1."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    with tf.variable_scope("outer"), tf.variable_scope("inner"):
        outputs, _ = rnn.layer("lstm", 1, 5, directions=2, name="encoder")(x, training=False)
        outputs, _ = rnn.layer("gru", 1, 6, name="encoder")(outputs, training=False)
    tf.identity(outputs, name="rnn_out")
    return Case(["rnn_out:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def same_sizes(rnn):
    """Two LSTM layers of equal sizes in scopes of their own: only names tell their weights apart."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    for side in ("left", "right"):
        with tf.variable_scope(side):
            outputs, _ = rnn.layer("lstm", 1, 5)(x, training=False)
        tf.identity(outputs, name=side + "_out")
    return Case(["left_out:0", "right_out:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def build_prefix(rnn):
    """layer.build(shape) before the call: canonical keys lie beside the layer's scope, not in it."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    with tf.variable_scope("main"):
        layer = rnn.layer("lstm", 1, 5, directions=2, name="awesome_lstm")
        layer.build([None, None, 4])
        outputs, _ = layer(x, training=False)
    tf.identity(outputs, name="rnn_out")
    return Case(["rnn_out:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def raw_only(rnn):
    """Saver(tf.global_variables()) leaves out the layer's saveable: the checkpoint holds the blob alone."""
    x = tf.placeholder(tf.float32, [None, None, 7], name="x")
    outputs, _ = rnn.layer("gru", 1, 4, directions=2)(x, training=False)
    tf.identity(outputs, name="rnn_out")
    if rnn.trains:
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver(tf.global_variables()))
    return Case(["rnn_out:0"], [{"x:0": (7, 3, 7)}, {"x:0": (12, 2, 7)}])


def moving_average(rnn):
    """The moving average of the blob is saved too; the answers are those of the average."""
    x = tf.placeholder(tf.float32, [None, None, 5], name="x")
    outputs, _ = rnn.layer("lstm", 1, 7)(x, training=False)
    tf.identity(outputs, name="rnn_out")
    if rnn.trains:
        tf.train.ExponentialMovingAverage(0.999).apply()
    feeds = [{"x:0": (7, 3, 5)}, {"x:0": (12, 2, 5)}]
    return Case(["rnn_out:0"], feeds, flags=["--weights", "ema"])


def resource_vars(rnn):
    """Resource variables; batch-major ids, an embedding, the recurrence time-major between transposes."""
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    with tf.variable_scope("tagger", use_resource=True):
        table = tf.get_variable("embedding", [11, 4])
        embedded = tf.nn.embedding_lookup(table, ids)
        outputs, _ = rnn.layer("gru", 1, 6)(swap_batch(embedded), training=False)
        logits = tf.layers.dense(swap_batch(outputs), 3)
    tf.identity(logits, name="logits")
    every_id = [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 0]]
    return Case(["logits:0"], [{"ids:0": every_id}, {"ids:0": [[7, 1, 3], [2, 2, 9], [10, 4, 5]]}])


def v2_gru(rnn):
    """CudnnRNNV2, the op that TF_CUDNN_RNN_USE_V2=1 selects."""
    os.environ["TF_CUDNN_RNN_USE_V2"] = "1"
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs, (h,) = rnn.layer("gru", 1, 7, directions=2)(x, training=False)
    del os.environ["TF_CUDNN_RNN_USE_V2"]
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    return Case(["rnn_out:0", "state_h:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def final_state_only(rnn):
    """A classifier on the final hidden states of both directions; another output, side, has no recurrence."""
    x = tf.placeholder(tf.float32, [None, None, 6], name="x")
    _, (h, _) = rnn.layer("lstm", 1, 5, directions=2)(swap_batch(x), training=False)
    tf.identity(tf.layers.dense(tf.concat([h[0], h[1]], axis=1), 3), name="logits")
    tf.identity(tf.layers.dense(tf.reduce_mean(x, axis=1), 2, name="aside"), name="side")
    return Case(["logits:0"], [{"x:0": (3, 7, 6)}, {"x:0": (2, 12, 6)}], unreached=["side:0"])


CASES_1_15 = (two_layers, same_sizes, build_prefix, raw_only, moving_average, resource_vars, v2_gru,
              final_state_only)
