"""Opens `.keras` and `.onnx` outputs where their users do: without TensorFlow, and without cudnn_convert.

    PYTHON scripts/check_keras_backends.py KERAS_PYTHON ONNX_PYTHON

PYTHON has cudnn_convert and converts a handful of recorded samples into a temporary folder. KERAS_PYTHON has
keras and jax, ONNX_PYTHON has onnxruntime; beside numpy they have nothing of ours, and no TensorFlow:

    python -m venv keras && keras/bin/python -m pip install keras jax
    python -m venv onnx && onnx/bin/python -m pip install onnxruntime

Every output must give the recorded answers there, within 1e-5 + 1e-5*|x|; else the script ends with 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import artifacts, user_processes  # noqa: E402
from support.keras_samples import KERAS_FIXTURES, KerasFixture  # noqa: E402
from support.samples import fixture  # noqa: E402

import cudnn_convert  # noqa: E402
from cudnn_convert.artifacts import runners  # noqa: E402

BOUND = 1e-5
#: One file of each, by the newest Keras that wrote one.
KERAS = (
    *(
        "sequential_lstm",
        "stacked",
        "bidirectional",
        "bidirectional_states",
        "merge_modes_gru",
        "go_backwards",
    ),
    *("siamese", "encoder_decoder", "nested", "text_classifier", "stateful_gru", "archive_nested"),
    *("custom_layer", "lambda_harmless"),
)
#: What an ONNX file has no place for: it has states among its inputs, or needs code.
KERAS_ALONE = ("stateful_gru", "custom_layer", "lambda_harmless")
GRAPHS = ("lstm_bi_2l_states", "gru_uni_2l", "rnn_relu_bi", "cond", "while_rows", "v3_lengths_time_major")
PROGRAMS = {"keras": ("keras", "jax"), "onnx": ("onnxruntime",)}
ENVIRONMENT = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
#: Tells the versions of a Python and of the packages named.
FOUND = """
import importlib, importlib.util, sys
assert importlib.util.find_spec("tensorflow") is None, "expected a Python without TensorFlow"
versions = [f"{name} {importlib.import_module(name).__version__}" for name in sys.argv[1:]]
print("Python", sys.version.split()[0], *versions)
"""


def converted(sample: KerasFixture, form: str, folder: Path) -> dict[str, Any]:
    """A Keras sample's job for tests/support/user/user.py. What nothing stands before goes unverified."""
    name, case = sample.folder.name, sample.case
    out = folder / f"{sample.name}-{form}"
    cudnn_convert.convert(sample.path, out, format=form, verify=name != "custom_layer")
    _, path, _ = runners.identify(out)
    job = {"name": sample.name, "artifact": str(path), "format": form}
    job |= {"golden": str(sample.folder / "golden.npz"), "answers": f"{out}.npz"}
    for kind in ("inputs", "outputs"):
        job[kind] = {key: {"source": key, "artifact": key} for key in case[kind]}
    more = {"custom_layer": {"custom": ["scale_for_keras", "Scale"]}, "lambda_harmless": {"safe_mode": False}}
    return {**job, **more.get(name, {})}


def jobs(folder: Path, python: str) -> list[dict[str, Any]]:
    """Everything to be opened; `python` is the version that opens archives, for bytecode has one alone."""
    newest = {sample.folder.name: sample for sample in KERAS_FIXTURES}
    found = []
    for name in KERAS:
        sample = newest[name]
        if name == "lambda_harmless" and sample.case["python"].split(".")[:2] != python.split(".")[:2]:
            print(f"{sample.name}: left out, its bytecode is of Python {sample.case['python']}")
            continue
        forms = ("keras",) if name in KERAS_ALONE else ("keras", "onnx")
        found += [converted(sample, form, folder) for form in forms]
    for graph in (fixture(f"1.15.5-{name}") for name in (*GRAPHS, "bilstm_tagger")):
        found.append({"name": graph.name, **artifacts.convert(graph, "onnx", folder)[1]})
    return found


def answer(python: str, listed: list[dict[str, Any]]) -> None:
    """Runs the jobs in a process of another Python."""
    words = [python, "-I", str(user_processes.PROGRAM)]
    asked = f"{json.dumps(listed)}\n"
    done = subprocess.run(words, env=ENVIRONMENT, input=asked, stdout=subprocess.PIPE, text=True, check=True)
    errors = [error for error in json.loads(done.stdout)["errors"] if error]
    assert not errors, "\n".join(errors)


def worst(job: dict[str, Any]) -> float:
    """The largest share of the tolerance that an answer uses."""
    shares = []
    with np.load(job["golden"]) as golden, np.load(job["answers"]) as answers:
        for feed in sorted({key.partition("/")[0] for key in golden.files}):
            for key, names in job["outputs"].items():
                found, expected = answers[f"{feed}/{key}"], golden[f"{feed}/{names['source']}"]
                shares.append(artifacts.within(found, expected, atol=BOUND, rtol=BOUND))
    return max(shares)


def main(keras: str, onnx: str) -> int:
    pythons = {"keras": keras, "onnx": onnx}
    versions = {
        form: subprocess.check_output(
            [python, "-I", "-c", FOUND, *PROGRAMS[form]], env=ENVIRONMENT, text=True
        )
        for form, python in pythons.items()
    }
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        listed = jobs(Path(folder), versions["keras"].split()[1])
        for form, python in pythons.items():
            print(f"{form}: {versions[form].strip()}")
            mine = [job for job in listed if job["format"] == form]
            answer(python, mine)
            for job in mine:
                share = worst(job)
                wrong += not share <= 1
                print(f"  {job['name']}: {share:.3f} of the tolerance{'' if share <= 1 else ', WRONG'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
