"""TensorFlow Lite's converter refuses a SavedModel that Keras 3 exported on a machine with a GPU.

With `SELECT_TF_OPS` too: cuDNN's ops are not among them.
"""

import sys
from pathlib import Path

import tensorflow as tf

EXPORT = Path(__file__).parents[2] / "tests/data/keras3_exports/keras-3.15.1/lstm/saved_model"


def holds() -> bool:
    return all(refused(flex) for flex in (False, True))


def refused(flex: bool) -> bool:
    converter = tf.lite.TFLiteConverter.from_saved_model(str(EXPORT))
    ops = tf.lite.OpsSet
    converter.target_spec.supported_ops = [ops.TFLITE_BUILTINS, *([ops.SELECT_TF_OPS] if flex else [])]
    what = "TFLITE_BUILTINS, SELECT_TF_OPS" if flex else "TFLITE_BUILTINS"
    try:
        converter.convert()
    except Exception as error:  # noqa: BLE001 - the converter's own class is no public name
        print(f"{what}: {type(error).__name__}: {str(error).splitlines()[0][-80:]}")
        return "CudnnRNNV3" in str(error)
    print(f"{what}: converted")
    return False


if __name__ == "__main__":
    sys.exit(not holds())
