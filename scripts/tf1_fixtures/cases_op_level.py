"""Op-level recurrences: no W in the first layer (skip_input, auto_select), projected states (num_proj).

Run by make_tf1_fixtures.py under 1.15.5, and by itself under Python 3.6 with tensorflow==1.2.1. The parameters
are a variable of the user, lstm_params; no saveable knows it, so that a checkpoint holds the blob alone. The
cuDNN ops give model.ckpt.meta, TensorFlow's own cells golden.npz: for a skipped input a cell whose input kernel
is the identity, for a projection LSTMCell(num_proj), which TensorFlow's GPU tests compare cuDNN with (v1.15.0
python/kernel_tests/cudnn_rnn_ops_test.py).
"""
import json
import os
import sys
import zlib
from collections import namedtuple

import numpy as np
import tensorflow as tf
from tensorflow.contrib.cudnn_rnn.python.ops import cudnn_rnn_ops

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from tf1_fixtures import blob  # noqa: E402

CLASSES = {"lstm": "CudnnLSTM", "gru": "CudnnGRU", "rnn_tanh": "CudnnRNNTanh", "rnn_relu": "CudnnRNNRelu"}
PARAMETERS = "lstm_params"
SIZES = ((7, 3), (12, 2))  # (steps, batch) of the recorded feeds
LENGTHS = ((4, 7, 1), (12, 9))

# input_mode: the op's attribute, None for the class's default. states: whether they are fed, else zeros.
# sized: whether the variable has a static shape. branch: both branches of tf.cond read it, one in training.
Network = namedtuple(
    "Network",
    "mode layers directions input_size units input_mode projection dtype states lengths batch_major sized branch",
)
Network.__new__.__defaults__ = ("linear_input", 0, "float32", True, False, False, True, False)


def op_skip_lstm():
    """Two bidirectional LSTM layers with skip_input: the input, as wide as the units, goes into every gate."""
    return Network("lstm", 2, 2, 5, 5, input_mode="skip_input")


def op_skip_relu():
    """A relu layer with skip_input in double precision."""
    return Network("rnn_relu", 1, 1, 4, 4, input_mode="skip_input", dtype="float64")


def op_auto_gru():
    """Two GRU layers with auto_select, which is skip_input here; their variable has no static shape."""
    return Network("gru", 2, 1, 6, 6, input_mode="auto_select", states=False, sized=False)


def op_auto_linear():
    """A bidirectional tanh layer with auto_select, which is linear_input here."""
    return Network("rnn_tanh", 1, 2, 3, 5, input_mode="auto_select")


def op_proj_lstm():
    """Two bidirectional LSTM layers, each direction projected from 6 units to 4 values, with lengths."""
    return Network("lstm", 2, 2, 5, 6, projection=4, lengths=True)


def op_proj_plain():
    """An LSTM layer whose num_proj is its units, which cuDNN takes for none, on zero states."""
    return Network("lstm", 1, 1, 3, 4, projection=4, states=False)


def op_proj_double():
    """Two projected LSTM layers in double precision, batch-major, with lengths."""
    return Network("lstm", 2, 1, 3, 5, projection=2, dtype="float64", lengths=True, batch_major=True)


def op_auto_lstm():
    """The language model of TensorFlow 1.2's tutorial: CudnnLSTM's default is auto_select, and so skip_input."""
    return Network("lstm", 2, 1, 5, 5, input_mode=None, states=False, sized=False)


def op_cond_gru():
    """Two directions in each branch of tf.cond, which reads the variable there; a placeholder decides."""
    return Network("gru", 1, 2, 4, 6, branch=True)


CASES_1_15 = (
    op_skip_lstm, op_skip_relu, op_auto_gru, op_auto_linear, op_proj_lstm, op_proj_plain, op_proj_double, op_cond_gru
)
CASES_1_2 = (op_auto_lstm,)


def record_op_level(build, folder):
    """Write the graph, the checkpoint, the answers and the description of one case."""
    if not os.path.isdir(folder):
        os.makedirs(folder)
    network, prefix = build(), os.path.join(folder, "model.ckpt")
    pseudo = pseudo_layers(np.random.RandomState(zlib.crc32(build.__name__.encode()) & 0xFFFFFFFF), network)
    parameters = opaque(network, pseudo)
    nodes = write_gpu_graph(network, parameters.size, prefix + ".meta")
    save(parameters, prefix)
    golden = {}
    for number in range(len(SIZES)):
        fed = feed(network, number)
        found = dict(fed, **answers(network, pseudo, fed))
        golden.update({"feed%d/%s:0" % (number, key): value for key, value in found.items()})
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    keys = ("mode", "layers", "directions", "units", "input_size")
    sizes = {key: getattr(network, key) for key in keys}
    description = {
        "name": build.__name__,
        "tensorflow": tf.__version__,
        "about": " ".join(build.__doc__.split()),
        "inputs": sorted("%s:0" % key for key in fed),
        "outputs": ["%s:0" % name for name in names(network)],
        "unreached": [],
        "flags": ["--set", "is_training:0=false"] if network.branch else [],
        "recurrences": [dict(sizes, node=node.name, op=node.type) for node in nodes],
    }
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")


