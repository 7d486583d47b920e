"""What the README says of other tools: each row of its table has a script, and each script finds it so."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from support.samples import ROOT

COMPARED = sorted((ROOT / "scripts" / "compare").glob("*.py"))
assert COMPARED


@pytest.mark.parametrize("script", COMPARED, ids=lambda path: path.stem)
def test_a_claim_of_the_comparison_holds(script: Path) -> None:
    holds: Callable[[], bool] = runpy.run_path(str(script))["holds"]
    assert holds()


def test_every_claim_has_a_script() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.split("[start:comparison]")[1].split("[end:comparison]")[0]
    assert sorted(re.findall(r"\| `(\w+)` \|$", table, re.MULTILINE)) == [path.stem for path in COMPARED]
