"""The line at the end of a run: all mutants counted, those that survived named, also with pytest-xdist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SAMPLE = """
import pytest

@pytest.mark.mutant
@pytest.mark.parametrize("caught", [True, True, False])
def test_one(caught):
    assert caught

@pytest.mark.mutant
def test_that_does_not_begin(nothing_of_this_name):
    pass

@pytest.mark.mutant
def test_skipped():
    pytest.skip("not tried")

def test_of_another_kind():
    assert False
"""
ALONE = """
def test_of_another_kind():
    pass
"""


def said(folder: Path, content: str, *flags: str) -> list[str]:
    """What a run over one file says of mutants."""
    (folder / "test_sample.py").write_text(content)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider"),
            *("-c", os.devnull, "--rootdir", str(folder), "-o", "markers=mutant", *flags, str(folder)),
        ],
        env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "test_sample.py::" in done.stdout or "1 passed" in done.stdout, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("mutants:", "survived:"))]


@pytest.mark.slow("tests/conftest.py", "tests/mutants/")
@pytest.mark.parametrize("flags", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_survivor_is_counted_and_named(tmp_path: Path, flags: tuple[str, ...]) -> None:
    count, *survived = said(tmp_path, SAMPLE, *flags)
    assert count == "mutants: 4 tried, 2 killed"
    assert sorted(survived) == [
        "survived: test_sample.py::test_one[False]",
        "survived: test_sample.py::test_that_does_not_begin",
    ]


def test_a_run_without_mutants_says_nothing_of_them(tmp_path: Path) -> None:
    assert said(tmp_path, ALONE) == []
