"""Training on several devices: towers over shares of a batch, replicas of tf.distribute with copies of variables."""
import json
import os

import tensorflow as tf

from tf1_fixtures.record import Case

DEVICES = ("/cpu:0", "/cpu:1")
#: Nothing connects to them: a graph is made, and never run.
WORKERS = ["first:2222", "second:2222"]


def towers_split(rnn):
    """Two towers with reused variables, each over half of the batch: tf.split takes even batches alone."""
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    found = []
    for number, part in enumerate(tf.split(x, 2, axis=1)):
        with tf.device(DEVICES[number] if rnn.trains else None), tf.variable_scope("model", reuse=number > 0):
            outputs, _ = rnn.layer("gru", 1, 5, name="encoder")(part, training=False)
            found.append(tf.layers.dense(outputs, 3, name="head"))
    tf.concat(found, axis=1, name="logits")
    return Case(["logits:0"], [{"x:0": (7, 4, 4)}, {"x:0": (12, 2, 4)}])


def mirrored(rnn):
    """tf.distribute.MirroredStrategy on two devices: each variable has a copy, replica_1, which no file has."""
    return distributed(rnn, lambda: tf.distribute.MirroredStrategy(DEVICES))


def multi_worker(rnn):
    """MultiWorkerMirroredStrategy of two workers, as the first has it, whose saver writes the checkpoint.

    Its variables begin with a broadcast and gradients are summed over workers: collectives, on a worker's device.
    """
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": WORKERS}, "task": {"type": "worker", "index": 0}})
    try:
        return distributed(rnn, tf.distribute.experimental.MultiWorkerMirroredStrategy)
    finally:
        del os.environ["TF_CONFIG"]


def distributed(rnn, strategy):
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")

    def model():
        outputs, _ = rnn.layer("lstm", 1, 5, name="encoder")(x, training=rnn.trains)
        logits = tf.layers.dense(outputs, 3, name="head")
        tf.nn.softmax(logits, name="probs")
        if rnn.trains:
            loss = tf.reduce_mean(tf.square(logits))
            tf.train.AdamOptimizer(1e-3).minimize(loss, tf.train.get_or_create_global_step())
        return logits

    if rnn.trains:
        chosen = strategy()
        with chosen.scope():
            chosen.experimental_run_v2(model)
    else:
        model()
    return Case(["probs:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


CASES_1_15 = (towers_split, mirrored, multi_worker)
