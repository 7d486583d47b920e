"""Makes tests/data/tf2/mirrored: weights as training under tf.distribute.MirroredStrategy leaves them.

    python scripts/make_mirrored_weights.py

run in the project's own environment, with two logical CPUs for the two devices of the strategy. Each variable
has a copy on each, and a file the first alone: `weights` is what Keras' save_weights writes, `training-1` is
tf.train.Checkpoint's with an optimizer. golden.npz has the answers of a plain LSTM that loads the weights of
the CuDNNLSTM by Keras' own rule.
"""

import os
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
import tf_keras
from tf_keras.src.layers.rnn.cudnn_lstm import CuDNNLSTM

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "tf2" / "mirrored"
UNITS, INPUTS = 5, 4


def model(layer):
    """Steps in, scores out; and the outputs and states of the recurrence for the answers."""
    x = tf_keras.Input([None, INPUTS])
    y, *states = layer(x)
    scores = tf_keras.layers.Dense(2, name="head")(y)
    return tf_keras.Model(x, scores), tf_keras.Model(x, [y, *states])


def main():
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    FOLDER.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        whole, _ = model(CuDNNLSTM(UNITS, return_sequences=True, return_state=True, name="encoder"))
        whole.set_weights(
            [random.uniform(-0.7, 0.7, w.shape).astype(np.float32) for w in whole.get_weights()]
        )
        optimizer = tf_keras.optimizers.Adam()
        optimizer.build(whole.trainable_variables)
    assert type(whole.weights[0]).__name__ == "MirroredVariable"
    whole.save_weights(str(FOLDER / "weights"), save_format="tf")
    tf.train.Checkpoint(model=whole, optimizer=optimizer).save(str(FOLDER / "training"))
    (FOLDER / "checkpoint").unlink()  # names the last of the two, which are given by their names
    plain = tf_keras.layers.LSTM(UNITS, return_sequences=True, return_state=True, name="encoder")
    twin, answering = model(plain)
    with tempfile.TemporaryDirectory() as folder:
        whole.save_weights(f"{folder}/weights.h5")
        twin.load_weights(f"{folder}/weights.h5")
    found = {}
    for number, (batch, steps) in enumerate([(3, 7), (2, 12)]):
        x = random.standard_normal([batch, steps, INPUTS]).astype(np.float32)
        y, h, c = (value.numpy() for value in answering(x))
        arrays = {"inputs": x, "outputs": y, "state_h": h[None], "state_c": c[None]}
        found |= {f"feed{number}/{name}": value for name, value in arrays.items()}
    np.savez_compressed(FOLDER / "golden.npz", **found)


if __name__ == "__main__":
    main()
