"""Fixtures of TensorFlow 1.2 and 1.3: op-level classes, a blob that the user named, RNNParamsSaveable.

    python scripts/tf1_fixtures/old_params.py

run under Python 3.6 with tensorflow==1.2.1 or 1.3.0. As with the later versions, the graph of cuDNN ops gives
model.ckpt.meta and the keys that its saver writes; TensorFlow's own CPU cells, their weights set by
assignment, give golden.npz. The values of the keys are laid out here, in the shapes that the CPU kernel of
neither version can make: see `region`.
"""
import json
import os
import sys

import numpy as np
import tensorflow as tf
from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops
from tensorflow.python.framework import tensor_util

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from tf1_fixtures import blob  # noqa: E402

CLASSES = {"lstm": "CudnnLSTM", "gru": "CudnnGRU", "rnn_tanh": "CudnnRNNTanh", "rnn_relu": "CudnnRNNRelu"}
STEPS, BATCH = (7, 12), (3, 2)
V13 = tf.__version__.startswith("1.3")

#: name -> (mode, layers, directions, input size, units, scope of the saved names)
CASES_1_3 = {
    "params_lstm_2l": ("lstm", 2, 1, 4, 5, "encoder"),
    "params_gru_2l": ("gru", 2, 1, 3, 6, None),
    "params_tanh_2l": ("rnn_tanh", 2, 1, 3, 5, None),
    "params_lstm_bi": ("lstm", 1, 2, 4, 5, None),
    "params_gru_bi_2l": ("gru", 2, 2, 3, 5, None),
}
CASES_1_2 = {
    "params_lstm_2l": ("lstm", 2, 1, 4, 5, None),
    "params_relu_2l": ("rnn_relu", 2, 1, 3, 5, None),
    "params_lstm_square": ("lstm", 1, 1, 4, 4, None),
}


def main():
    for name, case in sorted((CASES_1_3 if V13 else CASES_1_2).items()):
        folder = os.path.join(ROOT, "tests", "data", "tf1", tf.__version__, name)
        if not os.path.isdir(folder):
            os.makedirs(folder)
        make(name, folder, *case)


def make(name, folder, mode, layers, directions, inputs, units, scope):
    recurrence = blob.Recurrence(mode, layers, directions, units, inputs, np.float32)
    pseudo = blob.pseudo_layers(np.random.RandomState(len(name) + 7 * layers), recurrence)
    keys, ops = gpu_graph(recurrence, scope, os.path.join(folder, "model.ckpt.meta"))
    values = {key: value(key, recurrence, pseudo) for key in keys}
    save(values, os.path.join(folder, "model.ckpt"))
    golden = {}
    for number, (steps, batch) in enumerate(zip(STEPS, BATCH)):
        random = np.random.RandomState(number + 1)
        depth = layers * directions
        fed = {"x": random.normal(size=(steps, batch, inputs)), "h": random.normal(size=(depth, batch, units))}
        if mode == "lstm":
            fed["c"] = random.normal(size=(depth, batch, units))
        fed = {key: one.astype(np.float32) for key, one in fed.items()}
        found = dict(fed, **answers(recurrence, pseudo, fed))
        golden.update({"feed%d/%s:0" % (number, key): one for key, one in found.items()})
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    sizes = {"mode": mode, "layers": layers, "directions": directions, "units": units, "input_size": inputs}
    description = {
        "name": name,
        "tensorflow": tf.__version__,
        "about": "An op-level %s with RNNParamsSaveable; its blob is a variable rnn_params." % CLASSES[mode],
        "inputs": sorted("%s:0" % key for key in fed),
        "outputs": ["rnn_out:0", "state_h:0"] + (["state_c:0"] if mode == "lstm" else []),
        "unreached": [],
        "flags": [],
        "recurrences": [dict(sizes, node=op, op="CudnnRNN") for op in ops],
    }
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")


def gpu_graph(recurrence, scope, path):
    """Writes the MetaGraph of the cuDNN ops; gives the keys of its saver and the names of its cuDNN nodes."""
    r = recurrence
    way = "unidirectional" if r.directions == 1 else "bidirectional"
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        model = getattr(cudnn_rnn_ops, CLASSES[r.mode])(
            r.layers, r.units, r.input_size, input_mode="linear_input", direction=way
        )
        params = tf.Variable(tf.random_uniform([model.params_size()]), validate_shape=False, name="rnn_params")
        x = tf.placeholder(tf.float32, [None, None, r.input_size], name="x")
        states = [
            tf.placeholder(tf.float32, [r.layers * r.directions, None, r.units], name=name)
            for name in ("h", "c")[: 2 if r.mode == "lstm" else 1]
        ]
        outputs = model(x, *(states + [params]), is_training=False)
        for one, name in zip(outputs, ("rnn_out", "state_h", "state_c")):
            tf.identity(one, name=name)
        extra = {"base_variable_scope": scope} if V13 else {}
        arguments = ([model] if V13 else []) + [model.params_to_canonical, model.canonical_to_params, [params]]
        saveable = cudnn_rnn_ops.RNNParamsSaveable(*arguments, **extra)
        tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
        saver = tf.train.Saver()
        with open(path, "wb") as stream:
            stream.write(saver.export_meta_graph().SerializeToString(deterministic=True))
        names = graph.get_operation_by_name("save/SaveV2/tensor_names").get_attr("value")
        ops = [op.name for op in graph.get_operations() if op.type == "CudnnRNN"]
        return [name.decode() for name in tensor_util.MakeNdarray(names)], ops


