"""What an inspection loads, runs and leaves behind: no TensorFlow without a graph, no code of the file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from keras3_samples import exported
from keras_samples import keras_fixture
from samples import ROOT, fixture
from sources import contents

import cudnn_convert

HEAVY = "tensorflow,tf_keras,keras,onnx,onnxruntime,tf2onnx"
PROGRAM = (
    "import sys; from cudnn_convert import cli; code = cli.main(['inspect', *sys.argv[2:]]); "
    "print(*(set(sys.argv[1].split(',')) & set(sys.modules)), sep=',', file=sys.stderr); sys.exit(code)"
)


def graphless(folder: Path) -> Path:
    shutil.copytree(
        fixture("1.15.5-gru_bi").folder, folder / "source", ignore=shutil.ignore_patterns("*.meta")
    )
    return folder / "source" / "model.ckpt"


SOURCES = {
    "HDF5 model": lambda _: [keras_fixture("keras-2.2.4-nested").path],
    "HDF5 weights": lambda _: [keras_fixture("keras-2.2.4-weights_functional").path],
    "HDF5 weights and model.json": lambda _: [
        keras_fixture("keras-2.2.4-weights_functional").path,
        "--architecture",
        keras_fixture("keras-2.2.4-weights_functional").architecture,
    ],
    "weights of the newer form": lambda _: [keras_fixture("tf_keras-2.21.0-weights_format_3").path],
    "archive": lambda _: [keras_fixture("tf_keras-2.21.0-archive_nested").path],
    "archive of Keras 3": lambda _: [exported("keras-3.15.1-archive").archive],
    "custom class": lambda _: [
        keras_fixture("keras-2.2.4-custom_layer").path,
        "--custom-objects",
        "no:Scale",
    ],
    "checkpoint without its graph": lambda folder: [graphless(folder)],
    "object-based checkpoint": lambda _: [fixture_of("1.15.5-keras_weights_functional")],
}


def fixture_of(name: str) -> Path:
    version, _, case = name.partition("-")
    return ROOT / "tests" / "data" / "tf1" / version / case / "model.ckpt"


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["table", "json"])
def test_without_a_graph_nothing_heavy_is_loaded(tmp_path: Path, name: str, flags: list[str]) -> None:
    words = [str(word) for word in (*SOURCES[name](tmp_path), *flags)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, HEAVY, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "\n")
    assert done.stdout


@pytest.mark.parametrize(
    "name", ["keras-2.2.4-lambda_pwned", "tf_keras-2.21.0-lambda_pwned", "tf_keras-2.21.0-archive_pwned"]
)
def test_code_in_a_file_is_not_run_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cudnn_convert.inspect(keras_fixture(name).path).command is not None
    assert contents(tmp_path) == {}


def test_the_modules_of_custom_objects_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')")
    source = keras_fixture("keras-2.2.4-custom_layer").path
    found = cudnn_convert.inspect(source, custom_objects="mine:Scale")
    assert found.command is not None
    assert "--custom-objects=mine:Scale" in found.command
    assert "--no-verify" not in found.command
    assert found.reasons == ()
    assert "mine" not in sys.modules
