"""A pytest plugin: the seconds that each passed test took with its fixtures, as JSON in $STOPWATCH."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

_seconds: dict[str, float] = defaultdict(float)
_unfit: set[str] = set()


def plain(nodeid: str) -> str:
    """The test's name without the group that pytest-xdist's `loadgroup` writes behind it."""
    return nodeid.rpartition("@")[0] or nodeid


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = plain(report.nodeid)
    _seconds[name] += report.duration
    if report.outcome != "passed":
        _unfit.add(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        kept = {name: round(found, 3) for name, found in _seconds.items() if name not in _unfit}
        Path(os.environ["STOPWATCH"]).write_text(json.dumps(kept), encoding="utf-8")
