"""Reads `.npz` archives of plain arrays: headers are checked before data is read.

Archives come from users: weights, feeds, and recordings of answers. No more memory is allocated than the
file's size and the limits of `context` allow. NumPy pickles arrays of objects, the only ones that preserve
bytes ending in zeros. Where a user's strings are expected, arrays of bytes and text are unpickled without any
class: names in the pickle become placeholders, and no code of NumPy is called. Otherwise nothing is
unpickled.

Source: NumPy 2 lib/_format_impl.py (the header of a member), lib/_npyio_impl.py NpzFile,
_core/src/multiarray/methods.c array_reduce (what an array is pickled as).
"""

from __future__ import annotations

import math
import pickle
import re
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.lib import format as npy

from cudnn_convert import context
from cudnn_convert.errors import AGAIN, ReadError, UsageError
from cudnn_convert.model import Array

#: What NumPy and zipfile raise for damage; NumPy tokenizes a header, which is a Python literal.
_DAMAGED: Final = (
    *(KeyError, TypeError, AttributeError, EOFError, SyntaxError, tokenize.TokenError),
    *(MemoryError, RecursionError),  # of the parser, for a header of a few kilobytes
)
_DAMAGED_ZIP: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OverflowError)
SUFFIX: Final = ".npy"
#: Bytes of float64: a long double differs between machines.
_LARGEST_FLOAT: Final = 8
#: The array of a file of decoded weights that describes them, as JSON in UTF-8.
RECORD: Final = "cudnn_convert"
#: Header versions in Latin-1; version 3 is for field names, which plain arrays lack.
_HEADERS: Final[Mapping[tuple[int, int], Callable[[IO[bytes]], tuple[Any, ...]]]] = {
    (1, 0): npy.read_array_header_1_0,
    (2, 0): npy.read_array_header_2_0,
}
#: The names in a pickled array of objects.
_NAMES: Final = frozenset(
    {
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("_codecs", "encode"),
        ("__builtin__", "bytes"),
        ("builtins", "bytes"),
    }
)


def load(path: Path, *, only: str | None = None, strings: bool = False) -> dict[str, Array]:
    """Load the arrays of a file by key, or only the key `only`.

    The result is empty if `only` does not exist. `strings` allows arrays of bytes and text that NumPy
    pickled. Raises ValueError for anything but an archive of plain arrays, OSError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(SUFFIX): info for info in archive.infolist()}
            if only is None:
                _refuse_bomb(*members.values())
            wanted = {key: info for key, info in members.items() if only in (None, key)}
            return {key: _array(archive, info, strings=strings) for key, info in wanted.items()}
    except (*_DAMAGED, *_DAMAGED_ZIP) as cause:
        raise ValueError(f"no archive of plain arrays: {cause}") from cause


def _refuse_bomb(*members: zipfile.ZipInfo) -> None:
    """Raise ValueError for members unpacking together to far more than stored."""
    whole, stored = sum(each.file_size for each in members), sum(each.compress_size for each in members)
    if context.is_bomb(whole, stored):
        raise ValueError(f"{whole} bytes in {stored}")


@dataclass(frozen=True, slots=True)
class Stamp:
    """The time and size of a file when it was opened: arrays are read later."""

    time: int
    size: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """Return the stamp of a file now. Raises OSError."""
        status = path.stat()
        return cls(status.st_mtime_ns, status.st_size)

    def require(self, path: Path) -> None:
        """Raise ReadError where the file has changed since."""
        if Stamp.of(path) != self:
            expected, advice = "the file as it was opened", "convert it again once it is written"
            raise ReadError(path, "file", expected=expected, found="a changed one", advice=advice)


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array in a file: member `key` of an archive, or the `.npy` itself.

    The archive stays open, so that a read lists no members again. `dtype` is in the machine's order of bytes.
    """

    path: Path
    key: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stamp: Stamp
    archive: zipfile.ZipFile | None = field(repr=False)

    def read(self) -> Array:
        """Read the array. Raises ReadError where the file is damaged, or changed since it was opened."""
        self.stamp.require(self.path)
        try:
            with self.archive.open(f"{self.key}{SUFFIX}") if self.archive else self.path.open("rb") as stream:
                value = npy.read_array(stream, allow_pickle=False)
        except (ValueError, *_DAMAGED, *_DAMAGED_ZIP) as cause:
            where = self.key or self.path.stem
            raise ReadError(self.path, where, expected="an array", found=str(cause), advice=AGAIN) from cause
        return np.asarray(value).astype(self.dtype, copy=False)


