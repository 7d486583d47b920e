"""Number words to digits for TensorFlow 1.15: an LSTM reads the words, another one writes the digits.

    python train.py FOLDER [--use_gpu]
    python train.py FOLDER [--use_gpu] --strategy mirrored  # TensorFlow 2: see ../distributed.py

writes FOLDER/model.ckpt, which either network restores: the saver of CudnnLSTM writes its one packed variable
as the kernels and biases of CudnnCompatibleLSTMCell too.

`four thousand twenty one` is 4021. Digits have no words of their own where they are 0, so that where a digit
goes depends on all words.
"""

import collections
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.append(str(Path(__file__).resolve().parents[1]))
import distributed

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
WORDS = ["-", *ONES.split(), "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
WORDS += [*TENS, "hundred", "thousand"]
LONGEST = 7  # nine thousand nine hundred ninety nine
END, START = 10, 11  # behind the digits
TOKENS, EMBEDDING, UNITS = 12, 12, 40
ROWS, STEPS, RATE = 64, 2000, 0.008

Network = collections.namedtuple("Network", "source target loss train log_probs tokens h c encoded scores")


def build(use_gpu):
    """An encoder, a decoder that is trained behind it, and one that goes on from states.

    source [batch, words] is padded with 0 in front; target [batch, steps] has digits and END, then -1. tokens
    [batch, steps], h and c [batch, UNITS] give log_probs [batch, steps, TOKENS], next_h and next_c.
    """
    source = tf.placeholder(tf.int32, [None, None], name="source")
    tokens = tf.placeholder(tf.int32, [None, None], name="tokens")
    h, c = (tf.placeholder(tf.float32, [None, UNITS], name=name) for name in "hc")
    target = tf.placeholder(tf.int32, [None, None], name="target")
    words, digits = embedding("words", len(WORDS)), embedding("digits", TOKENS)
    with tf.variable_scope("decoder"):
        decoder, scores = recurrent(use_gpu), tf.layers.Dense(TOKENS, name="scores")
    with tf.variable_scope("encoder"):
        encoder = recurrent(use_gpu)
    _, states = encoder(time_major(words, source), None)
    with tf.name_scope("training"):
        first = tf.fill([tf.shape(target)[0], 1], START)
        shown = tf.concat([first, tf.maximum(target[:, :-1], 0)], 1)
        outputs, _ = decoder(time_major(digits, shown), states)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.maximum(target, 0), logits=scores(tf.transpose(outputs, [1, 0, 2]))
        )
        loss = tf.reduce_mean(tf.boolean_mask(losses, target >= 0), name="loss")
        train = tf.train.AdamOptimizer(RATE).minimize(loss, name="train")
    outputs, (next_h, next_c) = decoder(time_major(digits, tokens), (h, c))
    logits = scores(tf.transpose(outputs, [1, 0, 2]))
    log_probs = tf.nn.log_softmax(logits, name="log_probs")
    tf.identity(next_h, name="next_h")
    tf.identity(next_c, name="next_c")
    encoded = tf.identity(states[0], name="encoded_h"), tf.identity(states[1], name="encoded_c")
    return Network(source, target, loss, train, log_probs, tokens, h, c, encoded, scores)


def embedding(name, size):
    return tf.get_variable(name, [size, EMBEDDING], initializer=tf.random_normal_initializer(0, 0.3))


def time_major(table, ids):
    return tf.nn.embedding_lookup(table, tf.transpose(ids))


def recurrent(use_gpu):
    """`(inputs [steps, batch, EMBEDDING], states) -> (outputs, (h, c))`; states are [batch, UNITS]."""
    if use_gpu:
        layer, outer = tf.contrib.cudnn_rnn.CudnnLSTM(1, UNITS), tf.get_variable_scope()

        def call(inputs, states):
            given = None if states is None else tuple(state[None] for state in states)
            with tf.variable_scope(outer, auxiliary_name_scope=False):  # a layer is named where it is called
                outputs, (h, c) = layer(inputs, initial_state=given, training=True)
            return outputs, (h[0], c[0])

        return call
    with tf.variable_scope("cudnn_lstm") as scope:
        stack = tf.nn.rnn_cell.MultiRNNCell([tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell(UNITS)])

    def call_cell(inputs, states):
        given = None if states is None else (tf.nn.rnn_cell.LSTMStateTuple(states[1], states[0]),)
        with tf.variable_scope(scope, reuse=tf.AUTO_REUSE, auxiliary_name_scope=False):
            outputs, (state,) = tf.nn.dynamic_rnn(
                stack, inputs, initial_state=given, dtype=tf.float32, time_major=True
            )
        return outputs, (state.h, state.c)

    return call_cell


