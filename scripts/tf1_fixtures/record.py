"""Writes one fixture: the GPU graph, a checkpoint with its keys, and what TensorFlow's CPU cells answer."""
import os
from collections import namedtuple

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.control_flow_pb2 import CondContextDef, WhileContextDef
from tensorflow.python.framework import tensor_util

from tf1_fixtures.describe import describe
from tf1_fixtures.layers import CompatibleLayers, CudnnLayers
from tf1_fixtures.weights import AVERAGE, canonical_only, checkpoint_values, recurrent_tensors, seeded

# feeds: one dict a run, input tensor name -> value, or the shape of standard normal values.
# flags: what the command line needs to convert the case.
# bound: values fed in every run that are no inputs (flags says how the command line binds them).
# unreached: outputs which no recurrence reaches; recorded, but not part of the inferred signature.
# states: pairs of a variable and the assignment that changes it; recorded under these names before and after
# each run, the runs being calls in a row.
Case = namedtuple("Case", "outputs feeds flags bound unreached states")
Case.__new__.__defaults__ = ((), {}, (), ())


def record(build, folder):
    """Build both graphs of a case and write its folder."""
    if not os.path.isdir(folder):
        os.makedirs(folder)
    prefix = os.path.join(folder, "model.ckpt")
    gpu_graph, gpu_variables, saver = build_gpu_graph(build)
    with gpu_graph.as_default(), open(prefix + ".meta", "wb") as stream:
        stream.write(reproducible_bytes(saver.export_meta_graph()))

    cpu_graph, case, layers = build_cpu_graph(build)
    golden = run_twin(cpu_graph, case, layers, gpu_variables, saved_keys(gpu_graph), prefix)
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    describe(build, case, gpu_graph, layers, folder)


def build_gpu_graph(build):
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        build(CudnnLayers())
        savers = tf.get_collection(tf.GraphKeys.SAVERS) or [tf.train.Saver()]
        return graph, {v.op.name: v for v in tf.global_variables()}, savers[0]


def build_cpu_graph(build):
    layers = CompatibleLayers()
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        return graph, build(layers), layers


def reproducible_bytes(meta_graph):
    """The message that Saver.save writes, its maps sorted: the same graph is the same bytes every time.

    Control flow contexts lie in collections as bytes already, with maps of their own.
    """
    for collection, message in (("cond_context", CondContextDef), ("while_context", WhileContextDef)):
        if collection in meta_graph.collection_def:
            contexts = meta_graph.collection_def[collection].bytes_list.value
            contexts[:] = [message.FromString(c).SerializeToString(deterministic=True) for c in contexts]
    return meta_graph.SerializeToString(deterministic=True)


def saved_keys(graph):
    """The keys that the GPU graph's own first saver would write."""
    names = graph.get_operation_by_name("save/SaveV2/tensor_names").get_attr("value")
    return {name.decode() for name in tensor_util.MakeNdarray(names)}


def run_twin(graph, case, layers, gpu_variables, keys, prefix):
    """Save a checkpoint from the CPU graph, restore it, and run every feed on what was restored."""
    with graph.as_default():
        variables = {v.op.name: v for v in tf.global_variables()}
        # a Saver of tf.global_variables() leaves out the canonical tensors, all of them or none
        canonical = canonical_only(recurrent_tensors(layers))
        assert set(variables) - keys in (set(), set(canonical)), set(variables) - keys
        values = checkpoint_values(keys, dict(gpu_variables, **variables), layers)
        for key in sorted(keys - set(variables)):  # blobs, optimizer slots, counters
            variables[key] = tf.Variable(values[key], name=key, trainable=False)
        saver = tf.train.Saver({key: variables[key] for key in keys})
    with tf.Session(graph=graph) as session:
        load(session, variables, values)
        saver.save(session, prefix, write_meta_graph=False, write_state=False)
    # Saver.save would write the `checkpoint` file with timestamps; this one is the same on every run
    tf.train.update_checkpoint_state(os.path.dirname(prefix), os.path.basename(prefix))
    check_checkpoint(prefix, values)
    with tf.Session(graph=graph) as session:
        saver.restore(session, prefix)
        if "ema" in case.flags:
            load(session, variables, canonical_only(recurrent_tensors(layers, AVERAGE)))
        else:
            load(session, variables, {key: canonical[key] for key in set(canonical) - keys})
        return run_feeds(session, case)


def load(session, variables, values):
    for key, value in sorted(values.items()):
        variables[key].load(value, session)


def check_checkpoint(prefix, values):
    reader = tf.train.load_checkpoint(prefix)
    assert sorted(reader.get_variable_to_shape_map()) == sorted(values)
    for key, value in values.items():
        np.testing.assert_array_equal(reader.get_tensor(key), value, err_msg=key)


def run_feeds(session, case):
    """Inputs and outputs of every run, as feed<run>/<tensor name>."""
    recorded = {}
    fetches = list(case.outputs) + list(case.unreached)
    for index, feed in enumerate(case.feeds):
        run = "feed%d/" % index
        values = {}
        for name, value in feed.items():
            dtype = session.graph.get_tensor_by_name(name).dtype.as_numpy_dtype
            if isinstance(value, tuple):
                value = seeded(run + name).standard_normal(value)
            values[name] = np.asarray(value, "S" if dtype == object else dtype)
        recorded.update((run + variable, session.run(variable_value(session, variable)))
                        for variable, _ in case.states)
        answers = zip(fetches, session.run(fetches, dict(values, **case.bound)))
        answers = [(name, value.astype("S") if value.dtype == object else value) for name, value in answers]
        recorded.update((run + name, value) for name, value in list(values.items()) + answers)
        recorded.update((run + update, session.run(variable_value(session, variable)))
                        for variable, update in case.states)
    for name, value in recorded.items():
        assert value.dtype.kind == "S" or np.all(np.isfinite(value)), name
    return recorded


def variable_value(session, name):
    """What fetches a variable of either kind by the name of its op."""
    with session.graph.as_default():
        (variable,) = [v for v in tf.global_variables() if v.op.name + ":0" == name]
    return variable.value() if variable.op.type == "VarHandleOp" else variable