def open_arrays(path: Path) -> dict[str, StoredArray]:
    """Open the arrays of an `.npz` by key, or an `.npy` by name.

    Headers alone are read. Raises ValueError for anything but plain arrays, OSError.
    """
    try:
        with path.open("rb") as stream:
            if stream.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                stream.seek(0)
                return {path.stem: _open(path, None, stream, path.stat().st_size, None)}
        archive, arrays = zipfile.ZipFile(path), dict[str, StoredArray]()
        members = archive.infolist()
        _refuse_bomb(*members)
        for info in members:
            key = info.filename.removesuffix(SUFFIX)
            if key in arrays:
                raise ValueError(f"two arrays {key}")
            _refuse_bomb(info)
            with archive.open(info) as member:
                arrays[key] = _open(path, key, member, info.file_size, archive)
        return arrays
    except (*_DAMAGED, *_DAMAGED_ZIP) as cause:
        raise ValueError(f"no plain arrays: {cause or type(cause).__name__}") from cause


def _open(
    path: Path, key: str | None, stream: IO[bytes], size: int, archive: zipfile.ZipFile | None
) -> StoredArray:
    shape, _, dtype = _HEADERS[npy.read_magic(stream)](stream)
    _require_plain(shape, dtype, size - stream.tell())
    if dtype.kind == "f" and dtype.itemsize > _LARGEST_FLOAT:
        raise ValueError(f"elements of {dtype}")
    return StoredArray(path, key, shape, dtype.newbyteorder("="), Stamp.of(path), archive)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, *, strings: bool) -> Array:
    _refuse_bomb(info)
    with archive.open(info) as stream:
        shape, _, dtype = _HEADERS[npy.read_magic(stream)](stream)
        if strings and dtype == np.dtype(object):
            return _strings(stream, shape)
        _require_plain(shape, dtype, info.file_size - stream.tell())
    with archive.open(info) as stream:
        return np.asarray(npy.read_array(stream, allow_pickle=False))


def _require_plain(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    """Check a header: a plain dtype, and values of exactly `size` bytes. Raises ValueError."""
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"elements of {dtype}")
    if any(width < 0 for width in shape) or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{size} bytes for {dtype}{list(shape)}")


class _PickledArray:
    """The unpickler's placeholder for an array; keeps the pickled state."""

    __slots__ = ("state",)

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Named:
    """The unpickler's placeholder for a name; a call gives a `_PickledArray`, or bytes.

    Old pickle protocols encode bytes as a call.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *given: Any) -> Any:
        if self.name == "bytes" and not given:
            return b""
        if self.name != "encode":
            return _PickledArray()
        text, encoding = given
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError(f"text in {encoding}")
        return text.encode("latin-1")

    def __setstate__(self, _: Any) -> None:
        raise ValueError("a state for what has none")


class _Unpickler(pickle.Unpickler):
    """Unpickles an array of objects into placeholders, by names alone."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _NAMES:
            raise ValueError(f"objects of {module}.{name}")
        return _Named(name)


def _strings(stream: Any, shape: tuple[int, ...]) -> Array:
    """Unpickle an array of bytes; text becomes UTF-8.

    Raises ValueError for other objects.
    """
    try:
        strings = _Unpickler(stream).load()
    except (pickle.UnpicklingError, IndexError, MemoryError) as cause:
        raise ValueError(f"objects that cannot be read: {cause}") from cause
    state = getattr(strings, "state", None) if isinstance(strings, _PickledArray) else None
    items = state[-1] if isinstance(state, tuple) and state else None
    if not isinstance(items, list) or len(items) != math.prod(shape):
        raise ValueError("objects of another shape than the header's")
    if not all(isinstance(item, bytes | str) for item in items):
        raise ValueError("objects that are neither bytes nor text")
    values = np.empty(len(items), object)
    values[:] = [item.encode() if isinstance(item, str) else item for item in items]
    return values.reshape(shape)  # the pickle lists them in C order in any case


