"""A user who reads a sequence in chunks from where the artifact itself begins.

`job.json` has `format`, `artifact`, `steps` (the axis of steps by input), `states` (each with its key, the
next one, and perhaps the output or the value to begin with), `outputs`, and `chunks`. `feeds.npz` has the
inputs of the source by key; the outputs, joined along their steps, go to `answers.npz`: of those without
steps what the last chunk gave.
"""

import json
from pathlib import Path

import numpy as np


def signatures_of(folder):
    import tensorflow as tf

    loaded = tf.saved_model.load(str(folder))

    def of(name):
        function = loaded.signatures[name]
        dtypes = {key: spec.dtype for key, spec in function.structured_input_signature[1].items()}

        def run(feeds):
            answers = function(**{key: tf.constant(feeds[key], dtype) for key, dtype in dtypes.items()})
            return {key: value.numpy() for key, value in answers.items()}

        run.owner = loaded
        return run

    return {name: of(name) for name in loaded.signatures}


def models_of(path):
    import onnxruntime

    def of(file):
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_outputs()]

        def run(feeds):
            fed = {each.name: feeds[each.name] for each in session.get_inputs()}
            return dict(zip(names, session.run(names, fed), strict=True))

        return run

    return {file.stem: of(file) for file in path.glob("*.onnx")}


def interpreters_of(path):
    import tensorflow as tf

    def of(file):
        runner = tf.lite.Interpreter(str(file)).get_signature_runner("serving_default")
        details = runner.get_input_details()
        return lambda feeds: runner(
            **{key: feeds[key].astype(told["dtype"]) for key, told in details.items()}
        )

    return {file.stem: of(file) for file in path.glob("*.tflite")}


def frozen_of(path, job):
    import tensorflow as tf

    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString((path / "frozen_graph.pb").read_bytes())
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")
    session = tf.compat.v1.Session(graph=graph)

    def of(inputs, outputs):
        def run(feeds):
            fed = {name: feeds[key] for key, name in inputs.items() if name.partition(":")[0] in names}
            return dict(zip(outputs, session.run([*outputs.values()], fed), strict=True))

        names = {op.name for op in graph.get_operations()}
        return run

    return {name: of(*ends) for name, ends in job["tensors"].items()}


def run():
    job = json.loads(Path("job.json").read_text())
    path = Path(job["artifact"])
    openers = {
        "savedmodel": signatures_of,
        "onnx": models_of,
        "tflite": interpreters_of,
        "frozen": lambda path: frozen_of(path, job),
    }
    parts = openers[job["format"]](path)
    step = parts["stream"] if "stream" in parts else parts["model"]
    feeds = dict(np.load("feeds.npz"))
    steps = max(feeds[key].shape[axis] for key, axis in job["steps"].items())
    if "encode" in parts:
        feeds |= parts["encode"](feeds)
    begin, answers, sizes, states = 0, [], job["chunks"], None
    while begin < steps:
        end = min(steps, begin + sizes[len(answers) % len(sizes)])
        chunk = dict(feeds)
        for key, axis in job["steps"].items():
            chunk[key] = np.take(feeds[key], np.arange(begin, end), axis)
        if states is None:
            states = begin_with(job, parts, step, chunk)
        answers.append(step(chunk | states))
        states = {each["key"]: answers[-1][each["next_key"]] for each in job["states"]}
        begin = end
    joined = dict(answers[-1])  # what has no steps holds after the last one
    joined |= {
        key: np.concatenate([answer[key] for answer in answers], axis) for key, axis in job["outputs"].items()
    }
    np.savez("answers.npz", **joined)


def begin_with(job, parts, step, chunk):
    """The states to begin with: of the signature or file `begin`, of outputs and metadata, or zeros."""
    if "begin" in parts:
        return parts["begin"](chunk)
    zeros = {
        each["key"]: np.zeros([each["depth"], job["rows"], each["width"]], np.float32)
        for each in job["states"]
    }
    if not job["states"][0].get("begin_key"):
        return zeros
    answers = step(chunk | zeros)
    states = {each["key"]: answers[each["begin_key"]] for each in job["states"]}
    for each in job["states"]:  # the metadata say the same
        value = np.array(each["begin_value"], np.float32)
        assert np.array_equal(states[each["key"]], np.broadcast_to(value, states[each["key"]].shape))
    return states
