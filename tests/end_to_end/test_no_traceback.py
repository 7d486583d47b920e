"""Sources, paths and surroundings that are unusual, and end in a line and a documented exit code."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from support import checkpoints, keras_files
from support.command_line import beside, command, copied
from support.samples import ROOT
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

DATA = ROOT / "tests" / "data" / "tf1" / "1.15.5"
WEIGHTS = DATA / "keras_weights_lstm" / "model.ckpt"
BLOB = ("--mode", "lstm", "--layers", 1, "--units", 5, "--directions", 1)
NAME = "expected a name that TensorFlow allows for an op, found one that it refuses"


def lines(error: str) -> list[str]:
    return [line for line in error.splitlines() if line.startswith("cudnn-convert: ")]


@pytest.mark.parametrize("tags", [[], ["serve"], ["gpu"]], ids=str)
def test_two_graphs_of_equal_tags_cannot_be_chosen(tmp_path: Path, tags: list[str]) -> None:
    source = tmp_path / "source"
    shutil.copytree(DATA / "saved_model_tags" / "model", source)
    saved = saved_model_pb2.SavedModel.FromString((source / "saved_model.pb").read_bytes())
    for meta in saved.meta_graphs:
        meta.meta_info_def.tags[:] = tags
    (source / "saved_model.pb").write_bytes(saved.SerializeToString())
    found = " | ".join([",".join(tags) or "no tags"] * 2)
    said = f"cudnn-convert: {source}: MetaGraphs: expected one with the tags serve, found {found}; "
    for words in (("inspect", source), (source, tmp_path / "out")):
        ended = command(*words)
        assert (ended.code, ended.stderr) == (1, f"{said}save them again with tags that differ\n")


def test_of_graphs_of_equal_tags_the_others_can_be_chosen(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(DATA / "saved_model_tags" / "model", source)
    saved = saved_model_pb2.SavedModel.FromString((source / "saved_model.pb").read_bytes())
    saved.meta_graphs.append(saved.meta_graphs[0])
    for meta, tags in zip(saved.meta_graphs, (["gpu"], ["wanted"], ["gpu"]), strict=True):
        meta.meta_info_def.tags[:] = tags
    (source / "saved_model.pb").write_bytes(saved.SerializeToString())
    ended = command("inspect", source)
    assert (ended.code, ended.stdout.count("--tag=wanted"), ended.stdout.count("--tag=gpu")) == (0, 1, 0)


@pytest.mark.slow("cudnn_convert/graph", "cudnn_convert/plan")
def test_keys_of_signs_that_flags_use(tmp_path: Path) -> None:
    """The artifact has them, `verify` pairs by them, and what is printed repeats the conversion."""
    source = tmp_path / "source"
    shutil.copytree(DATA / "saved_model_words" / "model", source)
    saved = saved_model_pb2.SavedModel.FromString((source / "saved_model.pb").read_bytes())
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    for ends, signs in ((signature.inputs, "a=b,[c]"), (signature.outputs, '"y", z=')):
        for number, key in enumerate(sorted(ends)):
            ends[f"{signs}{number}"].CopyFrom(ends[key])
            del ends[key]
    (source / "saved_model.pb").write_bytes(saved.SerializeToString())
    first, again = tmp_path / "first", tmp_path / "again"
    ended = command(source, first, "--quiet", "--json")
    assert ended.code == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert all(key.startswith("a=b,[c]") for key in report["inputs"])
    assert command("verify", source, first, "--quiet").stdout == "equal\n"
    ended = command(source, again, "--quiet", "--json", "--no-verify", *report["flags"])
    assert ended.code == 0, ended.stderr
    for side in ("inputs", "outputs"):
        assert json.loads(ended.stdout)[side] == report[side]


def archive(folder: Path, version: str) -> Path:
    """A `.keras` file of a class of the user's, as `Model.save` writes one, without the arrays."""
    config = {"module": "mine", "class_name": "Tagger", "config": {"units": 7}}
    with zipfile.ZipFile(folder / "model.keras", "w") as file:
        file.writestr("config.json", json.dumps(config | {"registered_name": "mine>Tagger"}))
        file.writestr("metadata.json", json.dumps({"keras_version": version}))
        weights = io.BytesIO()
        h5py.File(weights, "w").close()
        file.writestr("model.weights.h5", weights.getvalue())
    return folder / "model.keras"


UNLISTED = (
    "{0}: model: expected a Sequential or functional model, found {1}, whose layers its code alone knows"
)


@pytest.mark.parametrize("form", ["h5", "keras", "savedmodel"])
def test_a_model_of_a_foreign_class_without_layers(tmp_path: Path, form: str) -> None:
    config = {"class_name": "Tagger", "config": {"name": "tagger", "units": 7}}
    source = keras_files.whole(tmp_path / "model.h5", config, {})
    ended = command(source, tmp_path / "out", "--format", form, "--no-verify", "--quiet")
    (line,) = ended.stderr.splitlines()
    assert ended.code == 1
    assert UNLISTED.format(source, "Tagger") in line
    assert line.endswith("; save it as a SavedModel where it loads, and convert that")


