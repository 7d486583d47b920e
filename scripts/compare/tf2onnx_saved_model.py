"""tf2onnx ends without an error on a SavedModel with `CudnnRNNV3`, and leaves that op in its model.

ONNX has no such op: ONNX Runtime does not open the file.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
import onnxruntime

EXPORT = Path(__file__).parents[2] / "tests/data/keras3_exports/keras-3.15.1/lstm/saved_model"


def holds() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        words = ["--saved-model", EXPORT, "--output", file, "--opset", "17"]
        done = subprocess.run(
            [sys.executable, "-m", "tf2onnx.convert", *words], check=False, capture_output=True, text=True
        )
        print(f"python -m tf2onnx.convert: exit code {done.returncode}")
        left = [node.op_type for node in onnx.load(file).graph.node if node.op_type.startswith("Cudnn")]
        print("ops that ONNX does not have:", *left)
        try:
            onnxruntime.InferenceSession(file)
        except Exception as error:  # noqa: BLE001 - onnxruntime has a class for each failure
            print("onnxruntime:", str(error)[:70])
            return done.returncode == 0 and left == ["CudnnRNNV3"]
    return False


if __name__ == "__main__":
    sys.exit(not holds())
