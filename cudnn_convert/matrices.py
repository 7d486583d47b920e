"""Large matrices: memory for them, and turning them at the speed of memory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array

#: Where TensorFlow takes an array's memory as it is: tensorflow v2.21.0 EIGEN_MAX_ALIGN_BYTES.
_ALIGNED: Final = 64
#: The blocks in which a matrix is turned: what a processor's cache holds beside all else. Their rows do not
#: lie a power of two apart, for those would share the same few lines of it.
_ROWS: Final = 256
_COLUMNS: Final = 128
_APART: Final = 16
#: As much of a turned matrix as a processor's cache still holds when it is written.
_STRIP: Final = 1 << 22
#: Memory from this size on is used again, and so many pieces of it that fit nothing are kept for that.
_LARGE: Final = 1 << 20
_KEPT: Final = 4
#: Memory from this size on is asked for by several threads, each so many bytes at a time.
_SHARED: Final = 1 << 26
_SHARE: Final = 1 << 21
_PAGE: Final = 1 << 12
_THREADS: Final = 8


class _Used:
    """Memory that was given out, and is again once nobody else refers to it."""

    def __init__(self) -> None:
        self._held: list[Array] = []
        self._lock = Lock()

    def memory(self, size: int) -> Array:
        with self._lock:
            unused = [place for place in range(len(self._held)) if self._is_unused(place)]
            for place in unused:
                if self._held[place].size == size:
                    return self._held[place]
            for place in reversed(unused[: max(0, len(unused) - _KEPT)]):
                del self._held[place]
            self._held.append(_new(size))
            return self._held[-1]

    def _is_unused(self, place: int) -> bool:
        # The list refers to it, and the call does; an array that lies in it would too.
        return sys.getrefcount(self._held[place]) == 2


_USED: Final[ContextVar[_Used | None]] = ContextVar("used", default=None)


@contextmanager
def recycled() -> Iterator[None]:
    """In this context `empty` gives large memory again that no array lies in any more.

    New memory is dear where the system has to find and to clear it, most of all a virtual machine's: reading
    into it then takes many times as long as into memory that was used before.
    """
    token = _USED.set(_Used())
    try:
        yield
    finally:
        _USED.reset(token)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """As `numpy.empty`, where no runtime has to copy what it is given."""
    size = math.prod(shape) * dtype.itemsize
    used = _USED.get() if size >= _LARGE else None
    held = used.memory(size + _ALIGNED) if used else _new(size + _ALIGNED)
    start = -held.ctypes.data % _ALIGNED
    return held[start : start + size].view(dtype).reshape(shape)


def _new(size: int) -> Array:
    """Bytes that are there, where many are wanted: a page comes when it is first written to, and several
    processors get several pages in the time of one.
    """
    made = np.empty(size, np.uint8)
    if size >= _SHARED:
        # Few weights are so large, and this takes time to import.
        from concurrent.futures import ThreadPoolExecutor

        pages, count = made[::_PAGE], _SHARE // _PAGE
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
            for start in range(0, len(pages), count):
                threads.submit(pages[start : start + count].fill, 0)
    return made


def strips(matrix: Array) -> Iterator[Array]:
    """A matrix row by row, in pieces that are copies where it lies otherwise; other ranks in one piece."""
    if matrix.ndim != 2:
        yield np.ascontiguousarray(matrix)
        return
    count = max(1, _STRIP // max(1, matrix.shape[1] * matrix.itemsize))
    for top in range(0, len(matrix), count):
        yield contiguous(matrix[top : top + count])


def contiguous(matrix: Array) -> Array:
    """A matrix row by row: itself, or a copy. Arrays of other ranks go NumPy's way."""
    if matrix.flags.c_contiguous or matrix.ndim != 2:
        return np.ascontiguousarray(matrix)
    made = empty(matrix.shape, matrix.dtype)
    fill(made, matrix)
    return made


def fill(made: Array, matrix: Array) -> None:
    """Copies a matrix, block by block where its columns become rows: NumPy's own way, value after value down
    a column, takes twenty times as long where that is longer than what a cache holds. Each block is brought
    together first: only what lies together is turned at speed.
    """
    if matrix.strides[1] <= matrix.strides[0]:
        made[:] = matrix
        return
    held = np.empty((_COLUMNS, _ROWS + _APART), matrix.dtype)
    for top in range(0, matrix.shape[0], _ROWS):
        for left in range(0, matrix.shape[1], _COLUMNS):
            place = slice(top, top + _ROWS), slice(left, left + _COLUMNS)
            rows, columns = matrix[place].shape
            held[:columns, :rows] = matrix[place].T
            made[place] = held[:columns, :rows].T
