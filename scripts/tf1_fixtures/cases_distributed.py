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


def horovod(rnn):
    """Horovod: gradients averaged over workers, variables broadcast from the first; TensorFlow knows neither op."""
    tf.nn.softmax(with_horovod(rnn, "gru", 2), name="probs")
    return Case(["probs:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}])


def horovod_gathered(rnn):
    """Horovod, all workers' predictions gathered for a metric: what nothing reads is an op of Horovod's."""
    probs = tf.nn.softmax(with_horovod(rnn, "lstm", 1), name="probs")
    if rnn.trains:
        import horovod.tensorflow as hvd

        hvd.allgather(tf.reshape(probs, [-1, 3]), name="everywhere")
    return Case(["probs:0"], [{"x:0": (7, 3, 4)}, {"x:0": (12, 2, 4)}], ["--outputs", "probs:0"])


def with_horovod(rnn, mode, directions):
    x = tf.placeholder(tf.float32, [None, None, 4], name="x")
    outputs, _ = rnn.layer(mode, 1, 5, directions=directions, name="encoder")(x, training=rnn.trains)
    logits = tf.layers.dense(outputs, 3, name="head")
    if rnn.trains:
        import horovod.tensorflow as hvd

        hvd.init()
        loss = tf.reduce_mean(tf.square(logits))
        optimizer = hvd.DistributedOptimizer(tf.train.AdamOptimizer(1e-3 * hvd.size()))
        optimizer.minimize(loss, tf.train.get_or_create_global_step())
        hvd.BroadcastGlobalVariablesHook(0).begin()
    return logits


CASES_1_15 = (towers_split, mirrored, multi_worker)
#: These need Horovod too.
CASES_HOROVOD = (horovod, horovod_gathered)
