"""Keras's CuDNN layers in a TensorFlow 1 graph: their blob is computed in the graph, from three variables."""
import tensorflow as tf

from tf1_fixtures.record import Case
from tf1_fixtures.tagger import random_ids


def keras_lstm(keras):
    """Two stacked CuDNNLSTM layers, batch-major; all steps, then the last step and the final states."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs = keras.lstm(5, return_sequences=True)(x)
    outputs, h, c = keras.lstm(3, return_state=True)(outputs)
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    tf.identity(c, name="state_c")
    return Case(["rnn_out:0", "state_h:0", "state_c:0"], [{"x:0": (3, 7, 4)}, {"x:0": (2, 12, 4)}])


def keras_gru_bi(keras):
    """Bidirectional(CuDNNGRU) and a dense layer over every step."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs = keras.bidirectional(keras.gru(6, return_sequences=True))(x)
    tf.identity(tf.keras.layers.Dense(3)(outputs), name="logits")
    return Case(["logits:0"], [{"x:0": (3, 7, 4)}, {"x:0": (2, 12, 4)}])


def keras_tagger(keras):
    """Embedding, Bidirectional(CuDNNLSTM), dense, trained: the node that answers is the one that
    training differentiates."""
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    embedded = tf.keras.layers.Embedding(50, 6)(ids)
    outputs = keras.bidirectional(keras.lstm(5, return_sequences=True))(embedded)
    logits = tf.identity(tf.keras.layers.Dense(4)(outputs), name="logits")
    if keras.trains:
        labels = tf.placeholder(tf.int32, [None, None], name="labels")
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses, name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
    feeds = [{"ids:0": random_ids(3, 7)}, {"ids:0": random_ids(2, 12)}]
    return Case(["logits:0"], feeds, flags=["--outputs", "logits:0"])


def keras_lstm_states(keras):
    """CuDNNLSTM with fed initial states [batch, units], under a scope."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    states = [tf.placeholder(tf.float32, [None, 5], name=name) for name in ("h0", "c0")]
    with tf.variable_scope("decoder"):
        outputs, h, c = keras.lstm(5, return_sequences=True, return_state=True)(x, initial_state=states)
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    tf.identity(c, name="state_c")

    def feed(batch, steps):
        return {"x:0": (batch, steps, 4), "h0:0": (batch, 5), "c0:0": (batch, 5)}

    return Case(["rnn_out:0", "state_h:0", "state_c:0"], [feed(3, 7), feed(2, 12)])


def keras_go_backwards(keras):
    """CuDNNGRU with go_backwards: the answer's steps stand in reversed order."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs, h = keras.gru(5, return_sequences=True, return_state=True, go_backwards=True)(x)
    tf.identity(outputs, name="rnn_out")
    tf.identity(h, name="state_h")
    return Case(["rnn_out:0", "state_h:0"], [{"x:0": (3, 7, 4)}, {"x:0": (2, 12, 4)}])


def keras_siamese(keras):
    """One CuDNNLSTM called on two inputs: two nodes, each with its own concatenation of the same weights."""
    left = tf.placeholder(tf.float32, [None, None, 4], name="left")
    right = tf.placeholder(tf.float32, [None, None, 4], name="right")
    encoder = keras.lstm(5)
    tf.identity(encoder(left) * encoder(right), name="similarity")
    feeds = [
        {"left:0": (3, 7, 4), "right:0": (3, 4, 4)},
        {"left:0": (2, 3, 4), "right:0": (2, 12, 4)},
    ]
    return Case(["similarity:0"], feeds)


CASES = (keras_lstm, keras_gru_bi, keras_lstm_states)
CASES_1_15 = (keras_tagger, keras_go_backwards, keras_siamese)
