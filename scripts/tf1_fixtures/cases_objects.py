"""Object-based checkpoints of tf.train.Checkpoint: a unidirectional CudnnLSTM, the only layer that they take.

Their saver runs ops that only a GPU has, so that here the object graph gives the keys, genuine, and the values
are laid under them by a plain saver.
"""
import json
import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib import cudnn_rnn

from tf1_fixtures import blob
from tf1_fixtures.weights import seeded

STEPS, BATCH = (7, 12), (3, 2)


def object_lstm_2l():
    """tf.train.Checkpoint of two layers of a CudnnLSTM: keys cell-0/kernel/.ATTRIBUTES/VARIABLE_VALUE."""
    return 2, 5, 4


def object_lstm_1l():
    """tf.train.Checkpoint of one layer of a CudnnLSTM, saved twice: kernel and cell-0/kernel."""
    return 1, 6, 3


def record_objects(build, folder):
    if not os.path.isdir(folder):
        os.makedirs(folder)
    layers, units, inputs = build()
    recurrence = blob.Recurrence("lstm", layers, 1, units, inputs, np.float32)
    pseudo = blob.pseudo_layers(seeded(build.__name__), recurrence)
    values = {key: value(key, pseudo) for key in saved_keys(layers, units, inputs)}
    with tf.Graph().as_default(), tf.Session() as session:
        variables = {key: tf.Variable(one, name="v%d" % k) for k, (key, one) in enumerate(sorted(values.items()))}
        session.run(tf.global_variables_initializer())
        prefix = os.path.join(folder, "model.ckpt")
        tf.train.Saver(variables).save(session, prefix, write_meta_graph=False, write_state=False)
    tf.train.update_checkpoint_state(folder, "model.ckpt")
    golden = {}
    for number, (steps, batch) in enumerate(zip(STEPS, BATCH)):
        fed = {
            "inputs": (steps, batch, inputs), "initial_h": (layers, batch, units), "initial_c": (layers, batch, units)
        }
        fed = {key: seeded(key + str(number)).standard_normal(shape).astype(np.float32) for key, shape in fed.items()}
        found = dict(fed, **answers(recurrence, pseudo, fed))
        golden.update({"feed%d/%s" % (number, key): one for key, one in found.items()})
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    description = {
        "name": build.__name__, "tensorflow": tf.__version__, "about": build.__doc__, "graphless": True,
        "recurrences": [{"mode": "lstm", "layers": layers, "directions": 1, "units": units, "input_size": inputs}],
    }
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")


def saved_keys(layers, units, inputs):
    """The keys that tf.train.Checkpoint(encoder=layer).save would write, but for its own bookkeeping."""
    with tf.Graph().as_default():
        layer = cudnn_rnn.CudnnLSTM(layers, units)
        layer.build([None, None, inputs])
        checkpoint = tf.train.Checkpoint(encoder=layer)
        saveables = checkpoint._saver._graph_view.serialize_object_graph()[0]
        names = [spec.name for saveable in saveables for spec in saveable.specs]
    return [name for name in names if "/.ATTRIBUTES/" in name and "save_counter" not in name]


def value(key, pseudo):
    place = key.split("/.ATTRIBUTES/")[0]
    layer = int(place.split("cell-")[1].split("/")[0]) if "cell-" in place else 0
    return blob.cell_tensors("lstm", pseudo[layer])[place.rsplit("/", 1)[1]]


def answers(recurrence, pseudo, fed):
    cells = [cudnn_rnn.CudnnCompatibleLSTMCell(recurrence.units) for _ in range(recurrence.layers)]
    with tf.Graph().as_default(), tf.Session() as session:
        states = tuple(
            tf.nn.rnn_cell.LSTMStateTuple(c, h)
            for c, h in zip(tf.unstack(fed["initial_c"]), tf.unstack(fed["initial_h"]))
        )
        y, final = tf.nn.dynamic_rnn(
            tf.nn.rnn_cell.MultiRNNCell(cells), tf.constant(fed["inputs"]), initial_state=states, time_major=True
        )
        session.run(tf.global_variables_initializer())
        known = blob.canonical(recurrence, pseudo)
        for variable in tf.global_variables():
            variable.load(known[variable.op.name], session)
        wanted = {
            "outputs": y, "state_h": tf.stack([s.h for s in final]), "state_c": tf.stack([s.c for s in final])
        }
        return session.run(wanted)


CASES_1_15 = (object_lstm_2l, object_lstm_1l)
