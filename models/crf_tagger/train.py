"""A BiLSTM-CRF sequence tagger for TensorFlow 1.15: one network, trained on a GPU or on a CPU.

    python train.py FOLDER [--use_gpu]
    python train.py FOLDER [--use_gpu] --strategy mirrored  # TensorFlow 2: see ../distributed.py

writes FOLDER/model.ckpt, which either network restores: the saver of CudnnLSTM writes its one packed variable
as the kernels and biases of CudnnCompatibleLSTMCell too.

The task is made up. A sentence is random words; an opener of some kind starts an entity of that kind, which
goes on to the next closer, but only where a closer comes before another opener or the end. So a word's tag
depends on what stands left and right of it, and an inside tag never follows that of another kind.
"""

import collections
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[1]))
import distributed

PADDING, OPENERS, CLOSER, VOCABULARY = 0, (1, 2, 3), 4, 50
OUTSIDE, TAGS = 0, 7  # entities of kind k begin with tag 2k - 1 and go on with 2k
EMBEDDING, UNITS = 16, 24
ROWS, STEPS, RATE = 32, 500, 0.01

Network = collections.namedtuple("Network", "ids labels logits tags score loss")


def build(use_gpu):
    """Embedding, bidirectional LSTM, a score for each tag, Viterbi decoding; and what trains it.

    ids [batch, steps] are padded with zeros; logits are [batch, steps, TAGS], tags [batch, steps], and score
    [batch] is what the tags of each row sum up to.
    """
    ids = tf.placeholder(tf.int32, [None, None], name="ids")
    labels = tf.placeholder(tf.int32, [None, None], name="labels")
    lengths = tf.reduce_sum(tf.sign(ids), axis=1)
    table = tf.get_variable("embedding", [VOCABULARY, EMBEDDING])
    time_major = tf.transpose(tf.nn.embedding_lookup(table, ids), [1, 0, 2])
    outputs = tf.transpose(recurrent(time_major, use_gpu), [1, 0, 2])
    scores = tf.layers.dense(outputs, TAGS, name="scores")
    transitions = tf.get_variable("transitions", [TAGS, TAGS])
    with tf.name_scope("likelihood"):
        likelihood, _ = tf.contrib.crf.crf_log_likelihood(scores, labels, lengths, transitions)
        loss = tf.reduce_mean(-likelihood, name="loss")
    with tf.name_scope("viterbi"):
        best, score = tf.contrib.crf.crf_decode(scores, transitions, lengths)
    logits, tags = tf.identity(scores, name="logits"), tf.identity(best, name="tags")
    score = tf.identity(score, name="score")
    return Network(ids, labels, logits, tags, score, loss)


def recurrent(inputs, use_gpu):
    """[steps, batch, EMBEDDING] -> [steps, batch, 2 * UNITS].

    The layer takes no lengths, so the cells get none either: with `sequence_length` they would differ from it
    wherever a row is shorter than its batch.
    """
    if use_gpu:
        layer = tf.contrib.cudnn_rnn.CudnnLSTM(1, UNITS, direction="bidirectional")
        return layer(inputs, training=True)[0]
    with tf.variable_scope("cudnn_lstm"):
        forward, backward = [tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell(UNITS) for _ in range(2)]
        return tf.contrib.rnn.stack_bidirectional_dynamic_rnn(
            [forward], [backward], inputs, dtype=tf.float32, time_major=True
        )[0]


