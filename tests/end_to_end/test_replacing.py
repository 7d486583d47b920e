"""What a call may write over: what this tool wrote, where it is told to, and nothing of the user's."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.command_line import command, contents, copied, refused
from support.keras_samples import keras_fixture
from support.samples import GRAPHLESS, ROOT

import cudnn_convert
from cudnn_convert import storage
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import UsageError
from cudnn_convert.report import page

FAST = ("--no-verify", "--quiet")
#: A SavedModel of TensorFlow 1.
SAVED = ROOT / "tests" / "data" / "tf1" / "1.15.5" / "saved_model_tags"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the smallest sample."""
    return copied(tmp_path)


@pytest.fixture
def graphless(tmp_path: Path) -> Path:
    """A copy of weights alone, for which nothing heavy is loaded."""
    found = next(one for one in GRAPHLESS if "weights_lstm" in one.name)
    shutil.copytree(found.folder, tmp_path / "weights")
    return tmp_path / "weights" / found.prefix.name


# --report


@pytest.mark.parametrize(
    ("report", "told"),
    [
        ("source/model.ckpt.meta", "the source {source}"),
        ("source/model.ckpt.data-00000-of-00001", "the source {source}"),
        ("out", "OUT {out}"),
        ("out/report.json", "OUT {out}"),
        ("in.npz", "--data {data}"),
    ],
)
def test_a_report_is_apart_from_all_else(source: Path, tmp_path: Path, report: str, told: str) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros(1))
    names = {"source": source, "out": tmp_path / "out", "data": tmp_path / "in.npz"}
    flags = ["--report", tmp_path / report, "--data", names["data"], "--force", "--no-verify"]
    [line] = refused(tmp_path, source, names["out"], *flags, code=2)
    expected = f"expected a path apart from {told.format(**names)}, found an overlap"
    assert line == f"{tmp_path / report}: {expected}; choose another path"


