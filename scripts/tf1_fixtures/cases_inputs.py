"""What lies around the recurrence: input pipelines in the graph, dropout and batch normalisation."""
import tensorflow as tf

from tf1_fixtures.layers import swap_batch
from tf1_fixtures.record import Case


def iterator_input(rnn):
    """Features, lengths and labels from a tf.data iterator; prediction needs its first two components."""
    corpus = (
        tf.placeholder(tf.float32, [None, None, 4], name="all_features"),
        tf.placeholder(tf.int32, [None], name="all_lengths"),
        tf.placeholder(tf.int32, [None, None], name="all_labels"),
    )
    dataset = tf.data.Dataset.from_tensor_slices(corpus).batch(2)
    features, lengths, labels = dataset.make_initializable_iterator().get_next()
    layer = rnn.layer("lstm", 1, 6)
    outputs, _ = layer(swap_batch(features), training=False)
    mask = tf.sequence_mask(lengths, tf.shape(features)[1], tf.float32)
    logits = tf.layers.dense(swap_batch(outputs), 3, name="head") * tf.expand_dims(mask, 2)
    tf.identity(logits, name="logits")
    if rnn.trains:
        outputs, _ = layer(swap_batch(features), training=True)
        scores = tf.layers.dense(swap_batch(outputs), 3, name="head", reuse=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        loss = tf.reduce_mean(losses * mask, name="loss")
        tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
    return Case(
        ["logits:0"],
        [
            {"IteratorGetNext:0": (3, 7, 4), "IteratorGetNext:1": [7, 2, 4]},
            {"IteratorGetNext:0": (2, 12, 4), "IteratorGetNext:1": [5, 12]},
        ],
    )


def queue_input(rnn):
    """Inputs are dequeued from a FIFOQueue that another part of the graph fills."""
    source = tf.placeholder(tf.float32, [None, 2, 5], name="source")
    queue = tf.FIFOQueue(8, [tf.float32], name="queue")
    queue.enqueue([source], name="fill")
    batch = queue.dequeue(name="batch")
    batch.set_shape([None, 2, 5])
    outputs, _ = rnn.layer("gru", 1, 6)(batch, training=False)
    tf.identity(outputs, name="rnn_out")
    return Case(["rnn_out:0"], [{"batch:0": (7, 2, 5)}, {"batch:0": (12, 2, 5)}])


def dropout_placeholder(rnn):
    """Dropout and batch normalisation after the recurrence, off unless their placeholders are fed."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    keep_prob = tf.placeholder_with_default(1.0, [], name="keep_prob")
    is_training = tf.placeholder_with_default(False, [], name="is_training")
    outputs, _ = rnn.layer("rnn_tanh", 1, 6)(x, training=False)
    outputs = tf.nn.dropout(outputs, keep_prob=keep_prob)
    outputs = tf.layers.dropout(outputs, 0.4, training=is_training)
    outputs = tf.layers.batch_normalization(outputs, training=is_training)
    tf.nn.softmax(tf.layers.dense(outputs, 3), name="probs")
    return Case(["probs:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def dropout_needs_set(rnn):
    """Dropout whose keep_prob is a plain placeholder: the command line must bind it to 1."""
    x = tf.placeholder(tf.float32, [None, None, 5], name="x")
    keep_prob = tf.placeholder(tf.float32, [], name="keep_prob")
    outputs, _ = rnn.layer("gru", 1, 4)(x, training=False)
    outputs = tf.nn.dropout(outputs, keep_prob=keep_prob)
    tf.identity(tf.layers.dense(outputs, 3), name="logits")
    return Case(
        ["logits:0"],
        [{"x:0": (7, 3, 5)}, {"x:0": (12, 2, 5)}],
        flags=["--set", "keep_prob=1"],
        bound={"keep_prob:0": 1.0},
    )


def dataset_input(rnn):
    """Records from files that a pattern names, parsed by the functions of a tf.data pipeline."""
    def parse(record):
        features = tf.parse_single_example(record, {"x": tf.FixedLenFeature([8, 3], tf.float32)})
        return features["x"] + tf.random_normal([8, 3], stddev=0.1)

    files = tf.data.Dataset.list_files("/home/author/corpus/train-*.tfrecord", seed=1)
    records = files.interleave(tf.data.TFRecordDataset, 2).map(parse).repeat().batch(2)
    x = records.make_one_shot_iterator().get_next()
    outputs, _ = rnn.layer("lstm", 1, 5)(swap_batch(x), training=False)
    tf.layers.dense(outputs[-1], 4, name="scores")
    return Case(["scores/BiasAdd:0"], [{"IteratorGetNext:0": (3, 8, 3)}, {"IteratorGetNext:0": (2, 8, 3)}])


def dropout_in_loop(rnn):
    """A decoder of tf.nn.dynamic_rnn whose cell has a DropoutWrapper, on a placeholder with default 0.8."""
    x = tf.placeholder(tf.float32, [None, None, 6], name="x")
    keep_prob = tf.placeholder_with_default(0.8, [], name="keep_prob")
    outputs, _ = rnn.layer("gru", 1, 5)(swap_batch(x), training=False)
    cell = tf.nn.rnn_cell.DropoutWrapper(
        tf.nn.rnn_cell.GRUCell(7), input_keep_prob=keep_prob, output_keep_prob=keep_prob, state_keep_prob=keep_prob)
    decoded, _ = tf.nn.dynamic_rnn(cell, outputs, dtype=tf.float32, time_major=True, scope="decoder")
    tf.nn.softmax(tf.layers.dense(decoded, 4), name="probs")
    flags = ["--set", "keep_prob=1"]
    return Case(["probs:0"], [{"x:0": (3, 7, 6)}, {"x:0": (2, 12, 6)}], flags, {"keep_prob:0": 1.0})


CASES_1_15 = (
    iterator_input, queue_input, dropout_placeholder, dropout_needs_set, dataset_input, dropout_in_loop)
