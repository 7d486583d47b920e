"""tf2onnx refuses a frozen graph with a `CudnnRNN` in mode lstm."""

import subprocess
import sys
import tempfile
from pathlib import Path

FROZEN = Path(__file__).parents[2] / "tests/data/tf1/1.15.5/frozen_binary/frozen.pb"


def holds() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        words = ["--graphdef", FROZEN, "--inputs", "x:0", "--outputs", "logits:0"]
        done = subprocess.run(
            [sys.executable, "-m", "tf2onnx.convert", *words, "--output", f"{folder}/model.onnx"],
            check=False,
            capture_output=True,
            text=True,
        )
    print(f"python -m tf2onnx.convert: exit code {done.returncode}")
    print(done.stderr.strip().splitlines()[-1])
    return done.returncode != 0 and "rnn mode other than gru are not supported" in done.stderr


if __name__ == "__main__":
    sys.exit(not holds())
