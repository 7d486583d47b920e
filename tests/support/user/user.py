"""A user's process: TensorFlow 2, ONNX Runtime, OpenVINO, Keras, tf_keras or NumPy, and no cudnn_convert.

It lives on and takes requests from its standard input, a JSON list of jobs a line. Its reply is a line on
what was its standard output at the start: `errors`, what each job raised ("" for nothing), and `seconds` of
CPU. A job is `{artifact, format, golden, inputs, outputs, answers}` and perhaps `signature`; inputs and
outputs map signature keys to `{source, artifact}` tensor names. `states` maps inputs that begin with zeros of
a shape to the outputs that they are next; `custom` names a module of this folder and what a Keras model needs
from it; `safe_mode` false lets code in its file run. `stream` says how a feed is given in chunks: the axis of
steps of `inputs` and `outputs`, the inputs that are `lengths`, and the sizes of `chunks`, which repeat; a
state then begins with its `source` in the golden file, else with zeros for the `rows`. `precision` is that of
OpenVINO, "" for its own choice. Each job's outputs, keyed `feed<n>/<key>`, go to the `.npz` that `answers`
names. A job `{module, call, folder}` calls a function of another module in a folder.
"""

import gc
import importlib
import json
import os
import sys
import time
import traceback
from functools import partial
from pathlib import Path

import numpy as np

sys.modules["cudnn_convert"] = None  # whatever is installed beside us: importing it fails now
sys.path.insert(0, str(Path(__file__).parent))


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

    session = tf.compat.v1.Session(graph=graph)

    def run(feeds):
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


def openvino(path, inputs, outputs, precision):
    """Gives beside the outputs the `layers` that it runs recurrences, loops and branches by."""
    import openvino

    assert "tensorflow" not in sys.modules
    settings = {"INFERENCE_PRECISION_HINT": precision} if precision else {}
    model = openvino.Core().compile_model(path, "CPU", settings)
    taken, given = (
        {name: port for port in ports for name in port.get_names()} for ports in (model.inputs, model.outputs)
    )
    kinds = [node.get_rt_info()["layerType"].astype(str) for node in model.get_runtime_model().get_ops()]
    layers = np.array(sorted({"RNNSeq", "TensorIterator", "If"}.intersection(kinds)), "S")

    def port_of(ports, key, names):
        return ports[key] if key in ports else ports[names["artifact"]]  # of a frozen graph

    def run(feeds):
        fed = {port_of(taken, key, inputs[key]): value for key, value in feeds.items()}
        found = model({port: value.astype(port.element_type.to_dtype()) for port, value in fed.items()})
        answers = {key: np.array(found[port_of(given, key, names)]) for key, names in outputs.items()}
        return answers | {"layers": layers}

    return run


def tflite(path, inputs, outputs):
    import tensorflow as tf

    runner = tf.lite.Interpreter(path).get_signature_runner("serving_default")
    dtypes = {key: told["dtype"] for key, told in runner.get_input_details().items()}

    def run(feeds):
        # TensorFlow Lite computes in float32, and takes nothing else.
        fed = {key: value.astype(dtypes[key]) for key, value in feeds.items()}
        return runner(**fed)

    return run


def keras(path, inputs, outputs, custom, safe_mode):
    import keras

    model = keras.models.load_model(path, custom_objects=custom, safe_mode=safe_mode)
    # On JAX, Keras 3 (3.15) forgets in its predict what stateful layers hold, and keeps it in a plain call.
    ask = model if keras.backend.backend() == "jax" else model.predict_on_batch
    return of_layers(ask, [found.name for found in model.inputs], outputs)


def h5(path, inputs, outputs, custom):
    import tf_keras

    tf_keras.backend.set_floatx("float32")  # as in a process of its own, whatever the last file needed
    model = tf_keras.models.load_model(path, custom_objects=custom)
    answered = of_layers(model.predict_on_batch, model.input_names, outputs)

    def run(feeds):
        # predict makes floats of this type of all floats that it is given
        is_double = any(found.dtype == "float64" for found in model.inputs)
        tf_keras.backend.set_floatx("float64" if is_double else "float32")
        return answered(feeds)

    return run


def of_layers(ask, names, outputs):
    def run(feeds):
        given = [feeds[name] for name in names]
        found = ask(given if len(given) > 1 else given[0])
        found = found if isinstance(found, (list, tuple)) else [found]
        return dict(zip(outputs, found, strict=True))

    return run


def brought(job):
    if "custom" not in job:
        return None
    module, *names = job["custom"]
    return {name: getattr(importlib.import_module(module), name) for name in names}


