"""Readers: one file per container, each `recognise(path)` and `read(found)`; with `TAGS`, a tag too."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Final

from cudnn_convert.errors import AccessError, AmbiguousSourceError, ReadError, UsageError
from cudnn_convert.model import Model
from cudnn_convert.read import checkpoint, extent, graph_def, keras_archive, keras_hdf5, links, saved_model

READERS: Final[tuple[ModuleType, ...]] = (
    *(checkpoint, saved_model, graph_def),
    *(keras_hdf5, keras_archive),
)

_KINDS: Final = ", ".join(reader.KIND for reader in READERS)
_NOTHING: Final = "no such file or folder"
_CHECK: Final = "check the path"


def read(path: Path, *, tag: str | None = None, trust: bool = False) -> Model:
    """The model at `path`, recognised by content; `tag` chooses a graph of a SavedModel.

    With `trust` links of a model's files may lead out of its folder.
    Raises ReadError where no reader knows it, AmbiguousSourceError where several do, AccessError, UsageError.
    """
    try:
        return _recognised(path, tag, trust)
    except OSError as cause:
        raise AccessError(cause.filename or path, cause.strerror or str(cause)) from cause


def _recognised(path: Path, tag: str | None, trust: bool) -> Model:
    links.refuse(path, trust=trust)
    known = [(reader, found) for reader in READERS if (found := reader.recognise(path)) is not None]
    if len(known) > 1:
        kinds = " and ".join(f"a {reader.KIND}" for reader, _ in known)
        raise AmbiguousSourceError(path, [f"source: expected one model, found {kinds}; give a file of one"])
    for reader, found in known:
        if tag is not None and not reader.TAGS:
            raise UsageError(f"--tag: {path}: expected a SavedModel, found a {reader.KIND}")
        if reader is checkpoint:
            links.refuse(path, extent.prefix_files(found.prefix), trust=trust)
        model: Model = reader.read(found, tag) if reader.TAGS else reader.read(found)
        links.refuse(path, model.assets.values(), trust=trust)
        return model
    what = "a file or folder of another kind" if path.exists() else _NOTHING
    raise ReadError(path, "source", expected=_KINDS, found=what, advice="" if path.exists() else _CHECK)


def files(path: Path) -> list[Path]:
    """The paths that belong to the model at `path`, itself the first. Raises AccessError."""
    try:
        return extent.of(path)
    except OSError as cause:
        raise AccessError(cause.filename or path, cause.strerror or str(cause)) from cause


def require(path: Path) -> None:
    """Raises ReadError where nothing of a source is there, AccessError where the system does not tell."""
    if not any(os.path.lexists(found) for found in files(path)):
        raise ReadError(path, "source", expected=_KINDS, found=_NOTHING, advice=_CHECK)
