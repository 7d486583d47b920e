"""Runs converted fixtures in TensorFlow 1.15 itself, called by several threads at once.

    TF1_PYTHON scripts/check_tf1_callers.py PYTHON [CASE ...]

TF1_PYTHON is a Python 3.7 with tensorflow==1.15.5 (as make_tf1_fixtures.py wants it), PYTHON one that has
cudnn_convert; it converts the fixtures to a SavedModel and a frozen graph. Each is opened in Sessions with one
and two threads in ops and between ops, and four threads call each Session. Every answer must be the one that
TensorFlow 1's CPU cells gave. A fixture has a process, since a kernel that shares a value among calls may end
one; a process that hangs is stopped. Ends with 1 where a fixture fails.
"""
import glob
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from tf1_fixtures.golden import BOUNDS, keywords, worst

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Formats, and the file of an artifact that says what its tensors are.
FORMATS = {"savedmodel": os.path.join("assets.extra", "cudnn_convert.json"), "frozen": "conversion.json"}
#: Threads in an op and between ops.
POOLS = ((1, 1), (1, 2), (2, 2))
CALLERS, CALLS = 4, 50
#: Seconds for a fixture; the slowest takes some 30.
LIMIT = 300
RUN = "--run"
CONVERT = """
import json, sys, cudnn_convert
for job in json.load(open(sys.argv[1])):
    try:
        cudnn_convert.convert(job["source"], job["out"], format=job["format"], verify=False, **job["options"])
    except cudnn_convert.errors.UnsupportedModelError:
        pass
"""


def cases(wanted):
    """The fixtures with a graph, whose calls do not depend on each other, each with its folder."""
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", "data", "tf1", "1.15.5", "*", "case.json"))):
        with open(path) as stream:
            case = json.load(stream)
        alone = not case.get("graphless") and not case.get("stateful") and "recurrences" in case
        if alone and (not wanted or case["name"] in wanted):
            yield os.path.dirname(path), case


def converted(python, folder, wanted):
    """Convert each fixture to each format that can hold it; the jobs, by fixture."""
    jobs = {}
    for source, case in cases(wanted):
        for form, record in sorted(FORMATS.items()):
            out = os.path.join(folder, case["name"] + "." + form)
            job = {"source": os.path.join(source, case.get("source", "model.ckpt")), "out": out, "format": form,
                   "options": keywords(case["flags"]), "record": os.path.join(out, record),
                   "golden": os.path.join(source, "golden.npz")}
            jobs.setdefault(case["name"], []).append(job)
    plan = os.path.join(folder, "jobs.json")
    with open(plan, "w") as stream:
        json.dump([job for each in jobs.values() for job in each], stream)
    subprocess.check_call([python, "-c", CONVERT, plan], env=dict(os.environ, PYTHONPATH=ROOT))
    return {name: [job for job in each if os.path.isfile(job["record"])] for name, each in jobs.items()}


def run(jobs):
    """Call each artifact of a fixture in every pool. Raises AssertionError for another answer."""
    for job in jobs:
        with open(job["record"]) as stream:
            record = json.load(stream)
        golden = dict(np.load(job["golden"]))
        for intra, inter in POOLS:
            config = tf.ConfigProto(intra_op_parallelism_threads=intra, inter_op_parallelism_threads=inter,
                                    use_per_session_threads=True)
            with tf.Graph().as_default() as graph, tf.Session(graph=graph, config=config) as session:
                load(session, job)
                call_at_once(session, record, golden)


def load(session, job):
    if job["format"] == "savedmodel":
        tf.saved_model.load(session, ["serve"], job["out"])
        return
    graph = tf.GraphDef()
    with open(os.path.join(job["out"], "frozen_graph.pb"), "rb") as stream:
        graph.ParseFromString(stream.read())
    tf.import_graph_def(graph, name="")


def call_at_once(session, record, golden):
    """Call a Session from every thread, with every feed. Raises AssertionError with the first failure."""
    tensors, failures = record["tensors"], []
    dtypes = [recurrence["dtype"] for recurrence in record["recurrences"]]
    bound = BOUNDS[dtypes[0] if dtypes else "float32"]

    def call():
        try:
            for feed in CALLS * sorted({key.split("/")[0] for key in golden}):
                values = {tensors["inputs"][key]: golden[feed + "/" + name]
                          for key, name in record["inputs"].items()}
                answers = session.run(tensors["outputs"], values)
                worst({feed + "/" + record["outputs"][key]: answer for key, answer in answers.items()}, golden, bound)
        except BaseException:
            failures.append(traceback.format_exc())

    callers = [threading.Thread(target=call) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures, failures[0]


def main(python, wanted):
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        jobs = converted(python, folder, wanted)
        for name in sorted(jobs):
            child = [sys.executable, os.path.abspath(__file__), RUN, json.dumps(jobs[name])]
            try:
                code = subprocess.call(child, timeout=LIMIT)
            except subprocess.TimeoutExpired:
                code = "no answer in %d s" % LIMIT
            print(name, ", ".join(job["format"] for job in jobs[name]), "ok" if code == 0 else code, flush=True)
            failed += [name] if code else []
    print("%d fixtures, %d failed" % (len(jobs), len(failed)))
    return 1 if failed else 0


if __name__ == "__main__":
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if sys.argv[1] == RUN:
        run(json.loads(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
