"""Keras 3 opens no HDF5 file with cuDNN layers: not with its own LSTM in their place, and not as weights."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

DATA = Path(__file__).parents[2] / "tests/data/keras"
WRITERS = ("keras-2.1.6", "keras-2.2.4", "keras-2.3.1", "tf.keras-1.15.5", "tf_keras-2.21.0")
FILE = DATA / "keras-2.2.4/sequential_lstm/model.h5"
INSTEAD = {"CuDNNLSTM": keras.layers.LSTM}


def weights_alone() -> None:
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.LSTM(5), keras.layers.Dense(3)])
    model.load_weights(FILE)


def holds() -> bool:
    found = [
        failed("load_model", lambda: keras.models.load_model(FILE), "Unknown layer: 'CuDNNLSTM'"),
        failed("LSTM.load_weights", weights_alone, "Shape mismatch"),
    ]
    for writer in WRITERS:
        file = DATA / writer / "sequential_lstm/model.h5"
        found.append(
            failed(f"{writer}, custom_objects", lambda file=file: keras.models.load_model(file, INSTEAD))
        )
    return all(found)


def failed(name: str, way: Callable[[], Any], said: str = "") -> bool:
    try:
        way()
    except (TypeError, ValueError) as error:
        print(f"{name}: {' '.join(str(error).split())[:150]}")
        return said in str(error)
    print(f"{name}: no error")
    return False


if __name__ == "__main__":
    sys.exit(not holds())
