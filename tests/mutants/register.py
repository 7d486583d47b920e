"""The register of mutants: for each class of mistakes a test of the first tier that sees one.

A class is a mistake and where it is made, whatever mode, format or sample it is tried with. A test's marker
`mutant(*classes)` names its own; without names its function does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

FILE = Path(__file__).parent / "REGISTER"


@dataclass(frozen=True)
class Mutant:
    """A collected test: its id, the classes that it is one of, and whether every push runs it."""

    test: str
    classes: frozenset[str]
    is_first: bool


@dataclass(frozen=True)
class Collected:
    """The files that a run collected, and the mutants in them."""

    files: frozenset[str]
    mutants: tuple[Mutant, ...]


COLLECTED = pytest.StashKey[Collected]()


def tried(items: Iterable[pytest.Item]) -> Iterator[Mutant]:
    from support import tiers  # pytest has put it on the path

    for item in items:
        marks = [*item.iter_markers("mutant")]
        if not marks:
            continue
        file, _, function = item.nodeid.partition("::")
        by_name = (
            f"{Path(file).stem.removeprefix('test_')}: {function.partition('[')[0].removeprefix('test_')}"
        )
        classes = frozenset(name for mark in marks for name in mark.args) or {by_name.replace("_", " ")}
        yield Mutant(item.nodeid, frozenset(classes), tiers.is_first(item))


def read(text: str) -> list[tuple[str, str]]:
    """The rows, a class and a test: a line names a test, those below it parameters, a tab and a class."""
    rows, function = [], ""
    for line in text.splitlines():
        if line.startswith(" "):
            parameters, _, name = line.strip(" ").partition("\t")
            rows.append((name, function + parameters))
        elif not line.startswith("#"):
            function = line
    return rows


def tests() -> frozenset[str]:
    """The ids of the tests in the register, which the first tier runs."""
    return frozenset(test for _, test in read(FILE.read_text(encoding="utf-8")))


def render(rows: Iterable[tuple[str, str]]) -> str:
    """The text of the register: what `read` reads."""
    lines = ["# Written by `python tests/mutants/register.py`: classes of mutants, and tests that see them."]
    function = ""
    for test, name in sorted((test, name) for name, test in rows):
        head, bracket, parameters = test.partition("[")
        if head != function:
            lines.append(head)
            function = head
        lines.append(f"  {bracket}{parameters}\t{name}")
    return "\n".join(lines) + "\n"


def find_rows(collected: Collected) -> dict[str, str]:
    """For each class the first test of the first tier that sees one."""
    found: dict[str, str] = {}
    for mutant in collected.mutants:
        for name in mutant.classes if mutant.is_first else ():
            found.setdefault(name, mutant.test)
    return found


def objections(rows: Iterable[tuple[str, str]], collected: Collected) -> list[str]:
    """What is wrong with the rows as far as their files were collected; a row to write is written out."""
    listed = [*rows]
    names = [name for name, _ in listed]
    found = [f"twice: {name}" for name in sorted({name for name in names if names.count(name) > 1})]
    by_test = {mutant.test: mutant for mutant in collected.mutants}
    for name, test in listed:
        if test.partition("::")[0] not in collected.files:
            continue
        mutant = by_test.get(test)
        if mutant is None:
            found.append(f"no mutant: {test}")
        elif name not in mutant.classes:
            found.append(f"of another class than {name!r}: {test}")
        elif not mutant.is_first:
            found.append(f"not in the first tier: {test}")
    first = find_rows(collected)
    tried_at_all = {name for mutant in collected.mutants for name in mutant.classes}
    for name in sorted(tried_at_all - {*names}):
        found.append(f"missing: {name}, for {first.get(name, 'which there is no test of the first tier')}")
    return found


class Writer:
    """A plugin that writes the register of what a run collects."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from mutants import register  # the module that the tests import, not the one that is run

        FILE.write_text(render(find_rows(session.config.stash[register.COLLECTED]).items()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(pytest.main(["--collect-only", "-qq", str(FILE.parents[1])], plugins=[Writer()]))
