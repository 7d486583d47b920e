"""Readers: one file per container or naming dialect, each `recognise(path)` and `read(found)`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Final

from cudnn_convert.errors import AccessError, ReadError
from cudnn_convert.model import Model
from cudnn_convert.read import checkpoint

READERS: Final[tuple[ModuleType, ...]] = (checkpoint,)


def read(path: Path) -> Model:
    """The model at `path`, recognised by content. Raises ReadError where no reader knows it, AccessError."""
    try:
        return _recognised(path)
    except OSError as cause:
        raise AccessError(cause.filename or path, cause.strerror or str(cause)) from cause


def _recognised(path: Path) -> Model:
    for reader in READERS:
        found = reader.recognise(path)
        if found is not None:
            model: Model = reader.read(found)
            return model
    what = "a file or folder of another kind" if path.exists() else "no such file or folder"
    kinds = ", ".join(reader.KIND for reader in READERS)
    raise ReadError(path, "source", expected=kinds, found=what)