@pytest.mark.parametrize(("version", "form"), [("2.21.0", "savedmodel"), ("3.15.1", "keras")])
def test_an_archive_of_a_foreign_class_is_not_called_portable(
    tmp_path: Path, version: str, form: str
) -> None:
    """Its code may make any layer: nothing is known of it."""
    source = archive(tmp_path, version)
    for flags in ((), ("--force-convert",)):
        ended = command(source, tmp_path / "out", "--format", form, "--quiet", *flags)
        assert ended.code == 1
        assert UNLISTED.format(source, "mine>Tagger") in ended.stderr
        assert not (tmp_path / "out").exists()
    seen = command("inspect", source, "--json")
    told = json.loads(seen.stdout)
    assert told["runs_on_cpu"] is None
    assert [UNLISTED.format("", "mine>Tagger").removeprefix(": ") in one for one in told["reasons"]] == [True]


@pytest.mark.parametrize("scope", ["../../x", "a b", "_x", "순환", "x:0", "-x", "a\nb"])
def test_names_that_no_graph_holds(tmp_path: Path, scope: str) -> None:
    """A format without a graph takes them, and an inspection advises that."""
    blob = np.random.default_rng(3).uniform(-1, 1, 4 * 5 * (4 + 5 + 2)).astype(np.float32)
    source = checkpoints.save(tmp_path / "in" / "model.ckpt", [(f"{scope}/cudnn_lstm/opaque_kernel", blob)])
    for form in ("savedmodel", "checkpoint", "tflite"):
        ended = command(source, tmp_path / "out", "--format", form, *BLOB, "--quiet")
        assert ended.code == 1
        assert all(NAME in line for line in ended.stderr.splitlines()), ended.stderr
        assert "--format onnx" in ended.stderr
    assert "--format onnx" in command("inspect", source, *BLOB).stdout
    assert command(source, tmp_path / "out.onnx", "--format", "onnx", *BLOB, "--quiet").code == 0


@pytest.mark.parametrize("size", [2**40, 2**31])
def test_a_size_that_no_op_of_shapes_can_count(tmp_path: Path, size: int) -> None:
    source = copied(tmp_path)
    path = beside(source, ".meta")
    meta = meta_graph_pb2.MetaGraphDef.FromString(path.read_bytes())
    node = next(node for node in meta.graph_def.node if node.name == "x")
    node.attr["shape"].shape.dim[1].size = size
    path.write_bytes(meta.SerializeToString())
    ended = command(source, tmp_path / "out", "--quiet")
    told = f"graph: x: expected sizes of at most {2**31 - 1}, found {size}"
    assert (ended.code, ended.stderr) == (1, f"cudnn-convert: {path}: {told}\n")


def to_itself(path: Path) -> Path:
    path.symlink_to(path.name)
    return path


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (lambda source, loop: (loop, "out"), 1, "found no such file or folder; check the path"),
        (lambda source, loop: (loop / "model.ckpt", "out"), 1, "found no such file or folder; check"),
        (lambda source, loop: ("inspect", loop), 1, "found no such file or folder; check the path"),
        (lambda source, loop: ("verify", source, loop), 1, "or an OUT folder, found no such file or folder"),
        (lambda source, loop: (source, loop / "out"), 4, "Too many levels of symbolic links"),
        (lambda source, loop: (source, loop), 2, "expected a new path, found a symbolic link"),
    ],
)
def test_a_link_to_itself_is_no_path(
    words: Callable[[Path, Path], tuple[object, ...]],
    code: int,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command(*words(WEIGHTS, to_itself(Path("loop"))))
    (line,) = ended.stderr.splitlines()
    assert (ended.code, told in line) == (code, True), ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names of characters, not of bytes")
@pytest.mark.parametrize("name", ["out\udcff.npz", "\udcff/out.onnx", "out\udce9"])
def test_an_out_of_bytes_that_are_no_text(tmp_path: Path, name: str) -> None:
    ended = command(WEIGHTS, tmp_path / name, "--quiet")
    (line,) = ended.stderr.splitlines()
    assert ended.code == 2
    assert "expected a path in UTF-8, found one that is not; choose another" in line
    assert line.isprintable()
    assert list(tmp_path.iterdir()) == []


def called(*words: object, prelude: str = "pass", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line as its users call it, after a line of Python."""
    text = f"import sys; {prelude}; sys.argv[0] = 'cudnn-convert'; from cudnn_convert.cli import run; run()"
    call = [sys.executable, "-c", text, *map(str, words)]
    settings = {**os.environ, **environment}
    return subprocess.run(call, capture_output=True, text=True, check=False, env=settings, timeout=120)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name files in Unicode")
@pytest.mark.parametrize("form", ["npz", pytest.param("savedmodel", marks=pytest.mark.slow)])
def test_names_in_a_locale_that_has_no_letters_for_them(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "순환"
    shutil.copytree(WEIGHTS.parent, folder)
    source = folder / WEIGHTS.name
    out = folder / "출력.npz" if form == "npz" else folder / "출력"
    report = folder / "보고서.html"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = called(source, out, "--format", form, "--report", report, **plain)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{out}\n"
    assert out.exists()
    assert str(source) in report.read_text(encoding="utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound the address space")
def test_an_address_space_that_is_too_small(tmp_path: Path) -> None:
    """400 MB hold no TensorFlow: its library cannot be mapped."""
    small = "import resource; resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))"
    ended = called(WEIGHTS, tmp_path / "out", "--quiet", prelude=small)
    said = "cudnn-convert: memory ran out; raise it with ulimit -v\n"
    assert (ended.returncode, ended.stderr) == (1, said)
    assert list(tmp_path.iterdir()) == []
