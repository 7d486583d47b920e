"""Feeds that the user gives, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification import arrays, way
from cudnn_convert.verification.way import Source

_CUT_OFF: Final = "arrays of type object keep the zero bytes at the end of strings, those of type S do not"


def accepted(plan: Plan, source: Source, path: Path) -> list[dict[str, Array]]:
    """The feeds in an `.npz` whose keys are the signature's, or `feed<k>/` and these. Raises UsageError."""
    feeds, where = read(plan, path), f"--data {path}"
    try:
        for feed in feeds:
            way.of(plan).require_accepted(plan, source, feed, where=where)
    except UsageError as error:
        if any(value.dtype.kind == "S" for value in arrays.load(path, flag="--data", strings=True).values()):
            raise UsageError(f"{error}; {_CUT_OFF}") from error
        raise
    return feeds


def read(plan: Plan, path: Path) -> list[dict[str, Array]]:
    """The feeds of `accepted`, by tensor, as the source takes them; nothing runs. Raises UsageError."""
    where = f"--data {path}"
    calls = arrays.calls(arrays.load(path, flag="--data", strings=True), where=where)
    expected = sorted(plan.signature.inputs)
    for call in calls:
        if set(call) != set(expected):
            raise UsageError(f"{where}: expected the keys {expected}, found {sorted(call)}")
    return [way.of(plan).fitting(plan, call, where=where) for call in calls]
