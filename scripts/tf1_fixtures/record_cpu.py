"""Writes one fixture whose graph runs on a CPU as it is: no twin, the graph itself saves and answers."""
import json
import os

import numpy as np
import tensorflow as tf

from tf1_fixtures.record import load, reproducible_bytes, run_feeds
from tf1_fixtures.weights import random_value


def record_cpu(build, folder):
    """Build a case once; write its graph, its checkpoint, its answers and case.json."""
    if not os.path.isdir(folder):
        os.makedirs(folder)
    prefix = os.path.join(folder, "model.ckpt")
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        case = build()
        variables = {v.op.name: v for v in tf.global_variables()}
        saver = tf.train.Saver()
        with open(prefix + ".meta", "wb") as stream:
            stream.write(reproducible_bytes(saver.export_meta_graph()))
    values = {
        key: random_value(key, v.shape, v.dtype.base_dtype.as_numpy_dtype) for key, v in variables.items()
    }
    with tf.Session(graph=graph) as session:
        load(session, variables, values)
        saver.save(session, prefix, write_meta_graph=False, write_state=False)
        tf.train.update_checkpoint_state(folder, os.path.basename(prefix))
        golden = run_feeds(session, case)
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    description = {
        "name": build.__name__,
        "tensorflow": tf.__version__,
        "about": " ".join(build.__doc__.split()),
        "inputs": sorted(case.feeds[0]),
        "outputs": list(case.outputs),
        "unreached": [],
        # Without a cuDNN node nothing tells which outputs inference wants.
        "flags": ["--outputs", ",".join(case.outputs)],
        "recurrences": [],
    }
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")
