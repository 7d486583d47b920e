"""A `.keras` archive: a zip of `config.json`, `metadata.json` and `model.weights.h5`, of Keras 3 or tf_keras.

Source: keras v3.15 src/saving/saving_lib.py, tf_keras v2.21.0 src/saving/saving_lib.py.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

from cudnn_convert import limits
from cudnn_convert.errors import AGAIN, ReadError, first_line
from cudnn_convert.keras import claims
from cudnn_convert.model import Architecture, Model, Tensor
from cudnn_convert.read import hdf5, keras_groups
from cudnn_convert.read.hdf5 import Store

KIND: Final = "Keras archive"
TAGS: Final = False
_CONFIG: Final = "config.json"
METADATA: Final = "metadata.json"
_WEIGHTS: Final = "model.weights.h5"
_ENCRYPTED: Final = 1
#: What of `config.json` describes the model; the rest says how it was built and compiled.
_KEPT: Final = frozenset({"class_name", "config", "module", "registered_name"})


def recognise(path: Path) -> Path | None:
    """The file, where it is a zip with a model's config and weights."""
    if not path.is_file():
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return path if {_CONFIG, _WEIGHTS} <= set(archive.namelist()) else None
    except (zipfile.BadZipFile, RuntimeError, ValueError):
        return None


def read(path: Path) -> Model:
    """The model as its `architecture`. Raises ReadError, UnsupportedModelError."""
    config = hdf5.parsed(path, _CONFIG, member(path, _CONFIG))
    if "class_name" not in config or not isinstance(config.get("config"), dict):
        raise ReadError(path, _CONFIG, expected="class_name and config", found=", ".join(config))
    claims.require(path, _CONFIG, {key: value for key, value in config.items() if key in _KEPT})
    metadata = hdf5.parsed(path, METADATA, member(path, METADATA, default=b"{}"))
    store = Store(path, _WEIGHTS, member(path, _WEIGHTS)).checked()
    with store.open() as file:
        weights = keras_groups.weights(store, file, config)
        optimizer: tuple[tuple[str, Tensor], ...] = ()
        if "optimizer" in file:
            group = hdf5.descend(store, file, "optimizer")
            optimizer = tuple(keras_groups.own(store, group, "optimizer"))
    architecture = Architecture(
        {name: value for name, value in config.items() if name in _KEPT},
        weights,
        keras_version=str(metadata.get("keras_version", "")),
        backend="tensorflow",
        training=config.get("compile_config"),
        optimizer=optimizer,
    )
    return Model(path, KIND, None, {}, architecture=architecture)


def require_whole(path: Path) -> None:
    """Raises ReadError where a part of an archive is kept elsewhere, or is more than the archive stores."""
    for name in (_CONFIG, METADATA):
        member(path, name)
    hdf5.require_whole(Store(path, _WEIGHTS, member(path, _WEIGHTS)))


def member(path: Path, name: str, *, default: bytes | None = None) -> bytes:
    """The content of a member, `default` where it is not there. Raises ReadError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if default is not None and name not in archive.namelist():
                return default
            if archive.namelist().count(name) > 1:
                raise ReadError(path, name, expected="one member of the name", found="several", advice=AGAIN)
            info: Any = archive.getinfo(name)
            if info.flag_bits & _ENCRYPTED:
                raise ReadError(path, name, expected="a plain member", found="an encrypted one")
            if limits.is_bomb(info.file_size, info.compress_size):
                found = f"{info.file_size} bytes in {info.compress_size}"
                advice = limits.raising(info.file_size)
                raise ReadError(path, name, expected="a plain member", found=found, advice=advice)
            return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError, OSError) as cause:
        if isinstance(cause, OSError) and cause.filename is not None:
            raise  # of the file itself, not of a place that is claimed in it
        expected = "a readable zip member"
        raise ReadError(path, name, expected=expected, found=first_line(cause), advice=AGAIN) from cause
