"""TensorFlow's own `import_meta_graph` cannot import the graph of a cuDNN layer's checkpoint."""

import sys
from pathlib import Path

import tensorflow as tf

META = Path(__file__).parents[2] / "models/crf_tagger/model.ckpt.meta"


def holds() -> bool:
    try:
        with tf.Graph().as_default():
            tf.compat.v1.train.import_meta_graph(str(META))
    except KeyError as error:
        print("tf.compat.v1.train.import_meta_graph:", error)
        return "opaque_kernel_saveable' refers to an Operation not in the graph" in str(error)
    return False


if __name__ == "__main__":
    sys.exit(not holds())
