"""Weights of Keras models without a graph: save_weights(..., save_format="tf"), keys named by objects.

The answers are those of each recurrence alone, by Keras's own CPU layers with the weights that Keras's own rule
makes of a CuDNN layer's.
"""
import json
import os

import numpy as np
import tensorflow as tf

from tf1_fixtures.keras_layers import CudnnKeras, converted, keys
from tf1_fixtures.record import load
from tf1_fixtures.weights import random_value, seeded

SIZES = ((3, 7), (2, 12))  # (batch, steps) of the recorded feeds


def keras_weights_lstm(keras):
    """A Sequential of CuDNNLSTM and Dense."""
    layer = keras.lstm(5, return_sequences=True, input_shape=(None, 4))
    model = tf.keras.Sequential([layer, tf.keras.layers.Dense(3)])
    return model, {"layer_with_weights_0": [layer]}


def keras_weights_gru_bi(keras):
    """A Sequential of Bidirectional(CuDNNGRU), an LSTM that was a CPU layer all along, and Dense."""
    wrapper = keras.bidirectional(keras.gru(5, return_sequences=True), input_shape=(None, 4))
    model = tf.keras.Sequential([wrapper, tf.keras.layers.LSTM(3), tf.keras.layers.Dense(2)])
    return model, {"layer_with_weights_0": keras.built}


def keras_weights_functional(keras):
    """A functional model of CuDNNLSTM, Bidirectional(CuDNNLSTM), CuDNNGRU and Dense."""
    inputs = tf.keras.layers.Input((None, 4))
    first = keras.lstm(5, return_sequences=True)
    wrapper = keras.bidirectional(keras.lstm(3, return_sequences=True))
    last = keras.gru(4)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(last(wrapper(first(inputs)))))
    layers = [[first], [wrapper.forward_layer, wrapper.backward_layer], [last]]
    return model, {"layer_with_weights_%d" % number: part for number, part in enumerate(layers)}


def record_weights(build, folder):
    if not os.path.isdir(folder):
        os.makedirs(folder)
    prefix = os.path.join(folder, "model.ckpt")
    # Only what runs is placed: the recurrences themselves have no kernel here.
    config = tf.ConfigProto(graph_options=tf.GraphOptions(place_pruned_graph=True))
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        model, parts = build(CudnnKeras())
        values = {}
        for variable in tf.global_variables():
            key, dtype = variable.op.name, variable.dtype.base_dtype.as_numpy_dtype
            values[key] = random_value(build.__name__ + key, variable.shape, dtype)
            variable.load(values[key], session)
        tf.keras.backend.set_session(session)
        model.save_weights(prefix, save_format="tf")
        stored = {name: [[values[key] for key in keys(layer)] for layer in part] for name, part in parts.items()}
    tf.train.update_checkpoint_state(folder, "model.ckpt")
    golden = {}
    for name, weights in stored.items():
        start = "/%s/" % name if len(stored) > 1 else "/"
        for number, size in enumerate(SIZES):
            feed = "feed%d" % number
            found = answers(weights, size, seeded(build.__name__ + name + feed))
            golden.update((feed + start + key, value) for key, value in found.items())
    np.savez_compressed(os.path.join(folder, "golden.npz"), **golden)
    describe(build, stored, folder)


def answers(weights, size, random):
    """Inputs, initial states, outputs and final states of one recurrence; a second set of weights is backward."""
    (batch, steps), (kernel, recurrent_kernel, _) = size, weights[0]
    units, ways, mode = len(recurrent_kernel), len(weights), mode_of(weights)
    names = ("h", "c") if mode == "lstm" else ("h",)
    fed = {"initial_" + name: random.standard_normal((ways, batch, units)) for name in names}
    fed["inputs"] = random.standard_normal((batch, steps, len(kernel)))
    fed = {key: value.astype(np.float32) for key, value in fed.items()}
    with tf.Graph().as_default(), tf.Session() as session:
        found = call(mode, units, weights, fed, session)
    states = {"state_" + name: np.stack(found[1 + k::len(names)]) for k, name in enumerate(names)}
    return dict(fed, outputs=found[0], **states)


def call(mode, units, weights, fed, session):
    options = dict(recurrent_activation="sigmoid", return_sequences=True, return_state=True)
    if mode == "lstm":
        layer = tf.keras.layers.LSTM(units, **options)
    else:
        layer = tf.keras.layers.GRU(units, reset_after=True, **options)
    whole = tf.keras.layers.Bidirectional(layer) if len(weights) > 1 else layer
    ways = [whole.forward_layer, whole.backward_layer] if len(weights) > 1 else [layer]
    names = ["initial_h", "initial_c"] if mode == "lstm" else ["initial_h"]
    states = [tf.constant(fed[name][way]) for way in range(len(ways)) for name in names]
    answer = whole(tf.constant(fed["inputs"]), initial_state=states)
    for way, arrays in zip(ways, weights):
        load(session, {v.op.name: v for v in way.weights}, dict(zip(keys(way), converted(way, arrays))))
    return session.run(answer)


def mode_of(weights):
    _, recurrent_kernel, bias = weights[0]
    return {8: "lstm", 6: "gru"}[len(bias) // len(recurrent_kernel)]


def describe(build, stored, folder):
    recurrences = [
        {
            "name": name, "mode": mode_of(weights), "layers": 1, "directions": len(weights),
            "units": len(weights[0][1]), "input_size": len(weights[0][0]),
        }
        for name, weights in sorted(stored.items())
    ]
    description = {
        "name": build.__name__, "tensorflow": tf.__version__, "about": build.__doc__, "graphless": True,
        "flags": [], "recurrences": recurrences,
    }
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")


CASES_1_15 = (keras_weights_lstm, keras_weights_gru_bi, keras_weights_functional)