def test_the_json_beside_a_page_is_no_other_file(source: Path, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text('{"class_name": "Sequential", "config": {}}')
    flags = ["--report", tmp_path / "model.html", "--force", "--no-verify"]
    [line] = refused(tmp_path, source, tmp_path / "out", *flags, code=2)
    told = "expected a new path, found a file that this tool did not write; choose another path"
    assert line == f"{tmp_path / 'model.json'}: {told}"


def test_a_verification_writes_neither_over_the_artifact_nor_its_source(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    assert command(source, out, "--format", "npz", *FAST).code == 0
    for path, told in ((out, "the artifact"), (source.with_suffix(".ckpt.index"), "the source")):
        [line] = refused(tmp_path, "verify", source, out, "--report", path, "--force", code=2)
        assert f"{path}: expected a path apart from {told} " in line


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_an_older_report_is_replaced_with_force_alone(source: Path, tmp_path: Path, name: str) -> None:
    out, file = tmp_path / "out.npz", tmp_path / "new" / name
    words = (source, out, "--format", "npz", *FAST, "--report", file)
    assert command(*words).code == 0
    told = json.loads(file.with_suffix(".json").read_text())
    assert told["out"] == str(out)
    [line] = refused(tmp_path, source, tmp_path / "two.npz", "--format", "npz", "--report", file, code=2)
    assert line.endswith("found what this tool wrote before; choose another path, or replace it with --force")
    call = ("verify", source, out, "--report", file)
    assert refused(tmp_path, *call, code=2) == [line]
    assert command(*call, "--quiet", "--force").code == 0
    assert json.loads(file.with_suffix(".json").read_text())["passed"] is True
    file.write_text(file.read_text().replace("cudnn-convert", "another-tool").replace("passed", "failed"))
    [line] = refused(tmp_path, *call, "--force", code=2)
    assert line.endswith("found a file that this tool did not write; choose another path")


def test_a_report_that_cannot_be_written_ends_before_anything_is_done(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    file = tmp_path / "file" / "report.json"
    [line] = refused(tmp_path, source, tmp_path / "out", "--no-verify", "--report", file, code=4)
    assert line == f"{file}: cannot write here: File exists"


def test_a_report_that_fails_leaves_no_artifact(
    graphless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(page, "of", full)
    words = (graphless, tmp_path / "out.npz", "--format", "npz", "--mode", "lstm", "--no-verify")
    [line] = refused(tmp_path, *words, "--report", tmp_path / "new" / "report.html", code=4)
    assert line.endswith("report.html: cannot write the report: No space left on device")


def test_where_an_artifact_stands_a_report_changes_no_exit_code(
    graphless: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = storage._move

    def failing(fresh: Path, out: Path) -> None:
        if out.suffix == ".json":
            assert (tmp_path / "out.npz").is_file()
            raise OSError(errno.EIO, "Input/output error")
        moved(fresh, out)

    monkeypatch.setattr(storage, "_move", failing)
    words = (graphless, tmp_path / "out.npz", "--format", "npz", "--mode", "lstm", *FAST)
    ended = command(*words, "--report", tmp_path / "report.json")
    assert (ended.code, ended.stdout) == (0, f"{tmp_path / 'out.npz'}\n")
    why = "cannot write: Input/output error; all else is done"
    assert ended.stderr == f"cudnn-convert: {tmp_path / 'report.json'}: {why}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npz", "weights"]


# --force


@pytest.mark.parametrize("form", ["npz", "safetensors", "onnx", "frozen"])
def test_a_single_file_is_replaced_where_it_says_that_it_is_ours(
    graphless: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / ("out.pb" if form == "frozen" else f"out.{form}")
    words = (graphless, out, "--format", form, "--mode", "lstm", *FAST)
    assert command(*words).code == 0
    assert runners.is_ours(out)
    before = contents(tmp_path)
    [line] = refused(tmp_path, *words, code=2)
    assert line.endswith("found what this tool wrote before; choose another path, or replace it with --force")
    assert command(*words, "--force").code == 0
    assert contents(tmp_path) == before


def test_a_model_of_the_user_is_not_replaced(tmp_path: Path) -> None:
    """What a shell makes of `two/*.h5` is a source and an OUT."""
    (tmp_path / "two").mkdir()
    sample = keras_fixture("keras-2.2.4-sequential_lstm").path
    for name in ("a.h5", "b.h5"):
        shutil.copy(sample, tmp_path / "two" / name)
    words = (tmp_path / "two" / "a.h5", tmp_path / "two" / "b.h5", "--format", "h5")
    told = "expected a new path, found a file that this tool did not write; choose another path"
    for flags in ([], ["--force"]):
        assert refused(tmp_path, *words, *flags, code=2) == [f"{tmp_path / 'two' / 'b.h5'}: {told}"]
    out = tmp_path / "two" / "c.h5"
    for flags in ([], ["--force"]):
        assert command(words[0], out, "--format", "h5", *FAST, *flags).code == 0
    assert runners.is_ours(out)


@pytest.mark.parametrize("name", ["in.npz", "golden.npz", "thesis.pb", "thesis.tflite", "thesis.keras"])
def test_no_other_file_of_the_user_is_replaced(graphless: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x0a\x00years of work TFL3")
    if name.endswith(".npz"):
        np.savez(tmp_path / name, x=np.ones(3))
    [line] = refused(tmp_path, graphless, tmp_path / name, "--force", code=2)
    assert line.endswith("found a file that this tool did not write; choose another path")


def test_a_frozen_graph_is_verified_by_what_it_says_of_itself(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pb"
    flags = ("--outputs", "answer=rnn_out", "--format", "frozen")
    assert command(source, out, *flags, *FAST).code == 0
    ended = command("verify", source, out, "--quiet", "--json")
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout)["subject"]["outputs"] == {"answer": "rnn_out:0"}


# OUT and SOURCE


@pytest.mark.parametrize("given", ["saved_model.pb", "variables/variables", "variables/variables.index"])
def test_a_file_of_a_saved_model_stands_for_its_folder(tmp_path: Path, given: str) -> None:
    shutil.copytree(SAVED, tmp_path / "sm", ignore=shutil.ignore_patterns("*.json", "*.npz"))
    source = next(path.parent for path in (tmp_path / "sm").rglob("saved_model.pb"))
    [line] = refused(tmp_path, source / given, source / "new", code=2)
    expected = f"expected a path apart from the source {source / given}, found an overlap"
    assert line == f"{source / 'new'}: {expected}; choose another path"


@pytest.mark.parametrize("out", ["ftp://bucket/model", "-"])
def test_an_address_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in ((source, out), (source, "new", "--report", out)):
        [line] = refused(tmp_path, *words, code=2)
        assert line.startswith(f"{out}: expected a ")
    with pytest.raises(UsageError, match=f"^{out}: expected a "):
        cudnn_convert.convert(source, out)


@pytest.mark.parametrize("word", ["inspct", "verfy", "recrod", "format"])
def test_a_mistyped_subcommand_is_told_of(source: Path, tmp_path: Path, word: str) -> None:
    (tmp_path / "model.h5").write_text("years of work")
    [line] = refused(tmp_path, word, tmp_path / "model.h5", code=2)
    assert line.startswith(f"{word}: expected a model or a command, found neither; did you mean cudnn-conv")


def test_a_source_that_is_not_there_is_told_before_an_out_that_is(tmp_path: Path) -> None:
    (tmp_path / "model.h5").write_text("years of work")
    for flags in ([], ["--force"]):
        [line] = refused(tmp_path, tmp_path / "none", tmp_path / "model.h5", *flags, code=1)
        assert line.startswith(f"{tmp_path / 'none'}: source: expected ")
        assert line.endswith("found no such file or folder; check the path")