def sentences(random, rows, longest):
    """Padded `(ids, labels)`, [rows, longest] each; at least one row has no padding."""
    ids, labels = np.zeros([rows, longest], np.int32), np.zeros([rows, longest], np.int32)
    words = random.randint(CLOSER + 1, VOCABULARY, ids.shape)
    words = np.where(random.uniform(size=ids.shape) < 0.35, random.randint(1, CLOSER + 1, ids.shape), words)
    for row, length in enumerate(np.append(longest, random.randint(longest // 2, longest + 1, rows - 1))):
        ids[row, :length] = words[row, :length]
        labels[row, :length] = entities(ids[row, :length])
    return ids, labels


def entities(words):
    """The tag of every word of one sentence."""
    tags, opened = np.full(len(words), OUTSIDE), None
    for place, word in enumerate(words):
        if word in OPENERS:
            opened = place
        elif word == CLOSER and opened is not None:
            kind = words[opened]
            tags[opened], tags[opened + 1 : place + 1] = 2 * kind - 1, 2 * kind
            opened = None
    return tags


def write(path, random, steps=STEPS):
    """Writes the sentences of all steps, in their order, as records."""
    with tf.io.TFRecordWriter(path) as writer:
        for step in range(steps):
            for ids, labels in zip(*sentences(random, ROWS, 8 + step % 3 * 6)):  # noqa: B905 - Python 3.7
                writer.write(distributed.example(ids=ids, labels=labels))


def read(path):
    """A dataset of batches: batched first, then parsed at once, prefetched last.

    The records are random already; others are shuffled before they are batched.
    """
    numbers = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)  # padded to the longest

    def parse(records):
        parsed = tf.io.parse_example(records, {"ids": numbers, "labels": numbers})
        return tf.cast(parsed["ids"], tf.int32), tf.cast(parsed["labels"], tf.int32)

    return tf.data.TFRecordDataset(path).batch(ROWS).map(parse, num_parallel_calls=2).prefetch(2)


def feed(ids, labels):
    """What a batch of the dataset is by name."""
    return {"ids": ids, "labels": labels}


def build_keras(use_gpu):
    """The network for distributed.py, without the CRF, which left TensorFlow with contrib."""
    import tf_keras as keras

    ids = keras.Input([None], dtype=tf.int32, name="ids")
    words = keras.layers.Embedding(VOCABULARY, EMBEDDING)(ids)
    outputs, _ = distributed.recurrent("lstm", UNITS, bidirectional=True, use_gpu=use_gpu)(words)
    return keras.Model(ids, {"logits": keras.layers.Dense(TAGS, name="logits")(outputs)})


def loss_of_each(outputs, batch):
    """The mean over the words of each sentence, [batch]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["labels"], outputs["logits"])
    real = tf.cast(batch["ids"] != PADDING, tf.float32)
    return tf.reduce_sum(losses * real, 1) / tf.reduce_sum(real, 1)


def train(folder, use_gpu):
    """Trains a network, saves it as `folder`/model.ckpt and gives its share of right tags in new text."""
    random, records = np.random.RandomState(1), str(Path(folder) / "train.tfrecord")
    write(records, random)
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        network = build(use_gpu)
        saver = tf.train.Saver()  # before the optimizer is there: the weights alone
        update = tf.train.AdamOptimizer(RATE).minimize(network.loss)
        batch = tf.compat.v1.data.make_one_shot_iterator(read(records)).get_next()
        # One thread each: the sums come in the same order, and the weights are the same in every run.
        threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with tf.Session(config=threads) as session:
            session.run(tf.global_variables_initializer())
            for step in range(STEPS):
                ids, labels = session.run(batch)
                _, loss = session.run([update, network.loss], {network.ids: ids, network.labels: labels})
                if step % 100 == 0:
                    tf.logging.info("step %d: loss %.3f", step, loss)
            saver.save(session, str(Path(folder) / "model.ckpt"))
            ids, labels = sentences(random, 500, 20)
            tags = session.run(network.tags, {network.ids: ids})
    accuracy = float(np.mean((tags == labels)[ids != PADDING]))
    tf.logging.info("right tags: %.1f %%", 100 * accuracy)
    return accuracy


def main():
    task = distributed.Task(build_keras, loss_of_each, feed, write, read, ROWS, RATE)
    distributed.run(distributed.parse(__doc__, STEPS), task, train)


if __name__ == "__main__":
    main()