def spelled(number):
    """The words of a number below 10000, as ids."""
    words = []
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            words += [WORDS[1 + number // size], name]
            number %= size
    if number >= 20:
        words.append(TENS[number // 10 - 2])
        number %= 10
    if number or not words:
        words.append(WORDS[1 + number])
    return [WORDS.index(word) for word in words]


def examples(numbers):
    """`(source, target)` of numbers."""
    source = np.zeros([len(numbers), LONGEST], np.int32)
    target = np.full([len(numbers), 5], -1, np.int32)
    for row, number in enumerate(numbers):
        words, digits = spelled(number), [*map(int, str(number)), END]
        source[row, LONGEST - len(words) :] = words
        target[row, : len(digits)] = digits
    return source, target


def numbers(random, held_out):
    """Numbers of each length about as often; a tenth of all is held out."""
    every = np.arange(10000)
    kept = every[(np.random.RandomState(5).permutation(10000) < 1000) == held_out]
    many = np.where(kept < 1000, 3.0, 1.0)
    return random.choice(kept, ROWS if not held_out else 500, p=many / many.sum(), replace=not held_out)


def write(path, random, steps=STEPS):
    """Writes the numbers of all steps, in their order, as records."""
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(steps):
            for source, target in zip(*examples(numbers(random, held_out=False))):  # noqa: B905 - Python 3.7
                writer.write(distributed.example(source=source, target=target))


def read(path):
    """A dataset of batches: batched first, then parsed at once, prefetched last.

    The records are random already; others are shuffled before they are batched.
    """
    names = ("source", "target")
    wanted = {name: tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True) for name in names}

    def parse(records):
        parsed = tf.io.parse_example(records, wanted)
        return tuple(tf.cast(parsed[name], tf.int32) for name in names)

    return tf.data.TFRecordDataset(path).batch(ROWS).map(parse, num_parallel_calls=2).prefetch(2)


def feed(source, target):
    """What a batch of the dataset is by name; the decoder is shown START, then the digits before each."""
    first = tf.fill([tf.shape(target)[0], 1], START)
    tokens = tf.concat([first, tf.maximum(target[:, :-1], 0)], 1)
    return {"source": source, "tokens": tokens, "target": target}


def build_keras(use_gpu):
    """The network for distributed.py: the decoder goes on from the encoder's states."""
    import tf_keras as keras

    source = keras.Input([None], dtype=tf.int32, name="source")
    tokens = keras.Input([None], dtype=tf.int32, name="tokens")
    words = keras.layers.Embedding(len(WORDS), EMBEDDING)(source)
    digits = keras.layers.Embedding(TOKENS, EMBEDDING)(tokens)
    encoder, decoder = [distributed.recurrent("lstm", UNITS, use_gpu=use_gpu) for _ in range(2)]
    _, states = encoder(words)
    outputs, _ = decoder(digits, states=states)
    return keras.Model([source, tokens], {"logits": keras.layers.Dense(TOKENS, name="logits")(outputs)})


def loss_of_each(outputs, batch):
    """The mean over the digits of each number, [batch]."""
    target = batch["target"]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(target, 0), outputs["logits"])
    real = tf.cast(target >= 0, tf.float32)
    return tf.reduce_sum(losses * real, 1) / tf.reduce_sum(real, 1)


def train(folder, use_gpu):
    """Trains a network, saves it as `folder`/model.ckpt and gives the share of right digits in new ones."""
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
                source, target = session.run(batch)
                feed = {network.source: source, network.target: target}
                _, loss = session.run([network.train, network.loss], feed)
                if step % 100 == 0:
                    tf.logging.info("step %d: loss %.3f", step, loss)
            saver.save(session, str(Path(folder) / "model.ckpt"))
            source, target = examples(numbers(random, held_out=True))
            found = np.argmax(session.run(network.log_probs, shown(network, session, source, target)), axis=2)
    accuracy = float(np.mean((found == target)[target >= 0]))
    tf.logging.info("right digits: %.1f %%", 100 * accuracy)
    return accuracy


def shown(network, session, source, target):
    """Feeds of the decoder: what is behind the encoder, and the digits before each."""
    h, c = session.run(network.encoded, {network.source: source})
    tokens = np.concatenate([np.full([len(target), 1], START), np.maximum(target[:, :-1], 0)], 1)
    return {network.source: source, network.tokens: tokens.astype(np.int32), network.h: h, network.c: c}


def main():
    task = distributed.Task(build_keras, loss_of_each, feed, write, read, ROWS, RATE)
    distributed.run(distributed.parse(__doc__, STEPS), task, train)


if __name__ == "__main__":
    main()
