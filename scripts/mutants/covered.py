"""Which tests run which line, and how long each takes: measured once, by coverage.py, without `every`."""

from __future__ import annotations

import ast
import difflib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import coverage
from sites import Mutant
from stopwatch import plain

#: Beside the repository's ignored files: all is measured anew once it is deleted.
FOLDER = Path(".mutants")


def measure(package: str, tests: list[str], jobs: int) -> None:
    """Runs the suite, or adds part of it to what is known. Raises CalledProcessError where one fails.

    Each measurement keeps the package as it was: lines move while tests are written and code is mended.
    """
    if not tests:
        for old in _measured():
            shutil.rmtree(old)
    folder = (FOLDER / str(len(_measured()))).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(package, folder / "package", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-n", str(jobs), "--dist", "loadgroup", "-p", "stopwatch"]
    command += ["-m", "not every"]  # one more of the same sees no other mistake, and takes as long
    # Those that make mistakes themselves see no other one: they look for a failure, whatever it comes from.
    command += [f"--cov={package}", "--ignore=tests/mutants", *tests, "--cov-context=test", "--cov-report="]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    files = {"COVERAGE_FILE": str(folder / "coverage"), "STOPWATCH": str(folder / "seconds.json")}
    subprocess.run(command, check=True, env=os.environ | files | {"PYTHONPATH": paths})


def _measured() -> list[Path]:
    """The folders of whole measurements, in their order."""
    return sorted((path.parent for path in FOLDER.glob("*/seconds.json")), key=lambda path: int(path.name))


def is_measured() -> bool:
    return bool(_measured())


class Tests:
    """The tests of each line, the most telling first."""

    def __init__(self, root: Path, package: Path) -> None:
        self._root, self._package = root, package
        self._seconds: dict[str, float] = {}
        self._data: dict[Path, coverage.CoverageData] = {}
        for folder in _measured():
            self._seconds |= json.loads((folder / "seconds.json").read_text(encoding="utf-8"))
            self._data[folder] = coverage.CoverageData(str(folder / "coverage"))
            self._data[folder].read()

    def seconds(self, test: str) -> float:
        return self._seconds[test]

    def of(self, mutant: Mutant) -> list[str]:
        """Tests that run any line of the changed code; for a table, those that run a line naming it.

        First those of its own file, then those of its room; of each kind fast ones first, by turns.
        """
        contexts, scope = self._contexts(mutant.path), mutant.scope
        if scope is None:
            found = self._naming(mutant.table) or set[str]().union(*contexts.values())
        else:  # Python counts part of a statement as run on the statement's own line
            found = _tests_within(contexts, mutant.line, mutant.last)
            found = found or _tests_within(contexts, scope.first, scope.last)
        return sorted(
            _in_turn(sorted(found, key=self.seconds)), key=lambda test: _distance(test, mutant.path)
        )

    @cache  # noqa: B019 - one object, as long as the process
    def _contexts(self, path: Path) -> dict[int, set[str]]:
        """The tests of each line of a file."""
        found = defaultdict[int, set[str]](set)
        for folder, data in self._data.items():
            now = _moved(folder.joinpath("package", *path.parts[1:]), self._root / path)
            for line, contexts in data.contexts_by_lineno(path.as_posix()).items():
                if line in now:
                    found[now[line]] |= {plain(name.rpartition("|")[0]) for name in contexts}
        return {line: contexts & self._seconds.keys() for line, contexts in found.items()}

    @cache  # noqa: B019
    def _naming(self, table: str) -> set[str]:
        found = set()
        for path in sorted((self._root / self._package).rglob("*.py")):
            contexts = self._contexts(path.relative_to(self._root))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
                if name == table:
                    found |= contexts.get(node.lineno, set())
        return found


def _tests_within(contexts: Mapping[int, set[str]], first: int, last: int) -> set[str]:
    """The tests that run a line from `first` to `last`."""
    return set[str]().union(*(contexts.get(line, ()) for line in range(first, last + 1)))


def _moved(before: Path, now: Path) -> dict[int, int]:
    """Where each line of a module stands now; those that were changed have no place."""
    old, new = (
        path.read_text(encoding="utf-8").splitlines() if path.exists() else [] for path in (before, now)
    )
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return {block.a + k + 1: block.b + k + 1 for block in blocks for k in range(block.size)}


def _distance(test: str, path: Path) -> int:
    """0 for a test of the module, 1 for one of its room, 2 for others: tests/ mirrors the package."""
    file, room = Path(test.partition("::")[0]), path.parts[1].removesuffix(".py")
    return 0 if file.stem == f"test_{path.stem}" else 1 if room in (file.parts[1], file.stem[5:]) else 2


def _in_turn(tests: list[str]) -> Iterator[str]:
    """One case of each test, then the next of each: what one test cannot see, another may."""
    cases = defaultdict(list)
    for test in tests:
        cases[test.partition("[")[0]].append(test)
    for turn in range(max(map(len, cases.values()), default=0)):
        yield from (group[turn] for group in cases.values() if turn < len(group))
