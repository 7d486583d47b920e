"""Makes tests/data/keras3_exports/tf.keras-1.15.5/exported: a SavedModel that TensorFlow 1.15 exported.

    PYTHONHASHSEED=0 python scripts/record_tf1_export.py

In an environment of Python 3.7 with `pip install tensorflow==1.15.5 "protobuf<3.21" "numpy<1.19" "h5py<3"`;
no GPU is needed. `tf.keras.experimental.export_saved_model` writes TensorFlow 2's form: objects and functions.
Its functions capture constants beside variables, and say no shapes of their arguments.

The answers are those of LSTM and GRU with the same weights: `load_weights` converts them by Keras' own rule.
Two runs differ in the order of maps that TensorFlow stores as strings.
"""

import json
import os
import shutil
import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_fixtures.writer import CpuLayers, CudnnLayers

WRITER = "tf.keras-" + tf.__version__
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "tests", "data", "keras3_exports", WRITER, "exported")
SIZE, UNITS, LAST = 3, 5, 4
#: Batch and steps of each feed.
FEEDS = ((3, 7), (2, 1))


def build(keras):
    """CuDNNLSTM from states that are fed, and a CuDNNGRU behind it."""
    x = keras.Input((None, SIZE), name="x")
    states = [keras.Input((UNITS,), name=name) for name in ("h0", "c0")]
    h = keras.lstm(UNITS, return_sequences=True, name="lstm")(x, initial_state=states)
    return keras.Model([x] + states, keras.gru(LAST, return_sequences=True, name="y")(h))


def build_for_inference(keras):
    """Build the model in an empty graph."""
    keras.start()
    keras.backend.set_learning_phase(0)
    return build(keras)


def main():
    rng, model = np.random.RandomState(11), build_for_inference(CudnnLayers("tf.keras"))
    for weight in model.weights:
        tf.keras.backend.set_value(weight, rng.uniform(-0.7, 0.7, weight.shape.as_list()).astype(np.float32))
    if os.path.isdir(FOLDER):
        shutil.rmtree(FOLDER)
    saved = os.path.join(FOLDER, "saved_model")
    tf.keras.experimental.export_saved_model(model, saved, serving_only=True)
    in_order(os.path.join(saved, "saved_model.pb"))
    weights = os.path.join(tempfile.mkdtemp(), "weights.h5")
    model.save_weights(weights)
    twin = build_for_inference(CpuLayers("tf.keras"))
    twin.load_weights(weights)
    arrays = {}
    for number, (batch, steps) in enumerate(FEEDS):
        shapes = (batch, steps, SIZE), (batch, UNITS), (batch, UNITS)
        fed = {
            name: rng.uniform(-1, 1, shape).astype(np.float32)
            for name, shape in zip(("x", "h0", "c0"), shapes)
        }
        start = "serving_default/feed%d/" % number
        arrays.update((start + name, value) for name, value in fed.items())
        arrays[start + "out/y"] = twin.predict([fed[name] for name in ("x", "h0", "c0")])
    np.savez_compressed(os.path.join(FOLDER, "golden.npz"), **arrays)
    with open(os.path.join(FOLDER, "case.json"), "w") as stream:
        json.dump(describe(), stream, indent=2)
        stream.write("\n")


def in_order(path):
    """Write a proto again with its maps in order."""
    proto = saved_model_pb2.SavedModel()
    with open(path, "rb") as stream:
        proto.ParseFromString(stream.read())
    with open(path, "wb") as stream:
        stream.write(proto.SerializeToString(deterministic=True))


def describe():
    def recurrence(mode, units, inputs):
        return {
            "mode": mode,
            "units": units,
            "input_size": inputs,
            "layers": 1,
            "directions": 1,
            "backwards": False,
            "masked": False,
            "needed": True,
        }

    signature = {
        "inputs": ["c0", "h0", "x"],
        "outputs": ["y"],
        "fails_on_cpu": "InvalidArgumentError",
        "recurrences": [recurrence("lstm", UNITS, SIZE), recurrence("gru", LAST, UNITS)],
        "lengths": [],
        "per_step": [],
        "zero_past_length": [],
    }
    return {
        "name": "exported",
        "writer": WRITER,
        "tensorflow": tf.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "about": " ".join(build.__doc__.split()),
        "stateful": False,
        "archive": None,
        "signatures": {"serving_default": signature},
    }


if __name__ == "__main__":
    main()
