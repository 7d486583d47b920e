"""Archives of plain arrays from a user: feeds, and recordings of answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert import npz
from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array

_NUMBERED: Final = re.compile(r"feed(\d{1,9})/(.+)", re.DOTALL)


def load(path: Path, *, flag: str, strings: bool = False) -> dict[str, Array]:
    """The arrays of an `.npz` by key, with `strings` those that NumPy pickles too. Raises UsageError."""
    try:
        return npz.load(path, strings=strings)
    except (OSError, ValueError) as cause:
        raise UsageError(f"{flag} {path}: expected an .npz of plain arrays, found none") from cause


def are_cut_off(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether values of a type are lost, or are none, in another: parts of numbers, or words for numbers."""
    if given == wanted or {given.kind, wanted.kind} <= set("OSU"):
        return False
    return given.kind not in "biuf" or wanted.kind in "OSU" or (given.kind == "f" and wanted.kind in "biu")


def calls(arrays: Mapping[str, Array], *, where: str) -> list[dict[str, Array]]:
    """The arrays of each call, `feed<k>/KEY` of the k-th, counted from 0; those without such keys are of one.

    Raises UsageError for numbers that leave one out.
    """
    matches = {key: _NUMBERED.fullmatch(key) for key in arrays}
    if not arrays or not all(matches.values()):
        return [dict(arrays)]
    found: dict[int, dict[str, Array]] = {}
    for key, match in matches.items():
        assert match is not None
        found.setdefault(int(match[1]), {})[match[2]] = arrays[key]
    if sorted(found) != list(range(len(found))):
        listed = ", ".join(f"feed{k}" for k in sorted(found))
        raise UsageError(f"{where}: expected feed0 to feed{len(found) - 1}, found {listed}")
    return [found[k] for k in sorted(found)]
