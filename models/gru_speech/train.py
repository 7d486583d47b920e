"""A phone recognizer for TensorFlow 1.15: two GRU layers over frames of rows of different lengths.

    python train.py FOLDER [--use_gpu]
    python train.py FOLDER [--use_gpu] --strategy mirrored  # TensorFlow 2: see ../distributed.py

writes FOLDER/model.ckpt, which either network restores: the saver of CudnnGRU writes its one packed variable
as the kernels and biases of CudnnCompatibleGRUCell too.

The speech is made up. A phone lasts some frames, each its spectrum in much noise, so that one frame tells
little. Two pairs of phones sound alike, and only the phone before tells which it is: the network has to
remember.
"""

import collections
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[1]))
import distributed

FEATURES, PHONES = 13, 8
LAYERS, UNITS = 2, 24
ROWS, STEPS, RATE = 32, 600, 0.005

Network = collections.namedtuple("Network", "features lengths phones probabilities loss train")


def build(use_gpu):
    """Batch-major features [batch, frames, FEATURES] and lengths [batch] -> [batch, frames, PHONES].

    What stands at the frames behind a row's end is of no meaning: the recurrence gives zeros there.
    """
    features = tf.placeholder(tf.float32, [None, None, FEATURES], name="features")
    lengths = tf.placeholder(tf.int32, [None], name="lengths")
    phones = tf.placeholder(tf.int32, [None, None], name="phones")
    outputs = recurrent(tf.transpose(features, [1, 0, 2]), lengths, use_gpu)
    logits = tf.layers.dense(tf.transpose(outputs, [1, 0, 2]), PHONES, name="scores")
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=phones, logits=logits)
    loss = tf.reduce_mean(tf.boolean_mask(losses, tf.sequence_mask(lengths)), name="loss")
    train = tf.train.AdamOptimizer(RATE).minimize(loss, tf.train.get_or_create_global_step(), name="train")
    return Network(features, lengths, phones, tf.nn.softmax(logits, name="probabilities"), loss, train)


def recurrent(inputs, lengths, use_gpu):
    """[frames, batch, FEATURES] -> [frames, batch, UNITS]. Since TensorFlow 1.14 the layer takes lengths."""
    if use_gpu:
        layer = tf.contrib.cudnn_rnn.CudnnGRU(LAYERS, UNITS)
        return layer(inputs, sequence_lengths=lengths, training=True)[0]
    with tf.variable_scope("cudnn_gru"):
        cells = [tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell(UNITS) for _ in range(LAYERS)]
        stack = tf.nn.rnn_cell.MultiRNNCell(cells)
        return tf.nn.dynamic_rnn(stack, inputs, lengths, dtype=tf.float32, time_major=True)[0]


def speech(random, rows, longest):
    """`(features, lengths, phones)` of `rows` rows; at least one is `longest` frames long."""
    spectra = np.random.RandomState(7).normal(size=[PHONES, FEATURES])
    spectra[PHONES - 2 :] = spectra[:2]  # the last two sound like the first two
    phones = np.array([spoken(random, longest) for _ in range(rows)], np.int32)
    features = spectra[phones] + random.normal(0, 1.2, [rows, longest, FEATURES])
    lengths = np.append(longest, random.randint(longest // 2, longest + 1, rows - 1)).astype(np.int32)
    valid = np.arange(longest) < lengths[:, None]
    return (features * valid[..., None]).astype(np.float32), lengths, phones * valid


def spoken(random, frames):
    """The phone of each frame. Behind an odd phone the first two give way to those that sound like them."""
    found, before = [], 0
    while len(found) < frames:
        phone = random.randint(PHONES - 2)
        if phone < 2 and before % 2:
            phone += PHONES - 2
        found += [phone] * random.randint(4, 9)
        before = phone
    return found[:frames]


def write(path, random, steps=STEPS):
    """Writes the speech of all steps, in their order, as records."""
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(steps):
            for features, length, phones in zip(*speech(random, ROWS, 40)):  # noqa: B905 - Python 3.7
                writer.write(distributed.example(features=features.ravel(), length=[length], phones=phones))


def read(path):
    """A dataset of batches: batched first, then parsed at once, prefetched last.

    The records are random already; others are shuffled before they are batched.
    """
    wanted = {
        "features": tf.io.FixedLenSequenceFeature([FEATURES], tf.float32, allow_missing=True),
        "length": tf.io.FixedLenFeature([], tf.int64),
        "phones": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
    }

    def parse(records):
        parsed = tf.io.parse_example(records, wanted)
        whole = [tf.cast(parsed[name], tf.int32) for name in ("length", "phones")]
        return (parsed["features"], *whole)

    return tf.data.TFRecordDataset(path).batch(ROWS).map(parse, num_parallel_calls=2).prefetch(2)


def feed(features, lengths, phones):
    """What a batch of the dataset is by name."""
    return {"features": features, "lengths": lengths, "phones": phones}


def build_keras(use_gpu):
    """The network for distributed.py."""
    import tf_keras as keras

    features = keras.Input([None, FEATURES], name="features")
    lengths = keras.Input([], dtype=tf.int32, name="lengths")
    outputs, _ = distributed.recurrent("gru", UNITS, layers=LAYERS, use_gpu=use_gpu)(features, lengths)
    return keras.Model([features, lengths], {"logits": keras.layers.Dense(PHONES, name="logits")(outputs)})


def loss_of_each(outputs, batch):
    """The mean over the frames of each row, [batch]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["phones"], outputs["logits"])
    lengths = batch["lengths"]
    valid = tf.sequence_mask(lengths, tf.shape(losses)[1], tf.float32)
    return tf.reduce_sum(losses * valid, 1) / tf.cast(lengths, tf.float32)


def train(folder, use_gpu):
    """Trains a network, saves it as `folder`/model.ckpt and gives its share of right frames in new speech."""
    random, records = np.random.RandomState(1), str(Path(folder) / "train.tfrecord")
    write(records, random)
    with tf.Graph().as_default():
        tf.set_random_seed(1)
        network = build(use_gpu)
        saver = tf.train.Saver()
        batch = tf.compat.v1.data.make_one_shot_iterator(read(records)).get_next()
        # One thread each: the sums come in the same order, and the weights are the same in every run.
        threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        with tf.Session(config=threads) as session:
            session.run(tf.global_variables_initializer())
            for step in range(STEPS):
                features, lengths, phones = session.run(batch)
                feed = {network.features: features, network.lengths: lengths, network.phones: phones}
                _, loss = session.run([network.train, network.loss], feed)
                if step % 100 == 0:
                    tf.logging.info("step %d: loss %.3f", step, loss)
            saver.save(session, str(Path(folder) / "model.ckpt"))
            features, lengths, phones = speech(random, 200, 60)
            feed = {network.features: features, network.lengths: lengths}
            found = np.argmax(session.run(network.probabilities, feed), axis=2)
    accuracy = float(np.mean((found == phones)[np.arange(60) < lengths[:, None]]))
    tf.logging.info("right frames: %.1f %%", 100 * accuracy)
    return accuracy


def main():
    task = distributed.Task(build_keras, loss_of_each, feed, write, read, ROWS, RATE)
    distributed.run(distributed.parse(__doc__, STEPS), task, train)


if __name__ == "__main__":
    main()
