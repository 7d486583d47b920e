"""TensorFlow on a CPU loads what Keras 3 exported on a machine with a GPU, and cannot run it."""

import sys
from pathlib import Path

import tensorflow as tf

EXPORT = Path(__file__).parents[2] / "tests/data/keras3_exports/keras-3.15.1/lstm/saved_model"


def holds() -> bool:
    signature = tf.saved_model.load(str(EXPORT)).signatures["serving_default"]
    print("tf.saved_model.load: no error")
    try:
        signature(x=tf.zeros([2, 4, 3]))
    except tf.errors.InvalidArgumentError as error:
        print("called:", error.message.splitlines()[0])
        return "No OpKernel was registered to support Op 'CudnnRNNV3'" in error.message
    return False


if __name__ == "__main__":
    sys.exit(not holds())
