"""Reads HDF5 files with bounds: internal links only, and memory limited by stored bytes.

Only hard links within the file are followed, and no array larger than its stored bytes allow is allocated.
Source: HDF5 File Format Specification 3.0, II.A (where the signature may stand); h5py 3 docs, groups (links).

The global heaps, which contain variable-length strings, are checked before the library reads one: libhdf5
loops for ever on a heap object that occupies no bytes, a free one of size 0, or one whose size and header
overflow to 0 in 64 bits.
Source: HDF5 File Format Specification 3.0, II.A (superblock) and III.E (global heap); hdf5 1.14.6 H5HGcache.c
H5HG__cache_heap_deserialize.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO, Final

import ml_dtypes
import numpy as np

from cudnn_convert import context
from cudnn_convert.errors import AGAIN, ReadError
from cudnn_convert.model import Array
from cudnn_convert.text import first_line

_SUPERBLOCK: Final = b"\x89HDF\r\n\x1a\n"
_HEAP: Final = b"GCOL\x01\x00\x00\x00"
#: Offset in the superblock, by its version, of the widths of offsets and lengths: all writers use 8.
_WIDTHS: Final = {b"\0": 13, b"\1": 13, b"\2": 9, b"\3": 9}
_WIDE: Final = b"\x08\x08"
_CHUNK: Final = 1 << 24
#: Size of a heap's header and of an object's header; also enough of a superblock.
_HEADER: Final = 16


def fault(stream: BinaryIO) -> str | None:
    """Return the reason for an endless loop of libhdf5 on a file, if any.

    Returns None where it would not loop.
    """
    head = _superblock(stream)
    width = _WIDTHS.get(head[8:9])
    if width is None or head[width : width + 2] != _WIDE:
        return "offsets and lengths that are not of 8 bytes"
    size = stream.seek(0, 2)
    room = size // _HEADER
    # A reference may point at any of them, even at one inside another: all are walked, in bounded steps.
    for end in _places(stream):
        for step in _steps(stream, end, size):
            if not step:
                return f"a heap without an end at byte {end}"
            if not room:
                return "heaps with more objects than there is room for"
            room -= 1
    return None


def _superblock(stream: BinaryIO) -> bytes:
    """Return the first bytes of the superblock.

    It is searched at 0, 512, 1024, 2048 and so on. Empty where there is none.
    """
    start = stream.seek(0)
    while (head := stream.read(_HEADER)) and not head.startswith(_SUPERBLOCK):
        start = stream.seek(start * 2 or 512)
    return head


def _places(stream: BinaryIO) -> Iterator[int]:
    """Yield the possible offsets of a heap."""
    end, window = 0, b""
    while True:
        stream.seek(end)
        chunk = stream.read(_CHUNK)
        if not chunk:
            return
        end += len(chunk)
        window = window[1 - len(_HEAP) :] + chunk  # a signature may cross the chunks' border
        offset = window.find(_HEAP)
        while offset >= 0:
            yield end - len(window) + offset
            offset = window.find(_HEAP, offset + len(_HEAP))


def _steps(stream: BinaryIO, offset: int, size: int) -> Iterator[int]:
    """Yield the distance from each object of a heap to the next.

    `size` is the file's.
    """
    stream.seek(offset + 8)
    end = min(size, offset + int.from_bytes(stream.read(8), "little"))
    offset += _HEADER
    while offset + _HEADER <= end:
        stream.seek(offset)
        header = stream.read(_HEADER)
        length = int.from_bytes(header[8:], "little")
        is_free = header[:2] == b"\0\0"
        step = length if is_free else (_HEADER + (length + 7) // 8 * 8) % (1 << 64)
        yield step
        offset += step


_ONE_FILE: Final = "save the model as one file"
_READABLE: Final = "a readable HDF5 file"


def is_hdf5(path: Path) -> bool:
    """Return True if a file has the HDF5 signature.

    It is searched at 0, 512, 1024, 2048 and so on. A user block before the superblock moves the signature.
    """
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return bool(_superblock(stream))


@dataclass(frozen=True, slots=True)
class Store:
    """An HDF5 file: `path`, or the bytes `content` of a `member` of an archive."""

    path: Path
    member: str = ""
    content: bytes | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """The name of the file in messages."""
        return self.member or "HDF5"

    def check(self) -> Store:
        """Return the store after a check for terminating reads. Raises ReadError, OSError."""
        with self.path.open("rb") if self.content is None else io.BytesIO(self.content) as stream:
            damage = fault(stream)
        if damage is not None:
            raise ReadError(self.path, self.where, expected=_READABLE, found=damage, advice=AGAIN)
        return self

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the file; exceptions of h5py in the body become ReadError."""
        import h5py

        try:
            with h5py.File(self.path if self.content is None else io.BytesIO(self.content), "r") as file:
                yield file
        except PermissionError:
            raise
        except (
            *(OSError, ArithmeticError, LookupError),  # raised for impossible offsets
            *(RuntimeError, ValueError, TypeError, MemoryError, AttributeError),  # raised for other damage
        ) as cause:
            first = first_line(cause).strip("'\"")
            raise ReadError(self.path, self.where, expected=_READABLE, found=first, advice=AGAIN) from cause