def value(key, recurrence, pseudo):
    """What the saver writes under `key`."""
    r, last = recurrence, key.rsplit("/", 1)[-1]
    if key == "rnn_params":
        return blob.opaque(r.mode, pseudo)
    if ":" in key:
        return region(int(key.rsplit(":", 1)[1]), recurrence, pseudo)
    place = key.index("multi_rnn_cell/")
    known = blob.canonical(recurrence, pseudo)
    if last.startswith("bias_cudnn"):
        one = pseudo[int(key.split("cell_")[1].split("/")[0])]
        group = (one.bW, one.bR)[int(last[-1])]
        return np.concatenate([group[gate] for gate in ("icfo" if r.mode == "lstm" else "ru")])
    return known["rnn/" + key[place:]]


def region(index, recurrence, pseudo):
    """Output `index` of CudnnRNNParamsToCanonical of these versions: weights of the first `layers` pseudo-layers,
    then as many biases. A weight is flat where its place in the blob is aligned, else `[inputs, units]` although
    its memory is `[units, inputs]` (kernels/cudnn_rnn_ops.cc, v1.3.0); every other one is flat here."""
    gates = blob.GATES[recurrence.mode]
    found = pseudo[: recurrence.layers]
    weights = [group[gate] for p in found for group in (p.W, p.R) for gate in gates]
    biases = [group[gate] for p in found for group in (p.bW, p.bR) for gate in gates]
    if index >= len(weights):
        return biases[index - len(weights)]
    weight = weights[index]
    return weight.ravel() if index % 2 else weight.ravel().reshape(weight.shape[::-1])


def save(values, prefix):
    with tf.Graph().as_default(), tf.Session() as session:
        variables = {key: tf.Variable(one, name="v%d" % k) for k, (key, one) in enumerate(sorted(values.items()))}
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(variables)
        saver.save(session, prefix, write_meta_graph=False, write_state=False)
    tf.train.update_checkpoint_state(os.path.dirname(prefix), os.path.basename(prefix))


def cell(recurrence):
    r = recurrence
    if r.mode == "lstm":
        return tf.nn.rnn_cell.BasicLSTMCell(r.units, forget_bias=0.0)
    if r.mode == "gru":
        return cudnn_rnn_ops.CudnnCompatibleGRUCell(r.units)
    return tf.nn.rnn_cell.BasicRNNCell(r.units, activation=tf.nn.tanh if r.mode == "rnn_tanh" else tf.nn.relu)


def answers(recurrence, pseudo, fed):
    """TensorFlow's own cells, one layer and direction after the other."""
    r = recurrence
    with tf.Graph().as_default(), tf.Session() as session:
        x, hs, cs, assigned = tf.constant(fed["x"]), [], [], []
        for layer in range(r.layers):
            halves = []
            for way in range(r.directions):
                p = layer * r.directions + way
                h = tf.constant(fed["h"][p])
                state = tf.nn.rnn_cell.LSTMStateTuple(tf.constant(fed["c"][p]), h) if r.mode == "lstm" else h
                with tf.variable_scope("p%d" % p) as scope:
                    seen = tf.reverse(x, [0]) if way else x
                    y, final = tf.nn.dynamic_rnn(cell(r), seen, initial_state=state, time_major=True)
                halves.append(tf.reverse(y, [0]) if way else y)
                hs.append(final.h if r.mode == "lstm" else final)
                cs += [final.c] if r.mode == "lstm" else []
                tensors = blob.cell_tensors(r.mode, pseudo[p])
                for variable in tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope.name + "/"):

                    longest = max((key for key in tensors if variable.op.name.endswith("/" + key)), key=len)
                    assigned.append(variable.assign(tensors[longest]))
            x = tf.concat(halves, 2)
        session.run(assigned)
        names = ["rnn_out", "state_h"] + (["state_c"] if cs else [])
        values = session.run([x, tf.stack(hs)] + ([tf.stack(cs)] if cs else []))
        return dict(zip(names, values))


if __name__ == "__main__":
    main()
