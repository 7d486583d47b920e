"""What a path that a user gives stands for: all files of a checkpoint, the whole folder of a SavedModel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import Final

from cudnn_convert.read import saved_model

#: A prefix and what a saver adds: the index, the graph, a file of values or the pattern for all of them.
_NAME: Final = re.compile(r"(.+?)(?:\.index|\.meta|(?:\.data)?-(?:\d{5}|\?{5})-of-\d{5})")
_FILES: Final = (".index", ".meta", ".data-?????-of-?????", "-?????-of-?????")
#: The folders of a SavedModel.
FOLDERS: Final = ("variables", "assets", "assets.extra", "debug")


def of(path: Path) -> list[Path]:
    """The paths that belong to the model at `path`, itself the first. Raises OSError."""
    return list(dict.fromkeys([path, *_saved_model(path), *prefix_files(prefix(path))]))


def _saved_model(path: Path) -> Iterator[Path]:
    above = path.parent.parent if path.parent.name in FOLDERS else path
    folders = (saved_model.recognise(folder) for folder in (path, above))
    yield from (folder for folder in folders if folder is not None)


def prefix(path: Path) -> Path:
    """The prefix of a checkpoint that one of its files is named by, else the path itself."""
    match = _NAME.fullmatch(path.name)
    return path.with_name(match[1]) if match else path


def prefix_files(named: Path) -> list[Path]:
    """The files of the checkpoint with a prefix. Raises OSError."""
    if not named.name:
        return []
    return sorted(path for suffix in _FILES for path in named.parent.glob(escape(named.name) + suffix))
