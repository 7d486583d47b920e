"""Real models, trained on GPUs by others: their own numbers, and Keras's own conversion, are the judges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.samples import REAL

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.keras import cpu_layers, translate
from cudnn_convert.model import SERVING, Part, Signature
from cudnn_convert.read import keras_hdf5
from cudnn_convert.targets import h5 as write_h5
from cudnn_convert.targets import keras as write_keras

pytestmark = [
    pytest.mark.skipif(not (REAL / "medaka").is_dir(), reason=f"no real models at {REAL}"),
    pytest.mark.slow("cudnn_convert/keras/"),
]
#: A user's process.
HEAD = """
import sys
sys.modules["cudnn_convert"] = None
import importlib, numpy as np
library, path, data = importlib.import_module(sys.argv[1]), sys.argv[2], sys.argv[3]
model = library.models.load_model(path)
"""
#: Categorical cross-entropy and the regularisation terms, as its authors printed them.
DOT_RES = """
found = np.load(data)
wanted = np.eye(2)[found["y"].astype(int).ravel()]
model.compile(loss="categorical_crossentropy", metrics=["accuracy"])
print("found", *model.evaluate([found["xs"], found["xf"]], wanted, verbose=0))
"""
MEDAKA = """
import tf_keras
judge = tf_keras.models.load_model(data, custom_objects={"CuDNNGRU": tf_keras.layers.GRU}, compile=False)
x = np.random.default_rng(4).uniform(0, 1, (2, 1000, judge.input_shape[-1])).astype("f")
expected = judge.predict(x, verbose=0)
np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-5)
print("found", np.ptp(expected))
"""


def written(source: Path, folder: Path, form: str) -> Path:
    model = keras_hdf5.read(source).architecture
    assert model is not None
    made = cpu_layers.rewritten(source, model).architecture
    path = folder / f"model.{form}"
    if form == "keras":
        write_keras.write(path, source, translate.modern(source, made), provenance="{}")
    else:
        write_h5.write(path, made, provenance="{}")
    return path


def run(script: str, library: str, path: Path, data: Path) -> list[float]:
    command = [sys.executable, "-c", HEAD + script, library, str(path), str(data)]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found")]
    return [float(value) for value in line.split()[1:]]


@pytest.mark.parametrize(("form", "library"), [("keras", "keras"), ("h5", "tf_keras")])
@pytest.mark.parametrize(
    ("name", "recorded"), [("-08-0.78", [1.5269, 0.7762]), ("-21-0.80", [0.7206, 0.7952])]
)
def test_dot_res_prints_what_its_authors_saw(
    tmp_path: Path, form: str, library: str, name: str, recorded: list[float]
) -> None:
    folder = REAL / "dot-res-lstm"
    path = written(folder / f"dot_res_lstm{name}.hdf5", tmp_path, form)
    found = run(DOT_RES, library, path, folder / "validation_210.npz")
    assert [round(value, 4) for value in found] == recorded


def penalty(path: Path) -> float:
    """The regularisation terms of the file's own arrays, in float64: absolute sums and sums of squares."""
    total = 0.0
    with h5py.File(path) as file:
        for layer in json.loads(file.attrs["model_config"])["config"]["layers"]:
            group = file["model_weights"][layer["name"]]
            for kind in ("kernel", "recurrent", "bias"):
                terms = (layer["config"].get(f"{kind}_regularizer") or {}).get("config", {})
                name = {"recurrent": "recurrent_kernel"}.get(kind, kind)
                for key in group.attrs["weight_names"] if terms else ():
                    if key.decode().rpartition("/")[2] == f"{name}:0":
                        value = group[key.decode()][()].astype(np.float64)
                        total += terms["l1"] * np.abs(value).sum() + terms["l2"] * (value**2).sum()
    return total


@pytest.mark.parametrize("form", ["savedmodel", "frozen", "onnx"])
@pytest.mark.parametrize(
    ("name", "recorded"), [("-08-0.78", [1.5269, 0.7762]), ("-21-0.80", [0.7206, 0.7952])]
)
def test_dot_res_as_a_graph_gives_what_its_authors_saw(
    tmp_path: Path, form: str, name: str, recorded: list[float]
) -> None:
    source = REAL / "dot-res-lstm" / f"dot_res_lstm{name}.hdf5"
    report = cudnn_convert.convert(source, tmp_path / "out", format=form)
    _, path, kept = runners.identify(tmp_path / "out")
    assert kept is not None
    signature = Signature(kept["tensors"]["inputs"], kept["tensors"]["outputs"])
    with np.load(source.parent / "validation_210.npz") as data:
        fed = {"input_7": data["xs"].astype(np.float32), "input_8": data["xf"].astype(np.float32)}
        wanted = data["y"].astype(int).ravel()
    answer = open_artifact(form, path, [Part(SERVING, signature)])
    (scores,) = answer(fed).values()
    assert list(report.inputs) == list(fed)
    loss = -np.log(scores[np.arange(len(wanted)), wanted].astype(np.float64)).mean() + penalty(source)
    accuracy = float((scores.argmax(1) == wanted).mean())
    assert [round(float(loss), 4), round(accuracy, 4)] == recorded


@pytest.mark.parametrize(("form", "library"), [("keras", "keras"), ("h5", "tf_keras")])
@pytest.mark.parametrize("source", sorted((REAL / "medaka").glob("*.hdf5")), ids=lambda source: source.stem)
def test_medaka_answers_as_keras_own_conversion(
    tmp_path: Path, source: Path, form: str, library: str
) -> None:
    (spread,) = run(MEDAKA, library, written(source, tmp_path, form), source)
    assert spread > 0.1
