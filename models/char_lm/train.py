"""A character language model with tf.keras of TensorFlow 1.15, whose LSTM layers remember from call to call.

    python train.py FOLDER [--use_gpu]
    python train.py FOLDER [--use_gpu] --strategy mirrored  # TensorFlow 2: see ../distributed.py

writes FOLDER/model.h5, which takes one text, some characters at a call. The layers of either kind load the
other's weights: Keras makes their own of them.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[1]))
import distributed

layers = tf.keras.layers

TEXT = Path(__file__).resolve().parent / "text.txt"
EMBEDDING, UNITS = 12, 40
ROWS, STEPS, EPOCHS, RATE = 8, 20, 60, 0.01


def read():
    """The text's characters, sorted, and the text as their numbers."""
    text = TEXT.read_text(encoding="ascii")
    characters = sorted(set(text))
    return characters, np.array([characters.index(character) for character in text], np.int32)


def build(batch, use_gpu):
    """[batch, steps] numbers of characters -> [batch, steps, characters] probabilities of the next one."""
    characters, _ = read()
    model = tf.keras.Sequential()
    shape = [batch, None]
    model.add(layers.Embedding(len(characters), EMBEDDING, batch_input_shape=shape, name="characters"))
    for name in ("memory_1", "memory_2"):
        model.add(recurrent(use_gpu, name=name, return_sequences=True, stateful=True))
    model.add(layers.Dense(len(characters), activation="softmax", name="next"))
    return model


def recurrent(use_gpu, **options):
    """CuDNNLSTM knows one recurrent activation; LSTM of TensorFlow 1 takes another unless it is told."""
    if use_gpu:
        return layers.CuDNNLSTM(UNITS, **options)
    return layers.LSTM(UNITS, recurrent_activation="sigmoid", **options)


def parts():
    """How many batches the text has."""
    return (len(read()[1]) - 1) // (ROWS * STEPS)


def write(path):
    """Writes parts of STEPS characters as records: those of ROWS rows that go on side by side, then the next.

    Each has the characters and those that follow them.
    """
    _, text = read()
    length = parts() * STEPS
    given, wanted = text[: ROWS * length].reshape(ROWS, -1), text[1 : ROWS * length + 1].reshape(ROWS, -1)
    with tf.io.TFRecordWriter(path) as writer:
        for start in range(0, length, STEPS):
            for row in range(ROWS):
                part = slice(start, start + STEPS)
                writer.write(distributed.example(given=given[row, part], wanted=wanted[row, part]))


def dataset(path, epochs=1):
    """A dataset of batches: batched first, then parsed at once, prefetched last.

    The layers remember from batch to batch, so that nothing is shuffled.
    """
    part = tf.io.FixedLenFeature([STEPS], tf.int64)

    def parse(records):
        parsed = tf.io.parse_example(records, {"given": part, "wanted": part})
        return tf.cast(parsed["given"], tf.int32), tf.cast(parsed["wanted"], tf.int32)

    records = tf.data.TFRecordDataset(path).repeat(epochs)
    return records.batch(ROWS).map(parse, num_parallel_calls=2).prefetch(2)


def batches(path):
    """Yields the batches of an epoch."""
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset(path)).get_next()
        while True:
            try:
                found = session.run(batch)
            except tf.errors.OutOfRangeError:
                return
            yield found


def train(folder, use_gpu):
    """Trains on ROWS parts of the text side by side; gives the share of right guesses in the last round.

    The weights go to `folder`/weights.h5.
    """
    tf.keras.backend.clear_session()
    # One thread each: the sums come in the same order, and the weights are the same in every run.
    threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    tf.keras.backend.set_session(tf.Session(config=threads))
    tf.set_random_seed(1)
    model = build(ROWS, use_gpu)
    model.compile(tf.keras.optimizers.Adam(RATE), "sparse_categorical_crossentropy", metrics=["accuracy"])
    records = str(Path(folder) / "train.tfrecord")
    write(records)
    text = list(batches(records))
    for epoch in range(EPOCHS):
        model.reset_states()
        found = [model.train_on_batch(given, wanted[..., None]) for given, wanted in text]
        loss, accuracy = np.mean(found, axis=0)
        if epoch % 10 == 9:
            tf.logging.info("epoch %d: loss %.3f, right guesses: %.1f %%", epoch + 1, loss, 100 * accuracy)
    model.save_weights(str(Path(folder) / "weights.h5"))
    return float(accuracy)


def export(folder, use_gpu):
    """The trained weights in a model of one row, `folder`/model.h5."""
    tf.keras.backend.clear_session()
    # No CPU runs CuDNNLSTM, but so much can be done without it: what nobody asks for is not placed anywhere.
    options = tf.GraphOptions(place_pruned_graph=True)
    tf.keras.backend.set_session(tf.Session(config=tf.ConfigProto(graph_options=options)))
    model = build(1, use_gpu)
    model.load_weights(str(Path(folder) / "weights.h5"))
    model.save(str(Path(folder) / "model.h5"))


def build_keras(use_gpu):
    """The network for distributed.py, which begins each part without memory: parts go to several devices."""
    import tf_keras as keras

    size = len(read()[0])
    given = keras.Input([None], dtype=tf.int32, name="given")
    hidden = keras.layers.Embedding(size, EMBEDDING)(given)
    for _ in range(2):
        hidden, _ = distributed.recurrent("lstm", UNITS, use_gpu=use_gpu)(hidden)
    return keras.Model(given, {"logits": keras.layers.Dense(size, name="logits")(hidden)})


def feed(given, wanted):
    """What a batch of the dataset is by name."""
    return {"given": given, "wanted": wanted}


def loss_of_each(outputs, batch):
    """The mean over the characters of each part, [batch]."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["wanted"], outputs["logits"])
    return tf.reduce_mean(losses, 1)


def main():
    arguments = distributed.parse(__doc__, EPOCHS * parts())

    def read_again(path):
        return dataset(path, epochs=-1)

    def write_once(path, _random, _steps):
        write(path)

    def train_and_export(folder, use_gpu):
        train(folder, use_gpu)
        export(folder, use_gpu)

    task = distributed.Task(build_keras, loss_of_each, feed, write_once, read_again, ROWS, RATE)
    distributed.run(arguments, task, train_and_export)


if __name__ == "__main__":
    main()
