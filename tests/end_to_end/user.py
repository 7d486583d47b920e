"""A user's process: plain TensorFlow 2 or ONNX Runtime, and no cudnn_convert.

Reads jobs, a JSON list of `{artifact, format, golden, inputs, outputs, answers}` and perhaps `signature`,
from the file named first; inputs and outputs map signature keys to `{source, artifact}` tensor names. Writes
each job's outputs, keyed `feed<n>/<key>`, to the `.npz` that `answers` names.
"""

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np

sys.modules["cudnn_convert"] = None  # whatever is installed beside us: importing it fails now


def saved_model(path, inputs, outputs, signature):
    import tensorflow as tf

    loaded = tf.saved_model.load(path)
    function = loaded.signatures[signature]
    dtypes = {key: spec.dtype for key, spec in function.structured_input_signature[1].items()}

    def run(feeds):
        found = function(**{key: tf.constant(value, dtypes[key]) for key, value in feeds.items()})
        return {key: value.numpy() for key, value in found.items()}

    run.owner = loaded
    return run


def checkpoint(path, inputs, outputs):
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        saver = tf.compat.v1.train.import_meta_graph(path + ".meta")
        session = tf.compat.v1.Session()
        saver.restore(session, path)

    def run(feeds):
        fed = {inputs[key]["artifact"]: value for key, value in feeds.items()}
        values = session.run([names["artifact"] for names in outputs.values()], fed)
        return dict(zip(outputs, values, strict=True))

    return run


def frozen(path, inputs, outputs):
    import tensorflow as tf

    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(Path(path).read_bytes())
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")

    def run(feeds):
        with tf.compat.v1.Session(graph=graph) as session:
            fed = {inputs[key]["artifact"]: value for key, value in feeds.items()}
            values = session.run([names["artifact"] for names in outputs.values()], fed)
        return dict(zip(outputs, values, strict=True))

    return run


def onnx(path, inputs, outputs):
    import onnxruntime

    assert "tensorflow" not in sys.modules
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    kinds = {"tensor(int32)": np.int32, "tensor(int64)": np.int64}
    dtypes = {found.name: kinds.get(found.type) for found in session.get_inputs()}

    def run(feeds):
        fed = {key: value.astype(dtypes[key] or value.dtype) for key, value in feeds.items()}
        names = [found.name for found in session.get_outputs()]
        return dict(zip(names, session.run(names, fed), strict=True))

    return run


def main():
    for job in json.loads(Path(sys.argv[1]).read_text()):
        signature = job.get("signature") or "serving_default"
        named = partial(saved_model, signature=signature)
        openers = {"savedmodel": named, "checkpoint": checkpoint, "frozen": frozen, "onnx": onnx}
        opened = openers[job["format"]]
        run = opened(job["artifact"], job["inputs"], job["outputs"])
        golden = np.load(job["golden"])
        answers = {}
        for feed in sorted({key.partition("/")[0] for key in golden.files}):
            fed = {key: golden[f"{feed}/{names['source']}"] for key, names in job["inputs"].items()}
            answers.update({f"{feed}/{key}": value for key, value in run(fed).items()})
        np.savez(job["answers"], **answers)


main()
