"""The hunt for mutants can only be trusted where a change is found, made and seen."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.samples import ROOT

SOURCE = '''"""A module to hunt in."""

from functools import cache

TABLE = (1, 2)
DEFAULT = ("a", "b")


def taken(at=DEFAULT):
    """Not 0."""
    return at[0]


@cache
def halved(x: int = 4, *, floor=True):
    if x < 0:
        raise ValueError("negative: -1")
    inner = lambda y: y - 1
    return inner(x) // 2 if floor else x / 2


class Kept:
    limit = 3

    def over(self, x):
        return x > self.limit and not x == 7

    def least(self, x):
        return min(x, self.limit)

    def read(self, path):
        pairs = zip(path, path, strict=True)
        try:
            return path.read_text(encoding="utf-8") if path.suffix in (".a", ".b") else None
        except (OSError, ValueError):
            return None
'''


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "mutants"))


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "hunted.py"
    path.write_text(SOURCE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("hunted", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["hunted"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["hunted"]


def changes(tmp_path: Path) -> dict[str, int]:
    from sites import mutants

    return {one.change: k for k, one in enumerate(mutants(Path("hunted.py"), tmp_path))}


def grafted(tmp_path: Path, change: str) -> None:
    from graft import functions, graft

    functions.cache_clear()  # of the test before
    from sites import mutants

    graft([*mutants(Path("hunted.py"), tmp_path)][changes(tmp_path)[change]], tmp_path)


def test_every_change_of_the_module(module: ModuleType, tmp_path: Path) -> None:
    """Nothing of what only people or type checkers read, nothing of a class's body or of a default, no order
    that does not matter, no encoding that is the system's own here."""
    assert [*changes(tmp_path)] == [
        "1, 2 -> 2, 1",
        "1 -> 2",
        "2 -> 3",
        "'a', 'b' -> 'b', 'a'",
        "0 -> 1",
        "x < 0 -> True",
        "x < 0 -> False",
        "x < 0 -> x <= 0",
        "raise ValueError('negative: -1') -> pass",
        "y - 1 -> y + 1",
        "inner(x) // 2 if floor else x / 2 -> inner(x) // 2",
        "inner(x) // 2 if floor else x / 2 -> x / 2",
        "inner(x) // 2 -> inner(x) * 2",
        "x / 2 -> x * 2",
        "x > self.limit and (not x == 7) -> x > self.limit or not x == 7",
        "x > self.limit -> x >= self.limit",
        "not x == 7 -> x == 7",
        "x == 7 -> x != 7",
        "7 -> 8",
        "path.read_text(encoding='utf-8') if path.suffix in ('.a', '.b') else None "
        "-> path.read_text(encoding='utf-8')",
        "path.read_text(encoding='utf-8') if path.suffix in ('.a', '.b') else None -> None",
        "path.suffix in ('.a', '.b') -> path.suffix not in ('.a', '.b')",
    ]


def test_a_function_changes_for_those_who_hold_it(module: ModuleType, tmp_path: Path) -> None:
    held, kept = module.halved, module.Kept()
    grafted(tmp_path, "y - 1 -> y + 1")
    assert held(4) == 2
    assert not kept.over(3)
    grafted(tmp_path, "x > self.limit -> x >= self.limit")
    assert kept.over(3)


def test_a_table_changes_wherever_it_went(module: ModuleType, tmp_path: Path) -> None:
    other = ModuleType("hunted_user")
    other.DEFAULT = module.DEFAULT  # type: ignore[attr-defined]
    sys.modules["hunted_user"] = other
    try:
        grafted(tmp_path, "'a', 'b' -> 'b', 'a'")
        assert module.DEFAULT == ("b", "a")
        assert other.DEFAULT == ("b", "a")  # type: ignore[attr-defined]
        assert module.taken() == "b"
        assert module.TABLE == (1, 2)
    finally:
        del sys.modules["hunted_user"]


def test_a_line_is_found_where_it_moved(tmp_path: Path) -> None:
    from covered import _moved

    before, now = tmp_path / "before.py", tmp_path / "now.py"
    before.write_text("a\nb\nc\nd\n")
    now.write_text("new\na\nB\nc\n")
    assert _moved(before, now) == {1: 2, 3: 4}
    assert _moved(tmp_path / "gone.py", now) == {}


def test_tests_of_an_expression_are_those_of_its_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python begins `x if c else y` at the line of `c`, and runs the line of `x` only where it is true."""
    import coverage
    from covered import Tests
    from sites import mutants

    path, kept = tmp_path / "package" / "hunted.py", tmp_path / ".mutants" / "0"
    path.parent.mkdir()
    path.write_text("def f(c):\n    return (\n        1\n        if c\n        else 2\n    )\n")
    shutil.copytree(path.parent, kept / "package")
    (kept / "seconds.json").write_text(json.dumps({"tests/t.py::true": 1.0, "tests/t.py::false": 2.0}))
    monkeypatch.chdir(tmp_path)
    data = coverage.CoverageData(str(kept / "coverage"))
    for test, lines in (("tests/t.py::true", [2, 3, 4]), ("tests/t.py::false", [2, 4, 5])):
        data.set_context(f"{test}|run")
        data.add_lines({"package/hunted.py": lines})
    data.close()
    tests = Tests(tmp_path, Path("package"))
    of = {mutant.change: tests.of(mutant) for mutant in mutants(Path("package/hunted.py"), tmp_path)}
    both = ["tests/t.py::true", "tests/t.py::false"]
    assert of == {
        "1 if c else 2 -> 1": both,
        "1 if c else 2 -> 2": both,
        "1 -> 2": ["tests/t.py::true"],
        "2 -> 3": ["tests/t.py::false"],
    }


def test_each_test_has_its_turn_before_the_cases_of_one() -> None:
    from covered import _in_turn

    found = _in_turn(["a.py::one[1]", "a.py::one[2]", "a.py::two", "b.py::one[1]", "b.py::one[3]"])
    assert [*found] == ["a.py::one[1]", "a.py::two", "b.py::one[1]", "a.py::one[2]", "b.py::one[3]"]
