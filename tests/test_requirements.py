"""Versions of TensorFlow, and calls where it is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.samples import ROOT

from cudnn_convert import requirements
from cudnn_convert.errors import MissingDependencyError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROGRAM = Path(__file__).parent / "support" / "programs" / "without_tensorflow.py"
MODEL = ROOT / "models" / "crf_tagger"


def installed(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {"tensorflow": "2.16.0", "tf-keras": "2.16.0"},
        {"tensorflow-cpu": "2.18.1"},
        {"tensorflow-macos": "2.16.2", "tf-keras": "2.16.0"},
        {"tensorflow": "2.20.0", "tf-keras": "2.20.1"},
        {"tensorflow": "2.21.0rc1", "tf-keras": "2.21.0"},
    ],
)
def test_versions_in_the_range_are_taken(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]) -> None:
    installed(monkeypatch, versions)
    requirements.check_versions()


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        (
            {"tensorflow": "2.15.1"},
            "tensorflow: expected a version from 2.16 to 2.21, found 2.15.1; "
            "pip install 'tensorflow>=2.16,<2.22'",
        ),
        (
            {"tensorflow-cpu": "2.22.0"},
            "tensorflow-cpu: expected a version from 2.16 to 2.21, found 2.22.0; "
            "pip install 'tensorflow-cpu>=2.16,<2.22'",
        ),
        (
            {"tensorflow": "1.15.5"},
            "tensorflow: expected a version from 2.16 to 2.21, found 1.15.5; "
            "pip install 'tensorflow>=2.16,<2.22'",
        ),
        (
            {"tensorflow-cpu": "2.18.1", "tf-keras": "2.21.0"},
            "tf-keras: expected version 2.18, which is TensorFlow's, found 2.21.0; "
            "pip install --no-deps 'tf-keras==2.18.*'",
        ),
    ],
)
def test_other_versions_are_refused(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], message: str
) -> None:
    installed(monkeypatch, versions)
    with pytest.raises(MissingDependencyError) as refusal:
        requirements.check_versions()
    assert (str(refusal.value), refusal.value.exit_code) == (message, 4)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "tensorflow.core",
            "tensorflow: expected a version from 2.16 to 2.21, found none; "
            "pip install 'cudnn-convert[tensorflow]'",
        ),
        (
            "tf_keras.src",
            "tf-keras: expected version 2.18, which is TensorFlow's, found none; "
            "pip install --no-deps 'tf-keras==2.18.*'",
        ),
    ],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, module: str, message: str) -> None:
    installed(monkeypatch, {"tensorflow-cpu": "2.18.1"})
    with pytest.raises(MissingDependencyError) as refusal, requirements.name_missing():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert str(refusal.value) == message


def test_another_module_that_is_missing_is_our_bug() -> None:
    with pytest.raises(ModuleNotFoundError), requirements.name_missing():
        raise ModuleNotFoundError("No module named 'x'", name="x")


def test_the_extras_have_the_range() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    oldest, newest = requirements.OLDEST, requirements.NEWEST
    bounds = f">={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    assert extras["tensorflow"] == [f"tensorflow{bounds}", f"tf-keras{bounds}"]
    assert extras["tensorflow-cpu"] == [f"tensorflow-cpu{bounds}"]
    makefile = (ROOT / "Makefile").read_text()
    assert f"\nTENSORFLOW := {newest[0]}.{newest[1]}\n" in makefile


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint without its graph."""
    folder = tmp_path_factory.mktemp("weights")
    for path in MODEL.glob("model.ckpt.[di]*"):
        shutil.copy(path, folder)
    return folder / "model.ckpt"


@pytest.mark.parametrize("words", [("inspect",), ("map", "--format", "npz")])
def test_weights_are_told_without_tensorflow(weights: Path, words: tuple[str, ...]) -> None:
    done = run(*words, weights)
    assert done.returncode == 0, done.stderr
    assert "cudnn_lstm" in done.stdout


@pytest.mark.first("npz")
@pytest.mark.parametrize("form", ["onnx", "npz", "safetensors"])
def test_weights_are_converted_and_proven_without_tensorflow(
    weights: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"model.{form}"
    done = run(weights, out)
    assert done.returncode == 0, done.stderr
    assert out.is_file()
    assert re.search(r"proven equal to those of .*model\.ckpt", done.stderr)


@pytest.mark.first("words1")
@pytest.mark.parametrize("words", [("inspect", MODEL), (MODEL, "model.onnx"), (MODEL, "model")])
def test_a_graph_without_tensorflow_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    reason = "tensorflow: expected a version from 2.16 to 2.21, found none"
    assert done.stderr == f"cudnn-convert: {reason}; pip install 'cudnn-convert[tensorflow]'\n"
    assert done.returncode == 4
    assert not [*tmp_path.iterdir()]
