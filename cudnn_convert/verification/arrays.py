"""Archives of plain arrays from a user: feeds, and recordings of answers."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array

#: What NumPy raises for a file that is no archive of arrays, or a damaged one, or one with pickles in it.
_DAMAGED: Final = (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)
_NUMBERED: Final = re.compile(r"feed(\d+)/(.+)", re.DOTALL)


def load(path: Path, *, flag: str) -> dict[str, Array]:
    """The arrays of an `.npz` by key; nothing in it is unpickled. Raises UsageError."""
    try:
        with np.load(path, allow_pickle=False) as data:
            return {key: data[key] for key in data.files}
    except _DAMAGED as cause:
        raise UsageError(f"{flag} {path}: expected an .npz of plain arrays, found none") from cause


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
