"""What a path that a user gives stands for: all files of a checkpoint, the whole folder of a SavedModel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import Final

from cudnn_convert.read import saved_model

#: What a saver adds to a prefix: the index, the graph, a file of values or the pattern for all of them.
_SUFFIX: Final = re.compile(r"\.index|\.meta|(?:\.data)?-(?:\d{5}|\?{5})-of-\d{5}")
_FILES: Final = (".index", ".meta", ".data-?????-of-?????", "-?????-of-?????")
_FOLDERS: Final = ("variables", "assets", "assets.extra", "debug")


def of(path: Path) -> list[Path]:
    """The paths that belong to the model at `path`, itself the first. Raises OSError."""
    return list(dict.fromkeys([path, *_saved_model(path), *prefix_files(prefix(path))]))


def _saved_model(path: Path) -> Iterator[Path]:
    if found := saved_model.recognise(path):
        yield found
    if path.parent.name in _FOLDERS and (found := saved_model.recognise(path.parent.parent)):
        yield found


def prefix(path: Path) -> Path:
    """The prefix of a checkpoint that one of its files is named by, else the path itself."""
    found = re.fullmatch(rf"(.+?)(?:{_SUFFIX.pattern})", path.name)
    return path.with_name(found[1]) if found else path


def prefix_files(found: Path) -> list[Path]:
    """The files of the checkpoint with a prefix. Raises OSError."""
    if not found.name:
        return []
    return sorted(path for suffix in _FILES for path in found.parent.glob(escape(found.name) + suffix))
