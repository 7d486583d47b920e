"""`cudnn-convert demo`: its sample, the folders that it takes, and what it prints and writes."""

from __future__ import annotations

import re
import shlex
import zipfile
from importlib import resources
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from support.command_line import command, contents, refused
from support.samples import ROOT

from cudnn_convert.cli import demo
from cudnn_convert.errors import UsageError

MODEL = ROOT / "models" / "crf_tagger"
NOT_EMPTY = "expected a new or an empty folder, found"
CURE = "name another: cudnn-convert demo DIR"


def test_the_sample_is_the_model_of_the_repository(tmp_path: Path) -> None:
    archive = resources.files("cudnn_convert.cli").joinpath("sample.zip")
    with archive.open("rb") as file, zipfile.ZipFile(file) as sample:
        found = {name: sample.read(name) for name in sample.namelist()}
    assert found == {path.name: path.read_bytes() for path in MODEL.glob("model.ckpt.*")}
    assert len(found) == 3
    assert Path(str(archive)).stat().st_size <= 200_000
    demo.unpack(tmp_path / "a" / "b")
    assert contents(tmp_path / "a" / "b") == found
    (tmp_path / "empty").mkdir()
    for _ in range(2):  # the second call finds what a demo left that could not go on
        demo.unpack(tmp_path / "empty")
        assert contents(tmp_path / "empty") == found
    (tmp_path / "empty" / "model.ckpt.index").write_bytes(b"another")
    with pytest.raises(UsageError, match=NOT_EMPTY):
        demo.unpack(tmp_path / "empty")


def test_a_folder_with_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / demo.FOLDER).mkdir()
    (tmp_path / demo.FOLDER / "thesis.txt").write_text("years of work")
    (tmp_path / "link").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    for words, where, found in (
        ([], demo.FOLDER, "one with files"),
        ([demo.FOLDER], demo.FOLDER, "one with files"),
        ([f"{demo.FOLDER}/thesis.txt"], f"{demo.FOLDER}/thesis.txt", "a file"),
        (["link"], "link", "a file"),
    ):
        before = contents(tmp_path)
        ended = command("demo", *words)
        assert (ended.code, ended.stdout) == (2, "")
        assert ended.stderr == f"cudnn-convert: DIR {where}: {NOT_EMPTY} {found}; {CURE}\n"
        assert contents(tmp_path) == before
    ended = command("demo", "s3://bucket/demo")
    assert ended.code == 2
    assert ended.stderr.endswith("DIR s3://bucket/demo: expected a local folder, found an address\n")


def test_a_folder_that_cannot_be_made_is_the_environment(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = command("demo", tmp_path / "file" / "demo")
    assert (ended.code, ended.stdout) == (4, "")
    assert "Traceback" not in ended.stderr


@pytest.mark.slow("cudnn_convert/cli/demo.py", "cudnn_convert/cli/commands.py")
def test_the_printed_commands_are_those_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = command("demo")
    assert ended.code == 0, ended.stderr
    shown = [shlex.split(line) for line in re.findall(r"^\$ cudnn-convert (.+)$", ended.stderr, re.MULTILINE)]
    assert shown == [*demo.calls(Path(demo.FOLDER))]
    assert [words[0] for words in shown if words[0] in ("inspect", "run")] == ["inspect", "run", "run"]
    outs = [words[-1] for words in shown if words[0] == f"{demo.FOLDER}/model.ckpt"]
    assert outs == [f"{demo.FOLDER}/model_cpu", f"{demo.FOLDER}/model.onnx"]
    for out in outs:
        assert re.search(rf"^{out}: proven equal to {demo.FOLDER}/model.ckpt \(", ended.stderr, re.MULTILINE)
        assert out in ended.stdout.splitlines()
    with np.load(MODEL / "golden.npz") as golden:
        ids, tags = golden["feed0/ids:0"], golden["feed0/tags:0"]
    session = onnxruntime.InferenceSession(outs[1])
    np.testing.assert_array_equal(session.run(["tags"], {"ids": ids})[0], tags)
    again = refused(tmp_path, *shown[1], code=2)
    assert "--force" in again[0]
