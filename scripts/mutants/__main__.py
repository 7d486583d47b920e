"""Mutation testing of what turns a file's weights into an artifact's: no small change may pass unseen.

    python scripts/mutants [--only lower/tensorflow/layer_stack.py] [--seconds 60] [--jobs 2]
    python scripts/mutants --measure --tests tests/weights/test_lazy.py    # adds tests to what is known
    python scripts/mutants --left                                    # what no test killed so far

Runs the suite once to learn which tests run which line (kept in .mutants/), then makes every change of
`operators.py` to the modules below, one at a time, and runs the tests that reach it until one fails, first
that which killed it last time. A survivor must stand in explained.txt, with the reason why no test can see
it, else the command ends with 1. Needs a system with fork, and the packages of the extra `dev`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import covered
import killers
import pytest
from hunt import Hunt, Trial, Verdict
from sites import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("cudnn_convert")
HUNTED = (
    *(f"weights/{name}.py" for name in ("layouts", "lazy", "parameter_blob", "buffers")),
    *("reference", "read", "lower", "decode"),
)
#: Seconds of tests for each mutant at first: most are killed by the first test.
_QUICK = 2.0
EXPLAINED = Path(__file__).with_name("explained.txt")


def files(only: list[str]) -> list[Path]:
    """The modules to hunt in, by their paths below ROOT."""
    found = []
    for name in HUNTED:
        path = ROOT / PACKAGE / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    below = [path.relative_to(ROOT) for path in found]
    return [path for path in below if not only or any(part in path.as_posix() for part in only)]


def trials(
    hunted: Iterable[Mutant],
    tests: covered.Tests,
    before: Mapping[str, Container[str]],
    known: Container[str],
    budget: float,
) -> Iterator[Trial]:
    """Each mutant with tests that reach it, its killers first, as many as usually run in `_QUICK` seconds.

    A survivor that is not `known` has to pass as many more as run in `budget` seconds.
    """
    for mutant in hunted:
        reaching = sorted(tests.of(mutant), key=lambda test: test not in before.get(mutant.name, ()))
        first = _within(reaching, tests, _QUICK)
        tried = {*first.tests}
        rest = _within([test for test in reaching if test not in tried], tests, budget)
        more = replace(rest, mutant=mutant) if rest.tests and mutant.name not in known else None
        yield replace(first, mutant=mutant, more=more)


def _within(reaching: list[str], tests: covered.Tests, budget: float) -> Trial:
    chosen, seconds = [], 0.0
    for test in reaching:
        if not chosen or seconds + tests.seconds(test) <= budget:
            chosen.append(test)
            seconds += tests.seconds(test)
    return Trial(None, chosen, seconds)


def explained() -> dict[str, str]:
    """Why no test can see a mutant, by its name: a line each, the reason indented below the name."""
    found: dict[str, str] = {}
    name = ""
    for line in EXPLAINED.read_text(encoding="utf-8").splitlines():
        if line.startswith(" "):
            found[name] = line.strip()
        elif line and not line.startswith("#"):
            name = line
    return found


class Tally:
    """Counts verdicts, and tells each survivor as it is found."""

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons, self.unexplained, self.told = reasons, [], set[str]()
        self.counts: dict[str, Counter[str]] = {}
        self.begun = time.monotonic()

    def add(self, verdict: Verdict) -> None:
        mutant = verdict.trial.mutant
        count = self.counts.setdefault(mutant.path.relative_to(PACKAGE).as_posix(), Counter())
        count["tried"] += 1
        if verdict.killer:
            count["timeout" if verdict.killer == "timeout" else "killed"] += 1
            killers.keep(mutant.name, verdict.killer)
            return
        reason = self.reasons.get(mutant.name)
        self.told.add(mutant.name)
        count["explained" if reason else "survived"] += 1
        if not reason:
            self.unexplained.append(mutant.name)
            tests = f"{len(verdict.trial.tests)} tests, {verdict.trial.seconds:.0f} s"
            print(f"survived ({tests}) line {mutant.line}\n{mutant.name}", flush=True)

    def table(self) -> str:
        heads = ("tried", "killed", "timeout", "explained", "survived")
        rows = [("module", *heads)]
        rows += [(name, *(str(count[head]) for head in heads)) for name, count in sorted(self.counts.items())]
        rows.append(("all", *(str(sum(count[head] for count in self.counts.values())) for head in heads)))
        seconds = time.monotonic() - self.begun
        lines = [f"{row[0]:34}" + "".join(f"{cell:>11}" for cell in row[1:]) for row in rows]
        return "\n".join([*lines, f"{seconds / 60:.1f} minutes"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="part of a module's path; repeatable")
    parser.add_argument("--left", action="store_true", help="only those that no test killed so far")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests that a survivor has to pass")
    parser.add_argument("--tests", action="append", default=[], help="measure these alone; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--measure", action="store_true", help="measure the suite again, and nothing else")
    given = parser.parse_args()
    os.chdir(ROOT)
    if given.measure or not covered.is_measured():
        covered.measure(PACKAGE.name, given.tests, given.jobs)
    if given.measure:
        return 0
    tests, before, reasons = covered.Tests(ROOT, PACKAGE), killers.known(), explained()
    every = (found for path in files(given.only) for found in mutants(path, ROOT))
    hunted = (found for found in every if not (given.left and found.name in before))
    tried = [*trials(hunted, tests, before, reasons, given.seconds)]
    tally = Tally(reasons)
    hunt = Hunt(tried, tally.add, ROOT, given.jobs)
    each = [one for trial in tried for one in (trial, trial.more) if one is not None]
    wanted = sorted({test.partition("::")[0] for trial in each for test in trial.tests})
    ended = pytest.main(["-s", "-q", "-n", "0", "-m", "not every", *wanted], plugins=[hunt])
    for test in sorted(hunt.unfit):
        print(f"left out, fails without any mutant: {test}")
    stale = [] if given.only or given.left else sorted(tally.reasons.keys() - tally.told)
    for name in stale:
        print(f"explained, but killed now, or gone: {name}")
    print(tally.table())
    return 1 if ended or stale or tally.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
