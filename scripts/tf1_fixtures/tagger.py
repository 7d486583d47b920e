"""A sequence tagger with both of its towers, untrained: ids, embedding, bidirectional LSTM, dense, argmax."""
import numpy as np
import tensorflow as tf

from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import Case
from tf1_fixtures.weights import seeded

VOCABULARY, EMBEDDING, UNITS, TAGS = 50, 16, 24, 7


def bilstm_tagger(rnn):
    """A BiLSTM sequence tagger trained with CudnnLSTM: batch-major ids in, a score for every tag and the best
    tag out. The recurrence runs time-major and knows no lengths."""
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    table = tf.get_variable("embedding", [VOCABULARY, EMBEDDING])
    embedded = swap_batch(tf.nn.embedding_lookup(table, ids))
    layer = rnn.layer("lstm", 1, UNITS, directions=2)
    if rnn.trains:
        train(scores(layer, embedded, training=True))
    predicted = scores(layer, embedded, training=False, reuse=rnn.trains)
    tf.identity(predicted, name="logits")
    tf.argmax(predicted, axis=2, output_type=tf.int32, name="tags")
    return Case(["logits:0", "tags:0"], [{"ids:0": random_ids(4, 9)}, {"ids:0": random_ids(2, 15)}])


def scores(layer, embedded, training, reuse=None):
    outputs, _ = layer(embedded, training=training)
    return tf.layers.dense(swap_batch(outputs), TAGS, name="scores", reuse=reuse)


def train(logits):
    """Cross-entropy over the valid steps of each row, Adam."""
    labels = tf.placeholder(tf.int32, [None, None], name="labels")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(tf.boolean_mask(losses, tf.sequence_mask(lengths)), name="loss")
    tf.summary.scalar("loss_summary", loss)
    tf.train.AdamOptimizer(1e-3).minimize(loss, tf.train.get_or_create_global_step(), name="train_op")


def random_ids(batch, steps):
    return seeded("ids %d %d" % (batch, steps)).randint(VOCABULARY, size=(batch, steps)).astype(np.int32)
