"""`pytest --fast`: the product is left out; slow tests too, unless a file that they are about changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: A path in a marker of a test, as written; no f-strings.
MARKED = re.compile(r'mark\.slow\(\s*((?:"[^"]+",?\s*)+)\)')
SAMPLE = """
import pytest

def test_without_a_mark():
    pass

@pytest.mark.slow("cudnn_convert/storage", "scripts/other.py")
def test_of_a_changed_file():
    pass

@pytest.mark.slow("cudnn_convert/read/")
def test_of_another_file():
    pass

@pytest.mark.every
def test_of_the_product():
    pass

@pytest.mark.every
@pytest.mark.slow("cudnn_convert/storage")
def test_of_the_product_of_a_changed_file():
    pass
"""
#: As git: `diff` names a changed file, `ls-files` a new one.
GIT = """#!/bin/sh
case "$1" in diff) echo cudnn_convert/storage/__init__.py;; ls-files) echo docs/new.md;; *) exit 1;; esac
"""


def passed(folder: Path, *flags: str) -> set[str]:
    """The tests of the sample that ran and passed, by name."""
    (folder / "test_sample.py").write_text(SAMPLE)
    (folder / "git").write_text(GIT)
    (folder / "git").chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    options = ["-vv", "-p", "conftest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-o", "markers=slow\nevery", *flags, str(folder)],
        env={**os.environ, "PYTHONPATH": str(TESTS), "PATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if " PASSED" in line]
    return {line.partition("::test_")[2].partition(" ")[0] for line in lines}


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for git is a shell script")
def test_slow_tests_run_where_their_files_changed(tmp_path: Path) -> None:
    assert passed(tmp_path, "--fast") == {"without_a_mark", "of_a_changed_file"}
    assert passed(tmp_path) == {
        *("without_a_mark", "of_a_changed_file", "of_another_file"),
        *("of_the_product", "of_the_product_of_a_changed_file"),
    }


def test_marks_name_files_that_exist() -> None:
    """A file that moves takes its slow tests along only where they name it anew."""
    marks = [
        (path.name, name)
        for path in TESTS.rglob("test_*.py")
        if path.name != "test_tiers.py"
        for words in MARKED.findall(path.read_text(encoding="utf-8"))
        for name in re.findall(r'"([^"]+)"', words)
    ]
    assert len(marks) > 30
    assert [mark for mark in marks if not [*TESTS.parent.glob(f"{mark[1].rstrip('/')}*")]] == []
