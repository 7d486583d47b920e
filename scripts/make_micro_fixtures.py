"""Makes tests/data/micro: small trained networks as each kind of source, and what their frameworks answer.

    python scripts/make_micro_fixtures.py --tensorflow1 PYTHON --torch PYTHON [NETWORK ...]

run in the project's own environment, without a GPU. The first PYTHON has Python 3.7 with tensorflow==1.15.5,
protobuf<3.21, numpy<1.19, h5py<3. The second has Python 3.11 with torch==2.14.1 and numpy==2.4.6. A network
takes some twenty seconds. Every run on one machine writes the same bytes. Another processor may round the
training differently.

Keras 3 trains all networks but one with its plain layers, and its CPU gives the answers. Then the weights go
into the files that a GPU's layers would have left. Each file must give the same answers, in the framework
that wrote it, before it is kept. PyTorch trains the other network. The rows are those of
tests/support/micro_data.py, and tests/support/micro_fixtures.py lists the files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

SCRIPTS = Path(__file__).resolve().parent
TESTS = SCRIPTS.parent / "tests"  # whose support makes the rows
sys.path.insert(0, str(TESTS))
TORCH = "keyword_torch"
#: The files of each network that Keras trains.
FILES = {
    "keyword_lstm": ("checkpoint",),
    "keyword_stack": ("h5",),
    "motion_bidirectional": ("h5", "saved_model"),
    "motion_gru": ("h5",),
    "motion_stream": ("h5",),
    "tokens_lstm": ("archive", "frozen"),
}


def make(name: str, tensorflow1: str) -> None:
    """Train a network, and write its files, its answers and its description."""
    import keras
    import tensorflow as tf
    import tf_keras
    from micro_fixtures import answers, keras_files, networks
    from support import micro_data

    network = networks.NETWORKS[name]
    model = networks.train(name)
    rows = network.make(micro_data.TEST_ROWS, micro_data.TEST_SEED)
    folder = answers.make_folder(name)
    if name == "motion_stream":
        scores, kept, inputs = answer_stream(model, rows.inputs)
    else:
        inputs = [rows.inputs]
        (scores,) = keras_files.predict(model, inputs)
        kept = {"outputs": scores[: answers.ROWS]}
    writers: dict[str, Callable[..., None]] = {
        "h5": keras_files.write_h5,
        "archive": keras_files.write_archive,
        "saved_model": keras_files.write_saved_model,
    }
    for kind in FILES[name]:
        if kind in writers:
            writers[kind](name, model, inputs, folder)
        else:
            trained = name_weights(model) | {"inputs": rows.inputs, "outputs": scores}
            write_in_tensorflow1(kind, trained, folder, tensorflow1)
    answers.write(
        folder,
        network.build.__doc__ or "",
        scores,
        rows.labels,
        kept,
        keras=keras.__version__,
        tensorflow=tf.__version__,
        tf_keras=tf_keras.__version__,
    )


def answer_stream(
    model: Any, inputs: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], list[np.ndarray]]:
    """The scores after the last step, the arrays to keep, and inputs of one call.

    `steps` has the scores of each step of the first rows. `fed_h` and `fed_c` are states as they come up: row
    r's before step r modulo the number of steps, near enough in float16.
    """
    from micro_fixtures import answers

    rows, steps, _ = inputs.shape
    states = [np.zeros([rows, 16], np.float32)] * 2
    fed, scores = [np.zeros([rows, 16], np.float16) for _ in states], []
    for step in range(steps):
        for kept, state in zip(fed, states, strict=True):
            kept[step::steps] = state[step::steps]
        found, *states = (
            np.asarray(answer) for answer in model.predict_on_batch([inputs[:, step : step + 1], *states])
        )
        scores.append(found)
    call = np.stack([row[number % steps] for number, row in enumerate(inputs)])[:, None]
    kept_arrays = {
        "outputs": scores[-1][: answers.ROWS],
        "state_h": states[0][: answers.ROWS],
        "state_c": states[1][: answers.ROWS],
        "steps": np.stack(scores, axis=1)[: answers.WHOLE_ROWS],
        "fed_h": fed[0],
        "fed_c": fed[1],
    }
    return scores[-1], kept_arrays, [call, *(state.astype(np.float32) for state in fed)]


def name_weights(model: Any) -> dict[str, np.ndarray]:
    """The weights of a network of one recurrence by the names that micro_fixtures/tensorflow1.py knows."""
    names = ["embedding", "kernel", "recurrent", "bias", "dense", "dense_bias"]
    weights = model.get_weights()
    return dict(zip(names[-len(weights) :], weights, strict=True))


def write_in_tensorflow1(kind: str, trained: dict[str, np.ndarray], folder: Path, python: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "trained.npz"
        np.savez(path, **trained)
        words = [python, "-m", "micro_fixtures.tensorflow1", kind, str(path), str(folder)]
        # TensorFlow 2 sets the variable in its process, and TensorFlow 1.15 reads it (both: `tf2.py`)
        environment = {key: value for key, value in os.environ.items() if key != "TF2_BEHAVIOR"}
        subprocess.run(words, cwd=SCRIPTS, env=environment, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=f"one of {', '.join([*FILES, TORCH])}")
    parser.add_argument(
        "--tensorflow1", metavar="PYTHON", required=True, help="a Python with TensorFlow 1.15.5"
    )
    parser.add_argument("--torch", metavar="PYTHON", required=True, help="a Python with PyTorch")
    flags = parser.parse_args()
    for name in flags.names or [*FILES, TORCH]:
        if name == TORCH:
            words = [flags.torch, "-m", "micro_fixtures.torch_weights"]
            subprocess.run(words, cwd=SCRIPTS, env={**os.environ, "PYTHONPATH": str(TESTS)}, check=True)
            continue
        # each in a process of its own, because TensorFlow numbers what it names and goes on counting
        process = get_context("fork").Process(target=make, args=(name, flags.tensorflow1))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{name} failed, see above")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # what Python keeps in sets is saved in the order of hashes
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    main()
