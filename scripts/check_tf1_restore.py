"""Judges `--format checkpoint` with TensorFlow 1.15 itself, and writes tests/data/tf1_restore.json.

    TF1_PYTHON scripts/check_tf1_restore.py PYTHON [CASE ...]

TF1_PYTHON is a Python 3.7 with tensorflow==1.15.5 (as make_tf1_fixtures.py wants it), PYTHON one that has
cudnn_convert; it converts the fixtures into a temporary folder. Each checkpoint must then give TensorFlow 1's
own recorded answers, in two ways that its users have: `import_meta_graph` and the saver it gives; and a plain
`tf.train.Saver` in a network of TensorFlow 1's CPU cells, whatever `--cell` names them. With CASE the record
keeps what it has of the other cases.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from tf1_fixtures import cases_control_flow, cases_inputs, cases_lengths, cases_modes, cases_scopes, cases_training
from tf1_fixtures import layers
from tf1_fixtures.golden import BOUNDS, keywords, worst
from tf1_fixtures.record import build_cpu_graph, run_feeds
from tf1_fixtures.tagger import TAGS, VOCABULARY, EMBEDDING, UNITS, bilstm_tagger

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULT = os.path.join(ROOT, "tests", "data", "tf1_restore.json")
MODULES = (cases_modes, cases_training, cases_control_flow, cases_scopes, cases_lengths, cases_inputs)
TWINS = {build.__name__: build for m in MODULES for build in getattr(m, "CASES", ()) + m.CASES_1_15}
TWINS["bilstm_tagger"] = bilstm_tagger
LSTM_CELLS = {
    "compatible": layers.COMPATIBLE_CELLS["lstm"],
    "lstm_block": tf.contrib.rnn.LSTMBlockCell,
    "basic_lstm": tf.nn.rnn_cell.BasicLSTMCell,
}
CONVERT = """
import json, pathlib, sys, cudnn_convert
for job in json.load(open(sys.argv[1])):
    try:
        cudnn_convert.convert(job["source"], job["out"], format="checkpoint", verify=False, **job["options"])
    except cudnn_convert.errors.UnsupportedModelError:
        pathlib.Path(job["out"] + ".refused").touch()
