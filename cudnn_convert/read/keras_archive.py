"""A `.keras` archive: a zip of `config.json`, `metadata.json` and `model.weights.h5`, of Keras 3 or tf_keras.

Source: keras v3.15 src/saving/saving_lib.py, tf_keras v2.21.0 src/saving/saving_lib.py.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import Architecture, Model, Tensor
from cudnn_convert.read import hdf5, keras_groups
from cudnn_convert.read.hdf5 import Store

KIND: Final = "Keras archive"
TAGS: Final = False
_CONFIG: Final = "config.json"
_METADATA: Final = "metadata.json"
_WEIGHTS: Final = "model.weights.h5"
#: A member that is larger than the first and than the second times its stored bytes was made to fill memory.
_LARGE: Final = 1 << 28
_EXPANSION: Final = 100
_ENCRYPTED: Final = 1
_FAILURES: Final = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def recognise(path: Path) -> Path | None:
    """The file, where it is a zip with a model's config and weights."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return path if {_CONFIG, _WEIGHTS} <= set(archive.namelist()) else None
    except _FAILURES:
        return None


def read(path: Path) -> Model:
    """The model as its `architecture`. Raises ReadError, UnsupportedModelError."""
    config = hdf5.parsed(path, _CONFIG, _member(path, _CONFIG))
    if "class_name" not in config or not isinstance(config.get("config"), dict):
        raise ReadError(path, _CONFIG, expected="class_name and config", found=", ".join(config))
    metadata = hdf5.parsed(path, _METADATA, _member(path, _METADATA, default=b"{}"))
    store = Store(path, _WEIGHTS, _member(path, _WEIGHTS))
    with store.open() as file:
        weights = keras_groups.weights(store, file, config)
        optimizer: tuple[tuple[str, Tensor], ...] = ()
        if "optimizer" in file:
            group = hdf5.descend(store, file, "optimizer")
            optimizer = tuple(keras_groups.own(store, group, "optimizer"))
    architecture = Architecture(
        {
            name: config[name]
            for name in ("class_name", "config", "module", "registered_name")
            if name in config
        },
        weights,
        keras_version=str(metadata.get("keras_version", "")),
        backend="tensorflow",
        training=config.get("compile_config"),
        optimizer=optimizer,
    )
    return Model(path, KIND, None, {}, architecture=architecture)


def _member(path: Path, name: str, *, default: bytes | None = None) -> bytes:
    try:
        with zipfile.ZipFile(path) as archive:
            if default is not None and name not in archive.namelist():
                return default
            info: Any = archive.getinfo(name)
            if info.file_size > max(_EXPANSION * info.compress_size, _LARGE) or info.flag_bits & _ENCRYPTED:
                found = f"{info.file_size} bytes in {info.compress_size}, or encrypted"
                raise ReadError(path, name, expected="a plain member", found=found)
            return archive.read(name)
    except _FAILURES as cause:
        first = (str(cause).splitlines() or [""])[0] or type(cause).__name__
        expected = "a readable zip member"
        raise ReadError(path, name, expected=expected, found=first, advice=AGAIN) from cause