_RECORDED: Final = re.compile(r"(feed\d{1,9})/in/(.+)", re.DOTALL)
_NUMBERED: Final = re.compile(r"feed(\d{1,9})/(.+)", re.DOTALL)


def load_user_arrays(
    given: Path | Mapping[str, Any], *, flag: str, strings: bool = False
) -> dict[str, Array]:
    """Load a user's `.npz` by key, or take arrays by key unchanged.

    With `strings` also strings are taken, as objects. Raises UsageError.
    """
    where = describe(flag, given)
    if isinstance(given, Mapping):
        return {key: _take_array(value, f"{where}: {key}", strings=strings) for key, value in given.items()}
    try:
        return load(given, strings=strings)
    except (OSError, ValueError) as cause:
        actual = "nothing" if isinstance(cause, FileNotFoundError) else "a file that is not one"
        raise UsageError(f"{where}: expected an .npz file of plain arrays, found {actual}") from cause


def describe(flag: str, given: object) -> str:
    """Return the place of a mistake in a user's arrays, for messages.

    It is the flag with its file, or the flag alone for arrays in memory.
    """
    return flag if isinstance(given, Mapping) else f"{flag} {given}"


def _take_array(value: Any, where: str, *, strings: bool) -> Array:
    """Take a library call's array: numbers, or with `strings` bytes or text.

    Raises UsageError.
    """
    try:
        array = np.asarray(value)
    except ValueError as cause:  # rows of several lengths
        raise UsageError(f"{where}: expected an array, found {type(value).__name__}") from cause
    if array.dtype.kind != "O":
        return array
    if not (strings and all(isinstance(item, bytes | str) for item in array.ravel())):
        expected = "numbers, bytes or text" if strings else "numbers"
        raise UsageError(f"{where}: expected {expected}, found objects")
    encoded = np.empty(array.size, object)
    encoded[:] = [item.encode() if isinstance(item, str) else item for item in array.ravel()]
    return np.reshape(encoded, array.shape)


def load_array(path: Path, *, flag: str) -> Array:
    """Load the array of a user's `.npy`. Raises UsageError for anything but a plain array."""
    try:
        with path.open("rb") as stream:
            shape, _, dtype = _HEADERS[npy.read_magic(stream)](stream)
            _require_plain(shape, dtype, path.stat().st_size - stream.tell())
            stream.seek(0)
            return np.asarray(npy.read_array(stream, allow_pickle=False))
    except (OSError, ValueError, *_DAMAGED) as cause:
        raise UsageError(
            f"{flag} {path}: expected an .npy file of a plain array, found a file that is not one"
        ) from cause


def calls(arrays: Mapping[str, Array], *, where: str) -> list[dict[str, Array]]:
    """Return the arrays of each call, from keys `feed<k>/KEY` with k from 0.

    Without such keys all arrays belong to one call. Of a recording (`verification/recordings.py`), which has
    `meta`, they are the inputs `feed<k>/in/KEY`. Raises UsageError for a missing number.
    """
    if "meta" in arrays and any(key.startswith("feed0/in/") for key in arrays):
        inputs = ((key, _RECORDED.fullmatch(key)) for key in arrays)
        arrays = {f"{match[1]}/{match[2]}": arrays[key] for key, match in inputs if match is not None}
    calls_by_number: dict[int, dict[str, Array]] = {}
    for key, array in arrays.items():
        match = _NUMBERED.fullmatch(key)
        if match is None:
            return [dict(arrays)]
        calls_by_number.setdefault(int(match[1]), {})[match[2]] = array
    if sorted(calls_by_number) != list(range(len(calls_by_number))):
        listed = ", ".join(f"feed{k}" for k in sorted(calls_by_number))
        raise UsageError(f"{where}: expected feed0 to feed{len(calls_by_number) - 1}, found {listed}")
    return [calls_by_number[k] for k in sorted(calls_by_number)] or [{}]
