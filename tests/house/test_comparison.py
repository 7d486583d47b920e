"""What docs/comparison.md says of other tools: each row has a script, and each script finds it so."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

COMPARED = sorted((ROOT / "scripts" / "compare").glob("*.py"))
assert COMPARED
SLOW = {"this_tool", "tf2onnx_gru", "tf2onnx_lstm", "tf2onnx_saved_model"}
assert {path.stem for path in COMPARED} > SLOW


def claims() -> Iterator[Any]:
    """Of other tools at their installed versions; those that convert with several take seconds."""
    for path in COMPARED:
        slow = pytest.mark.slow(f"scripts/compare/{path.name}", "pyproject.toml")
        yield pytest.param(path, id=path.stem, marks=slow if path.stem in SLOW else ())


@pytest.mark.parametrize("script", claims())
def test_a_claim_of_the_comparison_holds(script: Path) -> None:
    holds: Callable[[], bool] = runpy.run_path(str(script))["holds"]
    assert holds()


def test_every_claim_has_a_script() -> None:
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\| `(\w+)` \|$", page, re.MULTILINE)) == [path.stem for path in COMPARED]
