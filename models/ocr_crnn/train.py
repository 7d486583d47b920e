"""A reader of lines of digits for TensorFlow 1.15: convolutions, two bidirectional LSTM layers, CTC.

    python train.py FOLDER [--use_gpu]
    python train.py FOLDER [--use_gpu] --strategy mirrored  # TensorFlow 2: see ../distributed.py

writes FOLDER/model.ckpt, which either network restores: the saver of CudnnLSTM writes its one packed variable
as the kernels and biases of CudnnCompatibleLSTMCell too.

The lines are drawn here: digits of a 5x7 font, each at a height and a distance of its own, in noise.
"""

import collections
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[1]))
import distributed

# The seven rows of each digit; a row is five bits.
FONT = (
    (14, 17, 19, 21, 25, 17, 14), (4, 12, 4, 4, 4, 4, 14), (14, 17, 1, 2, 4, 8, 31), (31, 2, 4, 2, 1, 17, 14),
    (2, 6, 10, 18, 31, 2, 2), (31, 16, 30, 1, 1, 17, 14), (6, 8, 16, 30, 17, 17, 14), (31, 1, 2, 4, 8, 8, 8),
    (14, 17, 17, 14, 17, 17, 14), (14, 17, 17, 15, 1, 2, 12),
)  # fmt: skip
HEIGHT, CLASSES = 12, len(FONT)  # the blank of CTC is one class more
COLUMN = HEIGHT // 4 * 8  # features of a step: rows and channels that two convolutions leave
LAYERS, UNITS, DROPOUT = 2, 16, 0.1
ROWS, STEPS, RATE = 16, 3500, 0.003

Network = collections.namedtuple("Network", "images labels logits decoded loss")


def build(use_gpu):
    """Two towers on the same weights: one in training mode, for the loss, and one that reads.

    images are [batch, HEIGHT, width, 1]; logits are time-major, [width / 2, batch, CLASSES + 1]; decoded is
    [batch, longest], the digits of each line and -1 after its end.
    """
    images = tf.placeholder(tf.float32, [None, HEIGHT, None, 1], name="images")
    labels = tf.sparse_placeholder(tf.int32, name="labels")
    columns = convolutions(images)
    recurrent = cudnn_layer() if use_gpu else compatible_cells
    scores = tf.layers.Dense(CLASSES + 1, name="scores")
    with tf.name_scope("training"):
        trained = scores(recurrent(columns, training=True))
        loss = tf.reduce_mean(tf.nn.ctc_loss(labels, trained, lengths(trained)), name="loss")
    read = scores(recurrent(columns, training=False))
    (best,), _ = tf.nn.ctc_greedy_decoder(read, lengths(read))
    logits = tf.identity(read, name="logits")
    decoded = tf.identity(tf.sparse.to_dense(tf.cast(best, tf.int32), default_value=-1), name="decoded")
    return Network(images, labels, logits, decoded, loss)


def convolutions(images):
    """[batch, HEIGHT, width, 1] -> [width / 2, batch, COLUMN]: each column of what is left is a step."""
    found = tf.layers.conv2d(images, 6, 3, padding="same", activation=tf.nn.relu, name="conv1")
    found = tf.layers.max_pooling2d(found, 2, 2)
    found = tf.layers.conv2d(found, 8, 3, padding="same", activation=tf.nn.relu, name="conv2")
    found = tf.layers.max_pooling2d(found, [2, 1], [2, 1])
    found = tf.transpose(found, [2, 0, 1, 3])
    return tf.reshape(found, [tf.shape(found)[0], tf.shape(found)[1], COLUMN])


def cudnn_layer():
    """What the GPU runs. One layer object is one set of weights, however often it is called."""
    layer = tf.contrib.cudnn_rnn.CudnnLSTM(LAYERS, UNITS, direction="bidirectional", dropout=DROPOUT)
    return lambda inputs, training: layer(inputs, training=training)[0]


def compatible_cells(inputs, training):
    """What the CPU runs: the same network under the same names. cuDNN's dropout is that between layers, for
    which stack_bidirectional_dynamic_rnn has no place; so this says layer by layer what that does."""
    cell = tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell
    for layer in range(LAYERS):
        if layer and training:
            inputs = tf.nn.dropout(inputs, rate=DROPOUT)
        scope = f"cudnn_lstm/stack_bidirectional_rnn/cell_{layer}"
        with tf.variable_scope(scope, reuse=tf.AUTO_REUSE):
            both, _ = tf.nn.bidirectional_dynamic_rnn(
                cell(UNITS), cell(UNITS), inputs, dtype=tf.float32, time_major=True
            )
        inputs = tf.concat(both, axis=2)
    return inputs


def lengths(logits):
    """Every line of a batch is as wide as the batch."""
    return tf.fill([tf.shape(logits)[1]], tf.shape(logits)[0])


