"""Makes tests/data/keras3_exports/<writer>/<case>: SavedModels that only a machine with a GPU can run.

    python scripts/make_keras3_exports.py PACKAGE [CASE ...]

PACKAGE is keras or tf_keras: who writes. Run it once per environment; no GPU is needed. Each is a fresh
`python -m venv`, and in it `pip install` of:

| writer          | Python | PACKAGE  | and                                              |
|-----------------|--------|----------|--------------------------------------------------|
| keras-3.3.3     | 3.10   | keras    | keras==3.3.3 tensorflow==2.16.2                  |
| keras-3.8.0     | 3.11   | keras    | keras==3.8.0 tensorflow==2.18.1                  |
| keras-3.12.4    | 3.12   | keras    | keras==3.12.4 tensorflow==2.20.0                 |
| keras-3.15.1    | 3.11   | keras    | nothing of this: the project's own environment   |
| tf_keras-2.21.0 | 3.11   | tf_keras | nothing of this: the project's own environment   |

Not tensorflow-cpu: Keras orders a GRU's gates for cuDNN only where TensorFlow was built with CUDA.

Where Keras 3 sees a GPU while it traces, it puts CudnnRNNV3 nodes into the graph and nothing for a CPU
beside them. Here only its question "is there a GPU?" is answered with yes (gpu.py); nothing of cuDNN runs,
and what Keras writes is what it writes on such a machine. The same model, built and exported without that
answer, gives golden.npz. tf_keras' CuDNN layers need no answer; LSTM and GRU with their weights speak for
them. The raw ops' answers are float64 NumPy's (raw_reference.py).

Before a fixture is written, each signature is seen to reach the nodes that the case names, and to fail on a
CPU (`fails_on_cpu`, the error's type) where it reaches any. And the path that Keras takes on a GPU is seen to
give the same answers, with the op stood in for by its equations (stand_in.py).

golden.npz: `<signature>/feed<n>/<input>` and `<signature>/feed<n>/out/<output>`; `call<n>` where the model is
stateful and the calls come in a row on one loaded model. bfloat16 is stored as float32. Every run writes the
same bytes: fingerprint.pb's `uuid` and a .keras file's dates are fixed afterwards, tf_keras' uuids count.
"""

from __future__ import annotations

import importlib
import os
import sys
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from keras3_exports import (
    cases_layers,
    cases_masked,
    cases_raw,
    cases_tf_keras,
    cases_types,
    cases_wrappers,
    record,
    record_tf_keras,
)

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "data" / "keras3_exports"
MAIN = (*cases_layers.MAIN, *cases_masked.MAIN, cases_wrappers.signatures)
#: What each writer makes; the newest makes all.
CASES = {
    "keras-3.3.3": (*MAIN, *cases_layers.OLDEST),
    "keras-3.8.0": MAIN,
    "keras-3.12.4": MAIN,
    "keras-3.15.1": (
        *cases_layers.CASES,
        *cases_masked.CASES,
        *cases_wrappers.CASES,
        *cases_types.CASES,
        *cases_raw.CASES,
    ),
    "tf_keras-2.21.0": cases_tf_keras.CASES,
}


def main(package: str, names: list[str]) -> None:
    """Each case in its own process: TensorFlow numbers what it names, and goes on counting."""
    keras = importlib.import_module(package)
    writer = f"{package}-{keras.__version__}"
    make = {"keras": record, "tf_keras": record_tf_keras}[package].record
    for build in CASES[writer]:
        if names and build.__name__ not in names:
            continue
        print(writer, build.__name__, flush=True)
        process = get_context("fork").Process(target=make, args=(keras, writer, build, FIXTURES))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{writer}: {build.__name__} failed, see above")


if __name__ == "__main__":
    if (
        os.environ.get("PYTHONHASHSEED") != "0"
    ):  # what Python keeps in sets is saved in the order of the hashes
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    main(sys.argv[1], sys.argv[2:])
