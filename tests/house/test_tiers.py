"""`pytest --fast`: what it leaves out, what a base adds, and when it fails though each test passed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import budget, tiers

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

@pytest.mark.first("x", "z")
@pytest.mark.parametrize("which", ["x", "y", "z"])
def test_of_few(which):
    pass

@pytest.mark.mutant
def test_of_a_mutant_without_a_row():
    pass

@pytest.mark.every
@pytest.mark.slow("cudnn_convert/storage")
def test_of_the_product_of_a_changed_file():
    pass
"""
#: As git: `diff` names a changed file, `ls-files` a new one.
GIT = """#!/bin/sh
case "$*" in
    *main) echo cudnn_convert/storage/__init__.py;;
    ls-files*) echo docs/new.md;;
    *) echo "unknown revision" >&2; exit 128;;
esac
"""


#: Comparisons, by the share of their bounds that they use.
COMPARING = """
import numpy as np

def test_near():
    np.testing.assert_allclose([1.0, 2.0], [1.0, 2.6], rtol=0, atol=1)

def test_near_its_recording():
    from support.recorded import assert_close
    assert_close(np.array([1.0, 1.9]), np.array([0.8, 2.0]), 0.125)

def test_far():
    np.testing.assert_allclose([1.0, np.inf], [1.4, np.inf], rtol=0, atol=1)
"""


def run(folder: Path, sample: str, *flags: str, base: str = "") -> tuple[int, str]:
    """The exit code and what is printed of a sample's tests, in a folder whose files changed since `base`."""
    (folder / "test_sample.py").write_text(sample)
    (folder / "git").write_text(GIT)
    (folder / "git").chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "CUDNN_CONVERT_BASE": base,
    }
    options = ["-vv", "-p", "conftest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    options += ["-o", "markers=slow\nevery\nfirst\nmutant"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *flags, str(folder)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def passed(folder: Path, *flags: str, base: str = "") -> set[str]:
    """The tests of SAMPLE that ran and passed, by name."""
    code, printed = run(folder, SAMPLE, *flags, base=base)
    assert code == 0, printed
    lines = [line for line in printed.splitlines() if " PASSED" in line]
    return {line.partition("::test_")[2].partition(" ")[0] for line in lines}


@pytest.mark.slow("tests/conftest.py", "tests/support/tiers.py", "tests/mutants/register.py")
@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for git is a shell script")
def test_slow_tests_run_where_their_files_changed_since_a_base(tmp_path: Path) -> None:
    assert passed(tmp_path, "--fast") == {"without_a_mark", "of_few[x]", "of_few[z]"}
    assert passed(tmp_path, "--fast", base="main") == {
        "without_a_mark",
        "of_few[x]",
        "of_few[z]",
        "of_a_changed_file",
    }
    assert passed(tmp_path, base="main") == {
        *("without_a_mark", "of_a_changed_file", "of_another_file"),
        *("of_few[x]", "of_few[y]", "of_few[z]"),
        *("of_the_product", "of_the_product_of_a_changed_file", "of_a_mutant_without_a_row"),
    }
    code, printed = run(tmp_path, SAMPLE, "--fast", base="mian")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "CUDNN_CONVERT_BASE: expected a commit of this repository, found mian: unknown revision" in printed


@pytest.mark.slow("tests/conftest.py", "tests/support/margins.py")
def test_comparisons_near_their_bounds_are_named_and_fail_where_that_is_asked(tmp_path: Path) -> None:
    code, printed = run(tmp_path, COMPARING, "-n", "1", "--within-half")
    near = [line.partition(" in ")[2] for line in printed.splitlines() if line.startswith("uses 0.")]
    assert near == ["test_sample.py::test_near_its_recording", "test_sample.py::test_near"]
    assert "uses 0.60 of its bound" in printed
    assert code == 1


@pytest.mark.parametrize(
    ("seconds", "over", "refused"), [(100, False, False), (110, True, False), (130, True, True)]
)
def test_costs_are_held_against_a_budget(
    monkeypatch: pytest.MonkeyPatch, seconds: int, over: bool, refused: bool
) -> None:
    """A machine on which the work takes twice as long has twice the seconds."""
    monkeypatch.setattr(budget, "SECONDS", 100)
    monkeypatch.setattr(budget, "WORK", 1.0)
    cost = budget.Cost(2 * seconds, (1.5, 2.5))
    assert (cost.scaled, cost.is_over, cost.is_refused) == (seconds, over, refused)
    assert f"{seconds} where it takes 1.000 s: " in cost.describe()
    assert ("over the budget of 100" in cost.describe()) == over


def test_a_run_over_its_budget_fails_where_that_is_asked(tmp_path: Path) -> None:
    spent = "from support import budget\nbudget.SECONDS = 0\ndef test_anything():\n    pass\n"
    code, printed = run(tmp_path, spent, "--fast", "--within-budget")
    assert "over the budget of 0" in printed
    assert code == 1


def test_marks_name_parameters_that_exist(request: pytest.FixtureRequest) -> None:
    """Of each test that was collected: an id that is misspelt would take its test out of the first tier."""
    names, found = {}, {}
    for test, ids, id_ in request.config.stash[tiers.COLLECTED]:
        names[test] = {*ids}
        found.setdefault(test, set()).add(id_)
    assert {test: left for test, ids in names.items() if (left := ids - found[test])} == {}


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