def lines(random, rows, digits):
    """`(images, labels)`: [rows, HEIGHT, width, 1], and [rows, digits] with -1 behind shorter lines."""
    images = random.normal(0, 0.15, [rows, HEIGHT, 8 * digits, 1]).astype(np.float32)
    labels = np.full([rows, digits], -1, np.int32)
    for row in range(rows):
        count = random.randint(max(1, digits // 2), digits + 1)
        labels[row, :count] = random.randint(CLASSES, size=count)
        left = random.randint(3)
        for digit in labels[row, :count]:
            top = random.randint(HEIGHT - 6)
            images[row, top : top + 7, left : left + 5, 0] += glyph(digit)
            left += random.randint(6, 9)
    return images, labels


def glyph(digit):
    """[7, 5], ones where there is ink."""
    return np.array([[row >> bit & 1 for bit in range(4, -1, -1)] for row in FONT[digit]], np.float32)


def sparse(labels):
    """What tf.sparse_placeholder takes of dense labels."""
    places = np.argwhere(labels >= 0)
    return tf.SparseTensorValue(places, labels[labels >= 0], labels.shape)


def write(path, random, steps=STEPS):
    """Writes the lines of all steps, in their order, as records; an image column by column."""
    with tf.io.TFRecordWriter(path) as writer:
        for step in range(steps):
            for image, labels in zip(*lines(random, ROWS, 3 + step % 3 * 2)):  # noqa: B905 - Python 3.7
                writer.write(distributed.example(columns=image[..., 0].T.ravel(), labels=labels))


def read(path):
    """A dataset of batches: batched first, then parsed at once, prefetched last.

    The records are random already; others are shuffled before they are batched.
    """
    wanted = {
        "columns": tf.io.FixedLenSequenceFeature([HEIGHT], tf.float32, allow_missing=True),
        "labels": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
    }

    def parse(records):
        parsed = tf.io.parse_example(records, wanted)
        images = tf.transpose(parsed["columns"], [0, 2, 1])[..., None]
        return images, tf.cast(parsed["labels"], tf.int32)

    return tf.data.TFRecordDataset(path).batch(ROWS).map(parse, num_parallel_calls=2).prefetch(2)


def feed(images, labels):
    """What a batch of the dataset is by name."""
    return {"images": images, "labels": labels}


def build_keras(use_gpu):
    """The network for distributed.py, up to the logits, [batch, width / 2, CLASSES + 1]."""
    import tf_keras as keras

    images = keras.Input([HEIGHT, None, 1], name="images")
    maps = keras.layers.Conv2D(6, 3, padding="same", activation="relu")(images)
    maps = keras.layers.MaxPooling2D(2, 2)(maps)
    maps = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(maps)
    maps = keras.layers.MaxPooling2D([2, 1], [2, 1])(maps)
    maps = tf.transpose(maps, [0, 2, 1, 3])
    columns = tf.reshape(maps, [tf.shape(maps)[0], tf.shape(maps)[1], COLUMN])
    recurrence = distributed.recurrent(
        "lstm", UNITS, layers=LAYERS, bidirectional=True, dropout=DROPOUT, use_gpu=use_gpu
    )
    scores = keras.layers.Dense(CLASSES + 1, name="logits")
    return keras.Model(images, {"logits": scores(recurrence(columns)[0])})


def loss_of_each(outputs, batch):
    """CTC's loss of each line, [batch]."""
    places = tf.where(batch["labels"] >= 0)
    digits = tf.gather_nd(batch["labels"], places)
    labels = tf.SparseTensor(places, digits, tf.shape(batch["labels"], tf.int64))
    logits = tf.transpose(outputs["logits"], [1, 0, 2])
    return tf.nn.ctc_loss(labels, logits, None, lengths(logits), blank_index=CLASSES)


def train(folder, use_gpu):
    """Trains a network, saves it as `folder`/model.ckpt and gives the share of new lines without mistake."""
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
                images, labels = session.run(batch)
                feed = {network.images: images, network.labels: sparse(labels)}
                _, loss = session.run([update, network.loss], feed)
                if step % 100 == 0:
                    tf.logging.info("step %d: loss %.3f", step, loss)
            saver.save(session, str(Path(folder) / "model.ckpt"))
            images, labels = lines(random, 500, 6)
            decoded = session.run(network.decoded, {network.images: images})
    # Decoded lines are as wide as the longest of them, which a mistake may have made longer or shorter.
    width = max(decoded.shape[1], labels.shape[1])
    decoded, labels = [
        np.pad(found, [(0, 0), (0, width - found.shape[1])], "constant", constant_values=-1)
        for found in (decoded, labels)
    ]
    accuracy = float(np.mean((decoded == labels).all(axis=1)))
    tf.logging.info("lines without a mistake: %.1f %%", 100 * accuracy)
    return accuracy


def main():
    task = distributed.Task(build_keras, loss_of_each, feed, write, read, ROWS, RATE)
    distributed.run(distributed.parse(__doc__, STEPS), task, train)


if __name__ == "__main__":
    main()