def names(network):
    return ["rnn_out", "state_h"] + (["state_c"] if network.mode == "lstm" else [])


def skips(network):
    return network.input_mode != "linear_input" and network.input_size == network.units


def width(network):
    return network.projection or network.units


def projects(network):
    """Whether cuDNN has a projection matrix: not where the projection is as wide as the units."""
    return network.projection not in (0, network.units)


def pseudo_layers(rng, network):
    """Per pseudo-layer (its weights, its projection [width, units] or None); a skipped W is the identity."""
    n, made = network, []
    for layer in range(n.layers):
        inputs = n.input_size if layer == 0 else n.directions * width(n)
        for _ in range(n.directions):

            def uniform(*shape):
                return {g: rng.uniform(-0.5, 0.5, shape).astype(n.dtype) for g in blob.GATES[n.mode]}

            weights = blob.PseudoLayer(
                W=uniform(n.units, inputs), R=uniform(n.units, width(n)), bW=uniform(n.units), bR=uniform(n.units)
            )
            if layer == 0 and skips(n):
                one = np.eye(n.units, dtype=n.dtype)
                weights = weights._replace(W={gate: one for gate in weights.W})
            projection = rng.uniform(-0.9, 0.9, (n.projection, n.units)).astype(n.dtype)
            made.append((weights, projection if projects(n) else None))
    return made


def opaque(network, pseudo):
    """The blob: W, R and projection of each pseudo-layer, but for a skipped W; then the biases of each."""
    gates, regions = blob.GATES[network.mode], []
    for place, (weights, projection) in enumerate(pseudo):
        skipped = place < network.directions and skips(network)
        regions += [] if skipped else [weights.W[gate] for gate in gates]
        regions += [weights.R[gate] for gate in gates]
        regions += [] if projection is None else [projection]
    for weights, _ in pseudo:
        regions += [group[gate] for group in (weights.bW, weights.bR) for gate in gates]
    return np.concatenate([region.ravel() for region in regions])


