"""HDF5 files read with suspicion: nothing outside the file is followed, no more is made than it stores.

Source: HDF5 File Format Specification 3.0, II.A (where the signature may stand); h5py 3 docs, groups (links).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import Array

_SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
#: What h5py raises for a damaged file.
_FAILURES: Final = (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError, AttributeError)
#: A dataset above the first that holds more than the second times its stored bytes was made to fill memory.
_LARGE: Final = 1 << 28
_EXPANSION: Final = 100
_ONE_FILE: Final = "save the model as one file"


def is_hdf5(path: Path) -> bool:
    """Whether the signature stands at 0, 512, 1024, 2048 and so on, where a user block may push it."""
    if not path.is_file():
        return False
    size, offset = path.stat().st_size, 0
    with path.open("rb") as stream:
        while offset + len(_SIGNATURE) <= size:
            stream.seek(offset)
            if stream.read(len(_SIGNATURE)) == _SIGNATURE:
                return True
            offset = offset * 2 or 512
    return False


@dataclass(frozen=True, slots=True)
class Store:
    """An HDF5 file: `path` itself, or the bytes of a `member` of the archive there."""

    path: Path
    member: str = ""
    content: bytes | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """How messages call it."""
        return self.member or "HDF5"

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The open file. What h5py raises for damage in the body becomes a ReadError."""
        import h5py

        try:
            with h5py.File(self.path if self.content is None else io.BytesIO(self.content), "r") as file:
                yield file
        except PermissionError:
            raise
        except _FAILURES as cause:
            first = (str(cause).splitlines() or [""])[0].strip("'\"") or type(cause).__name__
            expected = "a readable HDF5 file"
            raise ReadError(self.path, self.where, expected=expected, found=first, advice=AGAIN) from cause


@dataclass(frozen=True, slots=True)
class Hdf5Tensor:
    """A dataset by its path; its bytes stay in the file until they are read."""

    store: Store
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self) -> Array:
        """The array. Raises ReadError where the file was changed or is damaged."""
        with self.store.open() as file:
            found = np.asarray(dataset(self.store, file, self.key)[()])
            return found if found.dtype == self.dtype else found.astype(self.dtype)


def tensor(store: Store, group: Any, path: str) -> Hdf5Tensor:
    """The dataset at `path` below `group`. Raises ReadError."""
    found = dataset(store, group, path)
    return Hdf5Tensor(store, found.name, tuple(found.shape), _dtype(found))


def _dtype(found: Any) -> np.dtype[Any]:
    if found.dtype.kind == "V" and found.attrs.get("dtype") == "bfloat16":
        import ml_dtypes

        found = ml_dtypes.bfloat16
    else:
        found = found.dtype
    dtype: np.dtype[Any] = np.dtype(found)
    return dtype


def dataset(store: Store, group: Any, path: str) -> Any:
    """The h5py dataset at `path` below `group`, its bytes in this file. Raises ReadError."""
    import h5py

    found = descend(store, group, path)
    where = f"{store.where} {path}"
    if not isinstance(found, h5py.Dataset) or found.shape is None:
        raise ReadError(store.path, where, expected="an array", found="a group or an empty entry")
    if found.is_virtual or found.external:
        expected, found_at = "values in the file itself", "values in another file"
        raise ReadError(store.path, where, expected=expected, found=found_at, advice=_ONE_FILE)
    stored = found.id.get_storage_size()
    if found.nbytes > max(_EXPANSION * stored, _LARGE) or (found.chunks is None and stored < found.nbytes):
        expected = f"{found.nbytes} bytes of values"
        raise ReadError(store.path, where, expected=expected, found=f"{stored} bytes stored", advice=AGAIN)
    return found


def descend(store: Store, group: Any, path: str) -> Any:
    """The object at `path` below `group`, through hard links alone. Raises ReadError."""
    import h5py

    for name in path.strip("/").split("/"):
        link = group.get(name, getlink=True) if isinstance(group, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):
            found = "nothing" if link is None else "a link that leads elsewhere"
            where, expected = f"{store.where} {path}", "an object in the file itself"
            raise ReadError(store.path, where, expected=expected, found=found, advice=_ONE_FILE)
        group = group[name]
    return group


def children(group: Any) -> Iterator[tuple[str, Any]]:
    """The objects of a group that are in this file, in the order of their names; links elsewhere are not."""
    import h5py

    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            yield name, group[name]


def text(value: Any) -> str:
    """An attribute that some writers store as bytes, some as str."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def names(group: Any, name: str) -> tuple[str, ...] | None:
    """An attribute that is a list of names, divided into `name0`, `name1` where it was long; None without it.

    keras 2.2.4 engine/saving.py `load_attributes_from_hdf5_group`.
    """
    found: list[Any] = []
    if name in group.attrs:
        found = list(np.ravel(group.attrs[name]))
    elif f"{name}0" in group.attrs:
        count = 0
        while f"{name}{count}" in group.attrs:
            found += list(np.ravel(group.attrs[f"{name}{count}"]))
            count += 1
    else:
        return None
    return tuple(text(value) for value in found)


def parsed(path: Path, where: str, stored: Any) -> Mapping[str, Any]:
    """A JSON object. Raises ReadError."""
    try:
        found = json.loads(text(stored))
    except (ValueError, RecursionError) as cause:
        raise ReadError(path, where, expected="JSON", found=str(cause).splitlines()[0]) from cause
    if not isinstance(found, dict):
        raise ReadError(path, where, expected="a JSON object", found=type(found).__name__)
    return found
