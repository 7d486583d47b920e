"""Opens `.keras` and `.onnx` outputs where their users do: without TensorFlow, and without cudnn_convert.

    PYTHON scripts/check_keras_backends.py KERAS_PYTHON ONNX_PYTHON

PYTHON has cudnn_convert and converts a handful of recorded samples into a temporary folder. KERAS_PYTHON has
keras, and jax, torch or both, ONNX_PYTHON has onnxruntime; beside numpy they have nothing of ours, and no
TensorFlow:

    python -m venv keras && keras/bin/python -m pip install keras jax torch
    python -m venv onnx && onnx/bin/python -m pip install onnxruntime

Every output must give the recorded answers there, within 1e-5 + 1e-5*|x|; else the script ends with 1.
A backend has its own loop over steps, so the layers of the census that have to do with masks are asked too
(mask_zero, Masking, steps of padding before, between and behind, rows of nothing else), within its bound.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import artifacts, keras_census, keras_census_artifacts, user_processes  # noqa: E402
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
BACKENDS = ("jax", "torch")
#: Of the census: who wrote the files, and what the names of cases with masks have in them.
MASKED_BY = ("tf.keras-2.15.1", "keras-2.2.4", "tf.keras-1.8.0")
OF_MASKS = ("mask", "between_", "_mm", "_mo", "_om")
#: What Keras 3.15 itself computes otherwise, or cannot run, by what a case's name has in it: on torch an
#: unrolled loop in reverse behind a mask, on JAX a Bidirectional of such, the second call of a stateful layer
#: behind a mask, and a Reshape that changes nothing, which lets the mask pass.
OF_KERAS = {
    "jax": ("masked_Bidirectional_unrolled", "between_Reshape", "masked_stateful"),
    "torch": ("masked_Bidirectional_unrolled", "unrolled_backwards"),
}
#: Keras is asked for its version with a backend that any Python has.
ANY = {"KERAS_BACKEND": "numpy"}
#: Tells the versions of a Python and of the packages that it has of those named.
FOUND = """
import importlib, importlib.util, sys
assert importlib.util.find_spec("tensorflow") is None, "expected a Python without TensorFlow"
found = [importlib.import_module(name) for name in sys.argv[1:] if importlib.util.find_spec(name)]
print("Python", sys.version.split()[0], *(f"{one.__name__} {one.__version__}" for one in found))
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


def worst(job: dict[str, Any]) -> float:
    """The largest share of the tolerance that an answer uses."""
    shares = []
    with np.load(job["golden"]) as golden, np.load(job["answers"]) as answers:
        for feed in sorted({key.partition("/")[0] for key in golden.files}):
            for key, names in job["outputs"].items():
                found, expected = answers[f"{feed}/{key}"], golden[f"{feed}/{names['source']}"]
                assert found.shape == expected.shape, (job["name"], key, found.shape, expected.shape)
                wide = expected.astype(np.float64)
                gap = np.abs(found.astype(np.float64) - wide) / (BOUND + BOUND * np.abs(wide))
                shares.append(float(np.nan_to_num(gap, nan=np.inf).max()))
    return max(shares)


def check_samples(user: user_processes.User, listed: list[dict[str, Any]]) -> int:
    """Prints what each job's artifact answers there; returns how many are wrong."""
    errors = [error for error in user.ask(listed) if error]
    assert not errors, "\n".join(errors)
    shares = {job["name"]: worst(job) for job in listed}
    for name, share in shares.items():
        print(f"  {name}: {share:.3f} of the tolerance{'' if share <= 1 else ', WRONG'}", flush=True)
    return sum(not share <= 1 for share in shares.values())


def check_masks(users: Mapping[str, user_processes.User]) -> int:
    """Prints how the masked layers of the census answer on each backend; returns how many are wrong."""
    wrong = 0
    for writer in MASKED_BY:
        names = [name for name in keras_census.cases()[writer] if any(part in name for part in OF_MASKS)]
        counts = {backend: Counter[str]() for backend in users}
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                outcomes = keras_census_artifacts.check_answers(
                    writer, name, "keras", Path(folder), [*users.values()]
                )
            for backend, outcome in zip(users, outcomes, strict=True):
                kind = outcome.partition(":")[0].partition(",")[0]
                if kind == "wrong" and any(part in name for part in OF_KERAS[backend]):
                    kind = "otherwise in Keras"
                counts[backend][kind] += 1
                if kind == "wrong":
                    print(f"  {writer} {name} on {backend}: {outcome[:300]}", flush=True)
        for backend, kinds in counts.items():
            print(f"  {writer} on {backend}: {', '.join(f'{count} {key}' for key, count in kinds.items())}")
            wrong += kinds["wrong"]
    return wrong


def main(keras: str, onnx: str) -> int:
    versions = {
        python: subprocess.check_output([python, "-I", "-c", FOUND, *names], env=os.environ | ANY, text=True)
        for python, names in ((keras, ("keras", *BACKENDS)), (onnx, ("onnxruntime",)))
    }
    users = {
        name: user_processes.User(keras, KERAS_BACKEND=name, JAX_PLATFORMS="cpu")
        for name in BACKENDS
        if f" {name} " in versions[keras]
    }
    with tempfile.TemporaryDirectory() as folder:
        listed = jobs(Path(folder), versions[keras].split()[1])
        wrong = 0
        for backend, user in users.items():
            print(f"{backend}: {versions[keras].strip()}")
            wrong += check_samples(user, [job for job in listed if job["format"] == "keras"])
        print(f"onnx: {versions[onnx].strip()}")
        wrong += check_samples(user_processes.User(onnx), [job for job in listed if job["format"] == "onnx"])
    print("masks")
    return int(wrong + check_masks(users) > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
