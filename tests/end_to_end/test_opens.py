"""A conversion opens its source, OUT, temporary files and what is installed, for every kind of source.

What Python opens an audit hook tells (`opens.py`); what native code opens, strace. `tests/data/opens.txt` has
all else that may be opened.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.programs.opens import KINDS
from support.samples import ROOT

DATA = ROOT / "tests" / "data"
TF1 = DATA / "tf1" / "1.15.5"
SOURCES = {
    "weights": TF1 / "keras_weights_lstm",
    "checkpoint": TF1 / "v3_batch_major",
    "checkpoint_v1": TF1 / "checkpoint_v1",
    "frozen": TF1 / "frozen_binary",
    "frozen_text": TF1 / "frozen_text",
    "saved_model": TF1 / "saved_model_words",
    "keras_export": DATA / "keras3_exports" / "keras-3.15.1" / "lstm",
    "hdf5": DATA / "keras" / "keras-2.2.4" / "sequential_lstm",
    "hdf5_archive": DATA / "keras" / "tf_keras-2.21.0" / "stateful_lstm",
    "archive": DATA / "keras" / "tf_keras-2.21.0" / "archive_siamese",
}
LISTED = [line for line in (DATA / "opens.txt").read_text().splitlines() if not line.startswith("#")]
PROGRAM = ROOT / "tests" / "support" / "programs" / "opens.py"
#: A call of the system that succeeded: its name and what is in its brackets.
CALL = re.compile(r"\b(open|openat|openat2|creat|execve|connect)\((.*)")
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of each source, a temporary folder, and a file that belongs to somebody else."""
    for kind, source in SOURCES.items():
        shutil.copytree(source, tmp_path / "work" / kind)
    (tmp_path / "work" / "temporary").mkdir()
    (tmp_path / "private.txt").write_text("private")
    return tmp_path / "work"


def converted(folder: Path, kinds: Iterable[str], *prefix: str) -> dict[str, list[str]]:
    """What Python opened for each kind. `rmtree` names files by an open folder: the current one is ours."""
    call = [*prefix, sys.executable, str(PROGRAM), str(folder), *kinds]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        call, cwd=folder / "temporary", env=settings, capture_output=True, text=True, check=False
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    assert {kind: code for kind, (code, _) in found.items()} == dict.fromkeys(kinds, 0), ended.stderr
    return {kind: opened for kind, (_, opened) in found.items()}


def strays(opened: Iterable[str], *allowed: Path) -> list[str]:
    """What is neither below `allowed`, nor installed, nor listed."""
    installed = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *site.getsitepackages()}
    roots = [os.path.realpath(path) for path in (*allowed, *installed, ROOT / "cudnn_convert", PROGRAM)]
    listed = [os.path.expanduser(line.split("\t")[0]) for line in LISTED]  # noqa: PTH111 - keeps a last slash
    return sorted(
        path
        for path in set(opened)
        if not any(path == root or path.startswith(f"{root}{os.sep}") for root in roots)
        and not any(path.startswith(begin) for begin in listed)
    )


def test_every_kind_of_source_is_tried() -> None:
    assert set(SOURCES) == set(KINDS)
    assert all(len(line.split("\t")) == 2 for line in LISTED)


@pytest.mark.parametrize("kinds", [["weights"], pytest.param([*SOURCES], marks=pytest.mark.slow)], ids=len)
def test_python_opens_nothing_else(folder: Path, kinds: list[str]) -> None:
    for kind, opened in converted(folder, kinds).items():
        assert opened
        assert strays(opened, folder / kind, folder / "out", folder / "temporary") == [], kind
        assert strays([str(folder.parent / "private.txt")], folder / kind)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="no strace: what native code opens is not seen")
def test_native_code_opens_nothing_else(folder: Path) -> None:
    """Nor does it start a program that is not listed, or reach another machine."""
    log = folder / "temporary" / "strace.log"
    calls = "trace=open,openat,openat2,creat,execve,connect"
    converted(folder, SOURCES, "strace", "-f", "-qq", "-z", "-e", calls, "-o", str(log))
    opened = set()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if call := CALL.search(line):
            path = TEXT.search(call[2])
            assert not (call[1] == "connect" and "AF_INET" in call[2]), line
            if (
                path and path[1].startswith("/") and not Path(path[1]).is_dir()
            ):  # others are of an open folder
                opened.add(os.path.realpath(path[1]) if path[1].startswith(str(folder)) else path[1])
    assert len(opened) > 100
    assert strays(opened, folder) == []
