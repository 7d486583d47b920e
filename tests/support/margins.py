"""The share of its bound that each comparison of floats uses.

A comparison that passes with 0.9 of its bound fails on a processor that rounds otherwise. The end of a run
names those that use more than half. `make kernels` runs the suite on other kernels and fails where one does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TESTS = Path(__file__).resolve().parents[1]
SUPPORT = TESTS / "support"
#: The share that a comparison may use: the other half is for processors that nobody tried.
HALF = 0.5
#: The largest share seen, by the line that compares, with the test that did; workers send theirs.
SHARES: dict[str, tuple[float, str]] = {}


def note_share(share: float) -> None:
    """Keep `share` for the line of a test that compares, if it is the largest there."""
    where = _find_line()
    if share > SHARES.get(where, (0.0, ""))[0]:
        SHARES[where] = float(share), os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def note_shares(others: dict[str, Any]) -> None:
    """Keep what another process noted."""
    for where, (share, test) in others.items():
        SHARES[where] = max(SHARES.get(where, (0.0, "")), (share, test))


def _find_line() -> str:
    """The innermost line of a test, or of a helper where no test calls."""
    frame, found = sys._getframe(1), ""
    while frame := frame.f_back:
        path = Path(frame.f_code.co_filename)
        if TESTS in path.parents:
            found = found or f"{path.relative_to(TESTS)}:{frame.f_lineno}"
            if SUPPORT not in path.parents:
                return f"{path.relative_to(TESTS)}:{frame.f_lineno}"
    return found or "?"


def measure_share(found: Any, expected: Any, *, atol: float, rtol: float) -> float:
    """The largest `|found - expected| / (atol + rtol * |expected|)`; values that are not finite count 0."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.kind not in "fiub" or expected.dtype.kind not in "fiub":
        return 0.0
    found, expected = np.broadcast_arrays(found.astype(np.float64), expected.astype(np.float64))
    is_finite = np.isfinite(found) & np.isfinite(expected)
    gaps = np.abs(found[is_finite] - expected[is_finite])
    bounds = atol + rtol * np.abs(expected[is_finite])
    used = gaps > 0
    with np.errstate(divide="ignore"):
        return float(np.max(gaps[used] / bounds[used], initial=0.0))


def watch() -> Callable[[], None]:
    """Let `np.testing.assert_allclose` note its shares; gives what ends that."""
    compare = np.testing.assert_allclose

    def assert_allclose(
        actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0, **options: Any
    ) -> None:
        __tracebackhide__ = True
        compare(actual, desired, rtol=rtol, atol=atol, **options)
        note_share(measure_share(actual, desired, atol=atol, rtol=rtol))

    patch = pytest.MonkeyPatch()
    patch.setattr(np.testing, "assert_allclose", assert_allclose)
    return patch.undo


def describe_narrow() -> list[str]:
    """A line for each comparison that uses more than HALF of its bound, the narrowest first."""
    narrow = sorted(((*found, where) for where, found in SHARES.items() if found[0] > HALF), reverse=True)
    return [f"uses {share:.2f} of its bound: {where} in {test}" for share, test, where in narrow]
