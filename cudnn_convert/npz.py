"""Archives of plain arrays, `.npz`, read with suspicion: what a member claims is checked before it is read.

Nothing is unpickled, and no more memory is taken than the file itself and the limits of `limits` allow.
Source: NumPy 2 lib/_format_impl.py (the header of a member), lib/_npyio_impl.py NpzFile.
"""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy

from cudnn_convert import limits
from cudnn_convert.model import Array

#: What NumPy and zipfile raise for damage: a header is a literal of Python, which NumPy reads with tokens.
_DAMAGED: Final = (KeyError, TypeError, AttributeError, EOFError, SyntaxError, tokenize.TokenError)
_DAMAGED_ZIP: Final = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, OverflowError)
_SUFFIX: Final = ".npy"
#: The versions of a header in Latin-1; the third is for names of fields, which no plain array has.
_HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def load(path: Path, *, only: str | None = None) -> dict[str, Array]:
    """The arrays of a file by key, or that of the key `only` if it is there.

    Raises ValueError for anything but an archive of plain arrays, OSError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(_SUFFIX): info for info in archive.infolist()}
            sizes = [(info.file_size, info.compress_size) for info in members.values()]
            whole, stored = map(sum, zip(*sizes, strict=True)) if sizes and only is None else (0, 0)
            if limits.is_bomb(whole, stored):
                raise ValueError(f"{whole} bytes in {stored}")
            return {key: _array(archive, info) for key, info in members.items() if only in (None, key)}
    except (*_DAMAGED, *_DAMAGED_ZIP) as cause:
        raise ValueError(f"no archive of plain arrays: {cause}") from cause


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    if limits.is_bomb(info.file_size, info.compress_size):
        raise ValueError(f"{info.file_size} bytes in {info.compress_size}")
    with archive.open(info) as stream:
        shape, _, dtype = _HEADERS[npy.read_magic(stream)](stream)
        _require_plain(shape, dtype, info.file_size - stream.tell())
    with archive.open(info) as stream:
        return np.asarray(npy.read_array(stream, allow_pickle=False))


def _require_plain(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> None:
    """Raises ValueError for objects, for fields, and where the values are not of the size that is there."""
    if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
        raise ValueError(f"elements of {dtype}")
    if any(width < 0 for width in shape) or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{size} bytes for {dtype}{list(shape)}")