def storable(value):
    """NumPy's files know no bfloat16."""
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def arrays(path, inputs, outputs, signature):
    return importlib.import_module("numpy_user").opened(path, inputs, outputs, signature)


def begin(golden, feed, zero):
    """What a state begins with: a recorded tensor, or zeros for the rows of the feed."""
    if zero.get("source"):
        depth, _, width = zero["shape"]
        value = golden[f"{feed}/{zero['source']}"]
        value = value.swapaxes(0, 1) if zero["batch_first"] else value
        return value.reshape(depth, -1, width).astype(zero["dtype"])
    if zero["shape"][1] is not None:
        return np.zeros(zero["shape"], zero["dtype"])
    rows = golden[f"{feed}/{zero['rows'][0]}"].shape[zero["rows"][1]]
    return np.zeros([zero["shape"][0], rows, zero["shape"][2]], zero["dtype"])


def run_artifact(job):
    """Opens the artifact, asks it for every feed in a row and stores the answers."""
    signature = job.get("signature") or "serving_default"
    openers = {
        "savedmodel": partial(saved_model, signature=signature),
        "checkpoint": checkpoint,
        "frozen": frozen,
        "onnx": onnx,
        "openvino": partial(openvino, precision=job.get("precision", "f32")),
        "tflite": tflite,
        "npz": partial(arrays, signature=job.get("signature", "")),
        "safetensors": partial(arrays, signature=job.get("signature", "")),
        "keras": partial(keras, custom=brought(job), safe_mode=job.get("safe_mode", True)),
        "h5": partial(h5, custom=brought(job)),
    }
    run = openers[job["format"]](job["artifact"], job["inputs"], job["outputs"])
    golden = np.load(job["golden"])
    answers = {}
    states = job.get("states", {})
    are_whole = "stream" not in job
    state = {key: np.zeros(zero["shape"], zero["dtype"]) for key, zero in states.items() if are_whole}
    for feed in sorted({key.partition("/")[0] for key in golden.files}):
        given = {key: names["source"] for key, names in job["inputs"].items() if key not in states}
        values = {key: golden[f"{feed}/{name}"] for key, name in given.items()}
        if not are_whole:
            begins = {key: begin(golden, feed, zero) for key, zero in states.items()}
            outputs = in_chunks(run, job["stream"], values | begins, states)
            answers.update({f"{feed}/{key}": storable(value) for key, value in outputs.items()})
            continue
        outputs = run(values | state)
        state = {key: outputs[zero["next"]] for key, zero in states.items()}
        answers.update({f"{feed}/{key}": storable(value) for key, value in outputs.items()})
    # Strings as plain arrays: what is pickled is not read again.
    plain = {key: np.asarray(value) for key, value in answers.items()}
    np.savez(job["answers"], **{k: v.astype("S") if v.dtype == object else v for k, v in plain.items()})


def in_chunks(run, stream, given, states):
    """The answers to one feed in chunks, its states carried: joined along the steps, else the last."""
    steps = max(given[key].shape[axis] for key, axis in stream["inputs"].items())
    state = {key: given[key] for key in states}
    begin, answers, sizes = 0, [], list(stream["chunks"])
    while begin < steps:
        end = min(steps, begin + sizes[len(answers) % len(sizes)])
        chunk = dict(given)
        for key, axis in stream["inputs"].items():
            chunk[key] = np.take(given[key], np.arange(begin, end), axis)
        for key in stream["lengths"]:
            chunk[key] = np.clip(given[key] - begin, 0, end - begin)
        answers.append(run(chunk | state))
        state = {key: answers[-1][zero["next"]] for key, zero in states.items()}
        begin = end
    joined = {
        key: np.concatenate([answer[key] for answer in answers], axis)
        for key, axis in stream["outputs"].items()
    }
    return answers[-1] | joined


def call_function(job):
    """Calls a function of a module of this folder where it wants to stand."""
    function = getattr(importlib.import_module(job["module"]), job["call"])
    before = Path.cwd()
    os.chdir(job["folder"])
    try:
        function()
    finally:
        os.chdir(before)


def error_of(job):
    try:
        (call_function if "call" in job else run_artifact)(job)
    except Exception as error:  # noqa: BLE001 - the test that asked fails with it
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


def main():
    # What TensorFlow prints goes to stderr; only answers go to the descriptor that was given.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        begin = time.process_time()
        errors = [error_of(job) for job in json.loads(line)]
        gc.collect()  # models hold their graphs in circles
        gc.freeze()  # what is left are libraries, which need no second look
        assert sys.modules["cudnn_convert"] is None
        replies.write(json.dumps({"errors": errors, "seconds": time.process_time() - begin}) + "\n")


if __name__ == "__main__":
    main()
