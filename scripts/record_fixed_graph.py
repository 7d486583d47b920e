"""Makes tests/data/streams/fixed_graph: a frozen graph of TensorFlow 1.15 for 100 steps, and what it answers.

    python scripts/record_fixed_graph.py

In an environment of Python 3.7 with `pip install tensorflow==1.15.5 "protobuf<3.21" "numpy<1.19"`; no GPU is
needed. 100 stands in the placeholder and in two shapes; features and units are 22, and a product of steps and
rows is a shape too. The answers are those of the same graph with cuDNN's equations step by step
(https://docs.nvidia.com/deeplearning/cudnn: LSTM), gates in the order i, f, c, o.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_cudnn_rnn_ops

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "streams" / "fixed_graph"
STEPS, SIZE, BANDS, ROWS = 100, 22, 9, 3


def draw():
    rng = np.random.RandomState(17)
    shapes = {
        "front": (SIZE, SIZE), "kernel": (4, SIZE, SIZE), "recurrent": (4, SIZE, SIZE), "bias": (4, SIZE),
        "recurrent_bias": (4, SIZE), "out": (SIZE, BANDS),
    }  # fmt: skip
    return {name: rng.uniform(-0.5, 0.5, shapes[name]).astype(np.float32) for name in sorted(shapes)}


def step_by_step(x, values):
    """The recurrence, `[steps, rows, units]`."""

    def step(state, now):
        h, c = state
        i, f, g, o = [
            tf.matmul(now, values["kernel"][k], transpose_b=True)
            + tf.matmul(h, values["recurrent"][k], transpose_b=True)
            + values["bias"][k]
            + values["recurrent_bias"][k]
            for k in range(4)
        ]
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return tf.sigmoid(o) * tf.tanh(c), c

    zeros = tf.zeros([tf.shape(x)[1], SIZE])
    return tf.scan(step, x, (zeros, zeros))[0]


def fused(x, values):
    """The recurrence as cuDNN's op."""
    names = ("kernel", "recurrent", "bias", "recurrent_bias")
    blob = np.concatenate([values[name].ravel() for name in names])
    zeros = tf.zeros([1, tf.shape(x)[1], SIZE])
    return gen_cudnn_rnn_ops.cudnn_rnn(
        x, zeros, zeros, tf.constant(blob), rnn_mode="lstm", is_training=False, name="lstm/CudnnRNN"
    )[0]


def build(recurrence, values):
    features = tf.placeholder(tf.float32, (None, STEPS, SIZE), "features")
    rows = tf.shape(features)[0]
    front = tf.nn.relu(tf.matmul(tf.reshape(features, [-1, SIZE]), tf.constant(values["front"])))
    front = tf.reshape(front, [rows, STEPS, SIZE])
    y = tf.transpose(recurrence(tf.transpose(front, [1, 0, 2]), values), [1, 0, 2])
    bands = tf.matmul(tf.reshape(y, [STEPS * rows, SIZE]), tf.constant(values["out"]))
    return tf.reshape(tf.sigmoid(bands), [-1, STEPS, BANDS], name="gains")


def main():
    values = draw()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default() as graph:
        build(fused, values)
        (FOLDER / "frozen.pb").write_bytes(graph.as_graph_def().SerializeToString(deterministic=True))
    features = np.random.RandomState(5).uniform(-1.5, 1.5, (ROWS, STEPS, SIZE)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        answers = session.run(build(step_by_step, values), {"features:0": features})
    np.savez_compressed(str(FOLDER / "golden.npz"), **{"in/features": features, "out/0": answers})


if __name__ == "__main__":
    main()
