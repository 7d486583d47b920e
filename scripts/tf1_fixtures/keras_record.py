"""Writes one fixture of Keras CuDNN layers in a TensorFlow 1 graph saved by tf.train.Saver."""
import json
import os

import numpy as np
import tensorflow as tf

from tf1_fixtures.describe import CUDNN_OPS, ancestors
from tf1_fixtures.keras_layers import CpuKeras, CudnnKeras, converted, keys
from tf1_fixtures.record import check_checkpoint, load, reproducible_bytes, run_feeds, saved_keys
from tf1_fixtures.weights import random_value


def record(build, folder):
    """The GPU graph gives the MetaGraph and the keys, its CPU twin the answers; both have the same weights."""
    if not os.path.isdir(folder):
        os.makedirs(folder)
    prefix = os.path.join(folder, "model.ckpt")
    with tf.Graph().as_default() as gpu_graph:
        tf.set_random_seed(1)
        build(CudnnKeras())
        saver = tf.train.Saver()
        variables = {v.op.name: v for v in tf.global_variables()}
        with open(prefix + ".meta", "wb") as stream:
            stream.write(reproducible_bytes(saver.export_meta_graph()))
    values = {key: checkpoint_value(key, variables[key]) for key in saved_keys(gpu_graph)}
    save(prefix, values)

    twin = CpuKeras()
    with tf.Graph().as_default() as cpu_graph:
        case = build(twin)
        variables = {v.op.name: v for v in tf.global_variables()}
    assert set(variables) <= set(values), set(variables) - set(values)
    with tf.Session(graph=cpu_graph) as session:
        load(session, variables, twin_values(twin, values, variables))
        golden = run_feeds(session, case)
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    describe(build, case, gpu_graph, folder)


def checkpoint_value(key, variable):
    return random_value(key, variable.shape, variable.dtype.base_dtype.as_numpy_dtype)


def save(prefix, values):
    """A checkpoint of `values`, and beside it the file that names it, which holds no timestamps."""
    with tf.Graph().as_default(), tf.Session() as session:
        made = [tf.Variable(value, name=key) for key, value in sorted(values.items())]
        session.run(tf.global_variables_initializer())
        tf.train.Saver(made).save(session, prefix, write_meta_graph=False, write_state=False)
    tf.train.update_checkpoint_state(os.path.dirname(prefix), os.path.basename(prefix))
    check_checkpoint(prefix, values)


def twin_values(twin, values, variables):
    """Key -> value for the CPU graph: recurrent layers by Keras's own rule, everything else as it is."""
    found = {key: values[key] for key in variables}
    for layer in twin.built:
        names = keys(layer)
        found.update(zip(names, converted(layer, [values[name] for name in names])))
    return found


def describe(build, case, graph, folder):
    description = {
        "name": build.__name__,
        "tensorflow": tf.__version__,
        "about": " ".join(build.__doc__.split()),
        "inputs": sorted(case.feeds[0]),
        "outputs": list(case.outputs),
        "unreached": [],
        "flags": list(case.flags),
        "recurrences": [recurrence(op) for op in inference_ops(graph, case.outputs)],
    }
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")


def inference_ops(graph, outputs):
    needed = ancestors([graph.get_tensor_by_name(name).op for name in outputs])
    return sorted((op for op in needed if op.type in CUDNN_OPS), key=lambda op: op.name)


def recurrence(op):
    """A Keras layer is one cuDNN layer in one direction."""
    return {
        "node": op.name,
        "op": op.type,
        "mode": op.get_attr("rnn_mode").decode(),
        "layers": 1,
        "directions": 1,
        "units": op.inputs[1].shape.as_list()[2],
        "input_size": op.inputs[0].shape.as_list()[2],
    }
