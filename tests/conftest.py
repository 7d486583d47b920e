"""What the whole suite shares."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A path where nothing is yet."""
    return tmp_path / "out"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many mutants were tried and killed, and the names of those that survived.

    A test with the marker `mutant` is one mutant. With pytest-xdist this runs where all reports arrive.
    """
    killed, survived = (
        [
            report.nodeid
            for kind in kinds
            for report in terminalreporter.getreports(kind)
            if _is_mutant(report)
        ]
        for kinds in (("passed",), ("failed", "error"))
    )
    if killed or survived:
        terminalreporter.write_line(
            f"mutants: {len(killed) + len(survived)} tried, {len(killed)} killed", bold=True
        )
    for name in survived:
        terminalreporter.write_line(f"survived: {name}", red=True)


def _is_mutant(report: Any) -> bool:
    return "mutant" in getattr(report, "keywords", ())
