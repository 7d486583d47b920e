"""The hunt itself, in a project of three tests: what kills, what survives, and a test that may not judge."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.samples import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the hunt forks")

MODULE = """
import os

def larger(x, y):
    return x if x > y else y

def called(x):
    if x < 0:
        os.abort()
    return 3

def unseen(x):
    return x + 1
"""
TESTS = """
import hunted

def test_larger():
    assert hunted.larger(1, 2) == 2

def test_others():
    assert hunted.called(1) == 3
    assert hunted.unseen(1)

def test_that_fails():
    assert False
"""
CONFTEST = """
import gc

def pytest_collection_finish():
    gc.freeze()  # as this suite's own conftest does
"""
PROGRAM = """
import json, sys
from pathlib import Path
root = Path(sys.argv[1])
sys.path[:0] = [sys.argv[2], str(root)]
import hunted, pytest
from hunt import Hunt, Trial
from sites import mutants

names = [f"test_it.py::{name}" for name in json.loads(sys.argv[3])]
changed = mutants(Path("hunted.py"), root)
trials = [Trial(mutant, names[:1], 1.0, Trial(mutant, names[1:], 1.0)) for mutant in changed]
found = {}
def told(verdict):
    found[verdict.trial.mutant.change] = verdict.killer
hunt = Hunt(trials, told, root, 2)
pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", "test_it.py", "--rootdir=."], plugins=[hunt])
print(json.dumps([found, sorted(hunt.unfit)]))
"""


def hunted(folder: Path, *tests: str) -> tuple[dict[str, str], list[str]]:
    """Who killed each change, empty for a survivor, and the tests that were left out."""
    (folder / "hunted.py").write_text(MODULE)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "conftest.py").write_text(CONFTEST)
    tools = str(ROOT / "scripts" / "mutants")
    call = [sys.executable, "-c", PROGRAM, str(folder), tools, json.dumps(tests)]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, unfit = json.loads(done.stdout.splitlines()[-1])
    return found, unfit


@pytest.mark.slow("scripts/mutants/")
def test_each_change_meets_its_tests(tmp_path: Path) -> None:
    found, unfit = hunted(tmp_path, "test_larger", "test_others")
    larger, others = "test_it.py::test_larger", "test_it.py::test_others"
    assert found == {
        "x if x > y else y -> x": larger,
        "x if x > y else y -> y": "",
        "x > y -> x >= y": "",
        "x < 0 -> True": "signal 6",
        "x < 0 -> False": "",
        "x < 0 -> x <= 0": "",
        "0 -> 1": "",
        "os.abort() -> pass": "",
        "3 -> 4": others,
        "x + 1 -> x - 1": others,
        "1 -> 2": "",
    }
    assert unfit == []


@pytest.mark.slow("scripts/mutants/")
def test_a_test_that_fails_without_a_change_kills_none(tmp_path: Path) -> None:
    found, unfit = hunted(tmp_path, "test_that_fails", "test_larger", "test_gone")
    assert unfit == ["test_it.py::test_gone", "test_it.py::test_that_fails"]
    assert {change for change, killer in found.items() if killer} == {"x if x > y else y -> x"}
    assert found["x if x > y else y -> x"] == "test_it.py::test_larger"


def test_killers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "mutants"))
    import killers

    path = tmp_path / "killers.tsv"
    assert killers.known(path) == {}
    killers.keep("a.py: x: 1 -> 2", "test_old", path)
    killers.keep("b.py: y: 1 -> 2", "test_b", path)
    killers.keep("a.py: x: 1 -> 2", "test_new", path)
    assert killers.known(path) == {"a.py: x: 1 -> 2": {"test_old", "test_new"}, "b.py: y: 1 -> 2": {"test_b"}}
