"""cudnn-convert on the very files that the other scripts here give to other tools, in ONNX Runtime.

The judge is what TensorFlow 1.15 or Keras recorded on a CPU, not the tool's own proof.
"""

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import onnxruntime

import cudnn_convert

ROOT = Path(__file__).parents[2]
#: Of each file: the feed that its recorded answers have, there its inputs by the artifact's keys, its output.
FILES = {
    "tests/data/keras3_exports/keras-3.15.1/lstm/saved_model": (
        "serving_default/feed0/",
        {"x": "x"},
        "out/output_0",
    ),
    "tests/data/tf1/1.15.5/frozen_binary/frozen.pb": ("feed0/", {"x": "x:0"}, "logits:0"),
    "tests/data/tf1/1.15.5/gru_bi/model.ckpt": ("feed0/", {"x": "x:0", "h0": "h0:0"}, "rnn_out:0"),
    "models/crf_tagger/model.ckpt": ("feed0/", {"ids": "ids:0"}, "logits:0"),
    "tests/data/tf1/1.15.5/build_prefix/model.ckpt": ("feed0/", {"x": "x:0"}, "rnn_out:0"),
    "tests/data/keras/keras-2.2.4/sequential_lstm/model.h5": (
        "feed0/",
        {"cu_dnnlstm_1_input": "cu_dnnlstm_1_input"},
        "dense_1",
    ),
}


def holds() -> bool:
    errors = [error(name) for name in FILES]
    return max(errors) < 1e-6


def error(name: str) -> float:
    feed, inputs, output = FILES[name]
    with np.load((ROOT / name).parent / "golden.npz") as golden:
        fed = {key: golden[feed + place] for key, place in inputs.items()}
        expected = golden[feed + output]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        cudnn_convert.convert(ROOT / name, file, format="onnx")
        key = output.removeprefix("out/").removesuffix(":0")
        (found,) = onnxruntime.InferenceSession(file).run([key], fed)
    largest = float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))
    print(f"{name}: {largest:.1e} of the largest value from the recorded answers")
    return largest


if __name__ == "__main__":
    sys.exit(not holds())
