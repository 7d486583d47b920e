"""The structure's figures stay in their bounds, and each of them can fail."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

HOUSE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "measure_house.py"))


def test_figures_are_in_their_bounds() -> None:
    over = {words: (value, most) for words, value, most in HOUSE["figures"]() if value > most}
    assert over == {}, "make house shows all figures"


def test_each_question_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse(
        "if model.graph is None: pass\n"
        "if self.plan.whole is not None or plan.singles: pass\n"
        "if not plan.singles: pass\n"
        "assert model.saved is not None\n"
        "if options.graph is None: pass\n"
        "for single in plan.singles: pass\n"
    )
    monkeypatch.setitem(HOUSE["list_variant_questions"].__globals__, "trees", lambda: {Path("a.py"): tree})
    assert HOUSE["list_variant_questions"]() == ["a.py:1", "a.py:2"]
    assert HOUSE["list_questions_after_singles"]() == ["a.py:2", "a.py:3"]


def test_a_circle_is_seen_in_functions_too(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {
        Path("a.py"): ast.parse("from cudnn_convert import b"),
        Path("b.py"): ast.parse("def f():\n    from cudnn_convert.room import c"),
        Path("room/c.py"): ast.parse("from cudnn_convert.a import name"),
    }
    monkeypatch.setitem(HOUSE["find_circle"].__globals__, "trees", lambda: trees)
    assert {*HOUSE["find_circle"]()} == {"a", "b", "room.c"}


def test_a_class_of_two_modules_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {Path("a.py"): ast.parse("class _Cell: pass"), Path("b.py"): ast.parse("class Cell: pass")}
    monkeypatch.setitem(HOUSE["list_repeated_classes"].__globals__, "trees", lambda: trees)
    assert HOUSE["list_repeated_classes"]() == {"Cell": ["a.py", "b.py"]}
    assert HOUSE["list_untested_modules"]() == ["a.py", "b.py"]
