"""Which tests run which line, and how long each takes: measured once, by coverage.py, on the whole suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
from sites import Mutant
from stopwatch import plain

#: Beside the repository's ignored files: a measurement is made anew by deleting it.
FOLDER = Path(".mutants")
_LINES, _TIMES = FOLDER / "coverage", FOLDER / "seconds.json"


def measure(package: str, tests: list[str], jobs: int) -> None:
    """Runs the suite, or part of it, once. Raises CalledProcessError where it is not green."""
    FOLDER.mkdir(exist_ok=True)
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-n", str(jobs), "--dist", "loadgroup", "-p", "stopwatch"]
    # Those that make mistakes themselves see no other one: they look for a failure, whatever it comes from.
    command += [f"--cov={package}", "--ignore=tests/mutants", *tests]
    paths = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"COVERAGE_FILE": str(_LINES.absolute()), "PYTHONPATH": paths}
    environment |= {"STOPWATCH": str(_TIMES.absolute())}
    subprocess.run([*command, "--cov-context=test", "--cov-report="], check=True, env=environment)


def is_measured() -> bool:
    return _LINES.exists() and _TIMES.exists()


class Tests:
    """The tests of each line, the most telling first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seconds: dict[str, float] = json.loads(_TIMES.read_text())
        self._data = coverage.CoverageData(str(_LINES))
        self._data.read()

    def seconds(self, test: str) -> float:
        return self._seconds[test]

    def of(self, mutant: Mutant) -> list[str]:
        """Tests that run its line; of a table, all that run a line of its file. Fast ones first, by turns."""
        contexts = self._data.contexts_by_lineno(str(self._root / mutant.path))
        scope = mutant.scope
        lines = contexts.keys() if scope is None else {mutant.line} & contexts.keys()
        if scope is not None and not lines:  # part of a statement that begins on another line
            lines = contexts.keys() & {*range(scope.first, scope.last + 1)}
        found = {plain(context.rpartition("|")[0]) for line in lines for context in contexts[line]}
        return [*_in_turn(sorted(found & self._seconds.keys(), key=self.seconds))]


def _in_turn(tests: list[str]) -> Iterator[str]:
    """One test of each file, then the next of each: what one file cannot see, another may."""
    files = defaultdict(list)
    for test in tests:
        files[test.partition("::")[0]].append(test)
    for turn in range(max(map(len, files.values()), default=0)):
        yield from (group[turn] for group in files.values() if turn < len(group))