def write_gpu_graph(network, size, path):
    """Writes the MetaGraph of the cuDNN ops; gives its cuDNN nodes."""
    n = network
    dtype, depth = tf.as_dtype(n.dtype), n.layers * n.directions
    options = {"direction": "unidirectional" if n.directions == 1 else "bidirectional"}
    if n.input_mode:
        options["input_mode"] = n.input_mode
    if n.projection:
        options["num_proj"] = n.projection
    if n.dtype != "float32":
        options["dtype"] = dtype
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        model = getattr(cudnn_rnn_ops, CLASSES[n.mode])(n.layers, n.units, n.input_size, **options)
        if n.sized:
            params = tf.get_variable(PARAMETERS, [size], dtype)
        else:
            start = tf.random_uniform([model.params_size()], -0.1, 0.1, dtype)
            params = tf.get_variable(PARAMETERS, initializer=start, validate_shape=False)
        x = tf.placeholder(dtype, [None, None, n.input_size], name="x")
        states = [
            state(network, name, x, depth, wide)
            for name, wide in (("h", width(n)), ("c", n.units))[: 2 if n.mode == "lstm" else 1]
        ]
        extra = {"time_major": False} if n.batch_major else {}
        if n.lengths:
            extra["sequence_lengths"] = tf.placeholder(tf.int32, [None], name="lengths")
        if n.branch:
            found = tf.cond(
                tf.placeholder(tf.bool, [], name="is_training"),
                lambda: model(x, *(states + [params.read_value()]), is_training=True),
                lambda: model(x, *(states + [params.read_value()]), is_training=False),
            )
        else:
            found = model(x, *(states + [params]), is_training=False, **extra)
        for one, name in zip(found, names(network)):
            tf.identity(one, name=name)
        with open(path, "wb") as stream:
            stream.write(tf.train.Saver().export_meta_graph().SerializeToString(deterministic=True))
        nodes = [op for op in graph.get_operations() if op.type in ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")]
        return [op for op in nodes if not op.get_attr("is_training")]


def state(network, name, x, depth, wide):
    if network.states:
        shape = [None, depth, wide] if network.batch_major else [depth, None, wide]
        return tf.placeholder(x.dtype, shape, name=name)
    return tf.zeros([depth, tf.shape(x)[1], wide], x.dtype)


def save(parameters, prefix):
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.Variable(parameters, name="parameters")
        session.run(variable.initializer)
        saver = tf.train.Saver({PARAMETERS: variable})
        saver.save(session, prefix, write_meta_graph=False, write_state=False)
    tf.train.update_checkpoint_state(os.path.dirname(prefix), os.path.basename(prefix))


def feed(network, number):
    """Placeholder -> value, in the layout of the network."""
    n, (steps, batch) = network, SIZES[number]
    rng, depth = np.random.RandomState(number + 1), n.layers * n.directions
    fed = {"x": rng.normal(size=(steps, batch, n.input_size))}
    if n.states:
        fed["h"] = rng.normal(size=(depth, batch, width(n)))
        if n.mode == "lstm":
            fed["c"] = rng.normal(size=(depth, batch, n.units))
    if n.batch_major:
        fed = {key: value.swapaxes(0, 1) for key, value in fed.items()}
    fed = {key: value.astype(n.dtype) for key, value in fed.items()}
    return dict(fed, lengths=np.array(LENGTHS[number], np.int32)) if n.lengths else fed


def answers(network, pseudo, fed):
    """TensorFlow's own cells, one layer and direction after the other."""
    n = network
    steps, batch = fed["x"].shape[:2][:: -1 if n.batch_major else 1]
    depth, turn = n.layers * n.directions, (lambda a: a.swapaxes(0, 1)) if n.batch_major else (lambda a: a)
    h0 = turn(fed["h"]) if n.states else np.zeros((depth, batch, width(n)), n.dtype)
    c0 = turn(fed["c"]) if n.states and n.mode == "lstm" else np.zeros((depth, batch, n.units), n.dtype)
    lengths = fed.get("lengths", np.full(batch, steps, np.int32))
    with tf.Graph().as_default(), tf.Session() as session:
        x, hs, cs, assigned = tf.constant(turn(fed["x"])), [], [], []
        for layer in range(n.layers):
            halves = []
            for way in range(n.directions):
                p = layer * n.directions + way
                first = tf.nn.rnn_cell.LSTMStateTuple(tf.constant(c0[p]), tf.constant(h0[p]))
                first = first if n.mode == "lstm" else first.h
                with tf.variable_scope("p%d" % p) as scope:
                    seen = tf.reverse_sequence(x, lengths, 0, 1) if way else x
                    y, final = tf.nn.dynamic_rnn(cell(n), seen, lengths, first, time_major=True)
                halves.append(tf.reverse_sequence(y, lengths, 0, 1) if way else y)
                hs.append(final.h if n.mode == "lstm" else final)
                cs += [final.c] if n.mode == "lstm" else []
                assigned += assign(n, *pseudo[p], scope=scope.name)
            x = tf.concat(halves, 2)
        session.run(assigned)
        values = session.run([x, tf.stack(hs)] + ([tf.stack(cs)] if cs else []))
        return dict(zip(names(n), [turn(value) for value in values]))


def cell(network):
    n = network
    if projects(n):
        return tf.nn.rnn_cell.LSTMCell(n.units, num_proj=n.projection, forget_bias=0.0)
    if n.mode == "lstm":
        compatible = getattr(cudnn_rnn_ops, "CudnnCompatibleLSTMCell", None)  # since TensorFlow 1.3
        return compatible(n.units) if compatible else tf.nn.rnn_cell.BasicLSTMCell(n.units, forget_bias=0.0)
    if n.mode == "gru":
        return cudnn_rnn_ops.CudnnCompatibleGRUCell(n.units)
    return tf.nn.rnn_cell.BasicRNNCell(n.units, activation=tf.nn.tanh if n.mode == "rnn_tanh" else tf.nn.relu)


def assign(network, weights, projection, scope):
    tensors = blob.cell_tensors(network.mode, weights)
    if projection is not None:
        tensors["projection/kernel"] = projection.T
    made = []
    for variable in tf.get_collection(tf.GraphKeys.GLOBAL_VARIABLES, scope + "/"):
        longest = max((key for key in tensors if variable.op.name.endswith("/" + key)), key=len)
        made.append(variable.assign(tensors.pop(longest)))
    assert not tensors, sorted(tensors)
    return made


if __name__ == "__main__":
    for case in CASES_1_2:
        record_op_level(case, os.path.join(ROOT, "tests", "data", "tf1", tf.__version__, case.__name__))
