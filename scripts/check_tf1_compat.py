"""Judges what the drop-in's Savers write with TensorFlow 1.15 itself, and writes tests/data/tf1_compat.json.

    TF1_PYTHON scripts/check_tf1_compat.py PYTHON

TF1_PYTHON is a Python 3.7 with tensorflow==1.15.5 (as make_tf1_fixtures.py wants it), PYTHON one that has
cudnn_convert. PYTHON rebuilds the fixtures with `cudnn_convert.compat`, restores them and saves them anew
(tests/support/programs/rebuilt_fixtures.py). Of each new checkpoint TensorFlow 1.15 says three things: that it
has the keys and shapes that the Saver of its own cuDNN layers asks for; that a network of its CPU cells, restored
from it by a plain Saver, gives the recorded answers; and that the blob in it is the packed weights, summed
biases in two halves, as its own restore leaves them.
"""
import json
import os
import subprocess
import sys
import tempfile
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from tf1_fixtures import blob, cases_lengths, cases_modes, cases_scopes, cases_training
from tf1_fixtures.golden import BOUNDS
from tf1_fixtures.record import build_cpu_graph, build_gpu_graph, run_feeds, saved_keys
from tf1_fixtures.tagger import bilstm_tagger
from tf1_fixtures.weights import seeded

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULT = os.path.join(ROOT, "tests", "data", "tf1_compat.json")
PROGRAM = os.path.join(ROOT, "tests", "support", "programs", "rebuilt_fixtures.py")
MODULES = (cases_modes, cases_training, cases_scopes, cases_lengths)
BUILDS = {build.__name__: build for m in MODULES for build in getattr(m, "CASES", ()) + m.CASES_1_15}
BUILDS["bilstm_tagger"] = bilstm_tagger
#: Their answers need weights that no canonical key has.
BLOB_ALONE = ("raw_only", "moving_average")


def judged(name, prefix):
    build = BUILDS[name]
    reader = tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    gpu_graph, _, _ = build_gpu_graph(build)
    assert set(shapes) == saved_keys(gpu_graph), sorted(set(shapes) ^ saved_keys(gpu_graph))
    graph, case, layers = build_cpu_graph(build)
    found = {"values": digest(prefix), "keys": len(shapes), "blobs": sum(check_blob(reader, layer, name) for layer in layers.built)}
    if name in BLOB_ALONE:
        return found
    with graph.as_default():
        saver = tf.train.Saver()
    with tf.Session(graph=graph) as session:
        saver.restore(session, prefix)
        answers = run_feeds(session, case)
    golden = np.load(os.path.join(ROOT, "tests", "data", "tf1", "1.15.5", name, "golden.npz"))
    worst = 0.0
    for key in golden.files:
        if golden[key].dtype.kind != "f":
            np.testing.assert_array_equal(answers[key], golden[key])
            continue
        bound = BOUNDS[golden[key].dtype.name]
        np.testing.assert_allclose(answers[key], golden[key], bound, bound, err_msg=key)
        worst = max(worst, np.abs(answers[key].astype("d") - golden[key]).max())
    found["worst"] = float("%.1e" % worst)
    return found


def digest(prefix):
    """A checksum of every key and value; the suite compares it with what it writes."""
    reader, found = tf.train.load_checkpoint(prefix), 0
    for key in sorted(reader.get_variable_to_shape_map()):
        value = np.ascontiguousarray(reader.get_tensor(key))
        found = zlib.crc32(("%s %s %s" % (key, value.dtype, value.shape)).encode() + value.tobytes(), found)
    return "%08x" % (found & 0xFFFFFFFF)


def check_blob(reader, layer, name):
    """Whether the blob has this layer's weights; a Saver of variables alone keeps both biases as they are."""
    pseudo = blob.pseudo_layers(seeded(layer.opaque_key), layer.recurrence)
    if name != "raw_only":
        pseudo = [halved(p, layer.mode) for p in pseudo]
    np.testing.assert_array_equal(reader.get_tensor(layer.opaque_key), blob.opaque(layer.mode, pseudo))
    return 1


def halved(p, mode):
    sums = {gate: p.bW[gate] + p.bR[gate] for gate in p.bW}
    half = {gate: (value * value.dtype.type(0.5)) for gate, value in sums.items()}
    if mode == "gru":
        return p._replace(bW=dict(half, h=p.bW["h"]), bR=dict(half, h=p.bR["h"]))
    return p._replace(bW=half, bR=half)


def main(python):
    folder = tempfile.mkdtemp()
    environment = dict(os.environ, PYTHONPATH=ROOT)
    subprocess.check_call([python, PROGRAM, ROOT, folder] + sorted(BUILDS), env=environment)
    cases = {}
    for name in sorted(BUILDS):
        cases[name] = judged(name, os.path.join(folder, name, "model.ckpt"))
        print(name, cases[name])
    result = {"tensorflow": tf.__version__, "numpy": np.__version__, "python": sys.version.split()[0], "cases": cases}
    with open(RESULT, "w") as stream:
        json.dump(result, stream, indent=1, sort_keys=True)
        stream.write("\n")


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(sys.argv[1])