"""


def jobs(folder, names):
    """One a fixture; of LSTMs that 1.15.5 wrote, one for each cell and lowering too."""
    fixtures = sorted(glob.glob(os.path.join(ROOT, "tests", "data", "tf1", "*", "*", "case.json")))
    for path in fixtures:
        with open(path) as stream:
            case = json.load(stream)
        source = os.path.dirname(path)
        if case.get("graphless") or case.get("stateful") or "recurrences" not in case:
            continue
        if names and case["name"] not in names:
            continue
        variants = [("compatible", "fast")]
        if case["tensorflow"] == "1.15.5" and any(r["mode"] == "lstm" for r in case["recurrences"]):
            variants += [(cell, "fast") for cell in ("lstm_block", "basic_lstm")]
            variants += [(cell, "portable") for cell in ("compatible", "basic_lstm")]
        for cell, lowering in variants:
            name = "%s-%s/%s/%s" % (case["tensorflow"], case["name"], cell, lowering)
            options = dict(keywords(case["flags"]), cell=cell, lowering=lowering)
            out = os.path.join(folder, name.replace("/", "-"))
            source_path = os.path.join(source, case.get("source", "model.ckpt"))
            yield {"name": name, "case": case, "folder": source, "source": source_path, "out": out,
                   "options": options}


def judged(job):
    """The worst difference over all outputs and feeds, for each way in; or that no checkpoint can hold the case."""
    if os.path.isfile(job["out"] + ".refused"):
        return {"refused": True}
    with open(os.path.join(job["out"], "conversion.json")) as stream:
        record = json.load(stream)
    golden = dict(np.load(os.path.join(job["folder"], "golden.npz")))
    dtypes = [found["dtype"] for found in record["recurrences"]]
    bound = BOUNDS[dtypes[0] if dtypes else "float32"]
    prefix = os.path.join(job["out"], "model.ckpt")
    found = {"imported": imported(prefix, record, golden, bound)}
    case, cell = job["case"], job["options"]["cell"]
    is_twin = case["tensorflow"] == "1.15.5" and case["name"] in TWINS and not case["unreached"]
    if is_twin and job["options"]["lowering"] == "fast":
        found["restored"] = restored(prefix, TWINS[case["name"]], cell, golden, bound)
    if case["name"] == "bilstm_tagger" and job["options"]["lowering"] == "fast":
        found["article"] = article(prefix, cell, golden, bound)
    found["values"] = digest(prefix)
    return found


def imported(prefix, record, golden, bound):
    """As a user of the MetaGraph: import it, restore, run the signature."""
    with tf.Graph().as_default() as graph:
        saver = tf.train.import_meta_graph(prefix + ".meta")
    answers = {}
    with tf.Session(graph=graph) as session:
        saver.restore(session, prefix)
        for feed in sorted({key.split("/")[0] for key in golden}):
            values = {record["tensors"]["inputs"][key]: golden[feed + "/" + name]
                      for key, name in record["inputs"].items()}
            for key, name in record["outputs"].items():
                answers[feed + "/" + name] = session.run(record["tensors"]["outputs"][key], values)
    return worst(answers, golden, bound)


def restored(prefix, build, cell, golden, bound):
    """As a user who writes the CPU network by hand: a plain Saver of all its variables."""
    layers.COMPATIBLE_CELLS["lstm"] = LSTM_CELLS[cell]
    graph, case, _ = build_cpu_graph(build)
    with graph.as_default():
        saver = tf.train.Saver()
    with tf.Session(graph=graph) as session:
        saver.restore(session, prefix)
        answers = run_feeds(session, case)
    return worst({name: value for name, value in answers.items() if name in golden}, golden, bound)


def article(prefix, cell, golden, bound):
    """The tagger as an article on cuDNN LSTMs writes its CPU branch, without any helper of ours."""
    with tf.Graph().as_default() as graph:
        ids = tf.placeholder(tf.int32, [None, None])
        embedded = tf.nn.embedding_lookup(tf.get_variable("embedding", [VOCABULARY, EMBEDDING]), ids)
        with tf.variable_scope("cudnn_lstm"):
            outputs, _, _ = tf.contrib.rnn.stack_bidirectional_dynamic_rnn(
                [LSTM_CELLS[cell](UNITS)], [LSTM_CELLS[cell](UNITS)], tf.transpose(embedded, [1, 0, 2]),
                dtype=tf.float32, time_major=True)
        logits = tf.layers.dense(tf.transpose(outputs, [1, 0, 2]), TAGS, name="scores")
        saver = tf.train.Saver()
    with tf.Session(graph=graph) as session:
        saver.restore(session, prefix)
        answers = {feed + "/logits:0": session.run(logits, {ids: golden[feed + "/ids:0"]})
                   for feed in ("feed0", "feed1")}
    return worst(answers, golden, bound)


def digest(prefix):
    """A checksum of every key and value."""
    reader, found = tf.train.load_checkpoint(prefix), 0
    for key in sorted(reader.get_variable_to_shape_map()):
        value = np.ascontiguousarray(reader.get_tensor(key))
        found = zlib.crc32(("%s %s %s" % (key, value.dtype, value.shape)).encode() + value.tobytes(), found)
    return "%08x" % (found & 0xFFFFFFFF)


def ops(prefix):
    """The names of the attributes of each op in a MetaGraph, functions included."""
    meta = tf.MetaGraphDef()
    with open(prefix + ".meta", "rb") as stream:
        meta.ParseFromString(stream.read())
    graph, found = meta.graph_def, {}
    for nodes in [graph.node] + [function.node_def for function in graph.library.function]:
        for node in nodes:
            found.setdefault(node.op, set()).update(node.attr)
    return found


def main(python, names):
    folder = tempfile.mkdtemp()
    wanted = list(jobs(folder, names))
    listed = os.path.join(folder, "jobs.json")
    with open(listed, "w") as stream:
        json.dump(wanted, stream)
    subprocess.check_call([python, "-c", CONVERT, listed], cwd=ROOT)
    cases, known = {}, {}
    for job in wanted:
        cases[job["name"]] = judged(job)
        print(job["name"], cases[job["name"]])
        if "refused" not in cases[job["name"]]:
            for op, attributes in ops(os.path.join(job["out"], "model.ckpt")).items():
                known.setdefault(op, set()).update(attributes)
    result = {"tensorflow": tf.__version__, "numpy": np.__version__, "python": sys.version.split()[0],
              "cases": cases, "ops": {op: sorted(attributes) for op, attributes in known.items()}}
    if names:  # the others stay as they were found
        with open(RESULT) as stream:
            before = json.load(stream)
        result["cases"] = dict(before["cases"], **cases)
        for op, attributes in before["ops"].items():
            result["ops"][op] = sorted(set(attributes) | set(result["ops"].get(op, ())))
    with open(RESULT, "w") as stream:
        json.dump(result, stream, indent=1, sort_keys=True)
        stream.write("\n")


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(sys.argv[1], sys.argv[2:])
