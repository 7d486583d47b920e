"""A user's process: plain TensorFlow 2, ONNX Runtime, Keras, tf_keras or NumPy, and no cudnn_convert.

Reads jobs, a JSON list of `{artifact, format, golden, inputs, outputs, answers}` and perhaps `signature`,
from the file named first; inputs and outputs map signature keys to `{source, artifact}` tensor names.
`states` maps inputs that begin with zeros of a shape to the outputs that they are next; `custom` names a
module of this folder and what a Keras model needs from it; `safe_mode` false lets code in its file run.
Writes each job's outputs, keyed `feed<n>/<key>`, to the `.npz` that `answers` names.
"""

import importlib
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
    sys.path.insert(0, str(Path(__file__).parent))
    module, *names = job["custom"]
    return {name: getattr(importlib.import_module(module), name) for name in names}


def storable(value):
    """NumPy's files know no bfloat16."""
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def arrays(path, inputs, outputs, signature):
    sys.path.insert(0, str(Path(__file__).parent))
    return importlib.import_module("numpy_user").opened(path, inputs, outputs, signature)


def main():
    for job in json.loads(Path(sys.argv[1]).read_text()):
        signature = job.get("signature") or "serving_default"
        named = partial(saved_model, signature=signature)
        openers = {"savedmodel": named, "checkpoint": checkpoint, "frozen": frozen, "onnx": onnx}
        openers["tflite"] = tflite
        openers |= dict.fromkeys(("npz", "safetensors"), partial(arrays, signature=job.get("signature", "")))
        openers["keras"] = partial(keras, custom=brought(job), safe_mode=job.get("safe_mode", True))
        openers["h5"] = partial(h5, custom=brought(job))
        opened = openers[job["format"]]
        run = opened(job["artifact"], job["inputs"], job["outputs"])
        golden = np.load(job["golden"])
        answers = {}
        states = job.get("states", {})
        held = {key: np.zeros(state["shape"], state["dtype"]) for key, state in states.items()}
        for feed in sorted({key.partition("/")[0] for key in golden.files}):
            given = {key: names["source"] for key, names in job["inputs"].items() if key not in held}
            found = run({key: golden[f"{feed}/{name}"] for key, name in given.items()} | held)
            held = {key: found[state["next"]] for key, state in states.items()}
            answers.update({f"{feed}/{key}": storable(value) for key, value in found.items()})
        np.savez(job["answers"], **answers)


main()