@dataclass(frozen=True, slots=True)
class Hdf5Tensor:
    """A dataset by path; the bytes stay in the file until `read`."""

    store: Store
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def read(self) -> Array:
        """Read the array. Raises ReadError where the file changed or is damaged."""
        with self.store.open() as file:
            # h5py returns unknown number types, such as bfloat16, as raw bytes.
            return np.asarray(dataset(self.store, file, self.key)[()]).view(self.dtype)


def tensor(store: Store, group: Any, path: str) -> Hdf5Tensor:
    """Return the dataset at `path` below `group`. Raises ReadError."""
    dataset_ = dataset(store, group, path)
    return Hdf5Tensor(store, dataset_.name, tuple(dataset_.shape), _dtype(dataset_))


def _dtype(stored: Any) -> np.dtype[Any]:
    is_bfloat16 = stored.dtype.kind == "V" and stored.attrs.get("dtype") == "bfloat16"
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16 if is_bfloat16 else stored.dtype)
    return dtype


def dataset(store: Store, group: Any, path: str) -> Any:
    """Return the h5py dataset at `path` below `group`.

    Raises ReadError where its bytes lie in another file, or are fewer than its shape claims.
    """
    import h5py

    item = descend(store, group, path)
    where = f"{store.where} {path}"
    if not isinstance(item, h5py.Dataset) or item.shape is None:
        raise ReadError(store.path, where, expected="an array", found="a group or an empty entry")
    if item.is_virtual or item.external:
        expected, found_at = "values in the file itself", "values in another file"
        raise ReadError(store.path, where, expected=expected, found=found_at, advice=_ONE_FILE)
    stored = item.id.get_storage_size()
    is_bomb = context.is_bomb(item.nbytes, stored)
    if is_bomb or (item.chunks is None and stored < item.nbytes):
        expected, has = f"{item.nbytes} bytes of values", f"{stored} bytes stored"
        advice = context.raising(item.nbytes) if is_bomb else AGAIN
        raise ReadError(store.path, where, expected=expected, found=has, advice=advice)
    return item


def require_whole(store: Store) -> None:
    """Check for all data in a file, within the bounds of the stored bytes.

    Called before another program loads the file, since that would follow external links. Raises ReadError.
    """
    import h5py

    with store.open() as file:
        seen, todo, whole = {address(file)}, [file], 0
        while todo:
            group = todo.pop()
            for name in group:
                item = descend(store, group, name)
                if isinstance(item, h5py.Dataset) and item.shape is not None:
                    whole += dataset(store, group, name).nbytes
                elif isinstance(item, h5py.Group) and address(item) not in seen:
                    seen.add(address(item))
                    todo.append(item)
    # Each dataset may pass while their sum is a decompression bomb; the loader reads all.
    stored = store.path.stat().st_size if store.content is None else len(store.content)
    if context.is_bomb(whole, stored):
        expected, has = f"{whole} bytes of values in sum", f"a file of {stored} bytes"
        raise ReadError(store.path, store.where, expected=expected, found=has, advice=context.raising(whole))


def descend(store: Store, group: Any, path: str) -> Any:
    """Return the object at `path` below `group` by hard links only. Raises ReadError."""
    import h5py

    for name in path.strip("/").split("/"):
        link = group.get(name, getlink=True) if isinstance(group, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):
            actual = "nothing" if link is None else "a link that leads elsewhere"
            where, expected = f"{store.where} {path}", "an object in the file itself"
            raise ReadError(store.path, where, expected=expected, found=actual, advice=_ONE_FILE)
        group = group[name]
    return group


def children(group: Any) -> Iterator[tuple[str, Any]]:
    """Yield the objects of a group by name, hard links only."""
    import h5py

    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            yield name, group[name]


def address(link: Any) -> int:
    """Return the address of an object in the file.

    Two links to one object have the same address.
    """
    import h5py

    return int(h5py.h5o.get_info(link.id).addr)


def text(value: Any) -> str:
    """Return an attribute as str; some writers store bytes."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def names(group: Any, name: str) -> tuple[str, ...] | None:
    """Return an attribute with a list of names.

    Returns None where it is missing. A long list is split over `name0`, `name1` and so on.
    Source: keras 2.2.4 engine/saving.py `load_attributes_from_hdf5_group`.
    """
    parts = [name]
    if name not in group.attrs:
        divided = (f"{name}{number}" for number in range(len(group.attrs)))
        parts = [*takewhile(group.attrs.__contains__, divided)]
    return tuple(text(value) for part in parts for value in np.ravel(group.attrs[part])) if parts else None


def parse_json(path: Path, where: str, stored: Any) -> Mapping[str, Any]:
    """Parse a JSON object. Raises ReadError."""
    try:
        record = json.loads(text(stored))
        json.dumps(record, ensure_ascii=False).encode()  # JSON can contain lone surrogates
    except (ValueError, RecursionError) as cause:
        raise ReadError(path, where, expected="JSON", found=first_line(cause)) from cause
    if not isinstance(record, dict):
        raise ReadError(path, where, expected="a JSON object", found=type(record).__name__)
    return record
