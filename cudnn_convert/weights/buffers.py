"""Buffers for large arrays: aligned, used again, filled and read ahead.

Large matrices are transposed in strips, and read while others are written.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from itertools import islice
from threading import Lock
from typing import Any, Final, TypeVar
from weakref import ref

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


class _Pool:
    """Buffers given out before, and free of arrays again."""

    def __init__(self) -> None:
        self.unused: list[Array] = []
        self._lock = Lock()

    def take(self, size: int) -> Array:
        """Return a byte buffer on loan from the pool until the last array is gone."""
        with self._lock:  # buffers come back without it, at the end of the list
            fitting = [number for number, buffer in enumerate(self.unused) if buffer.size == size]
            if fitting:
                buffer = self.unused.pop(fitting[0])
            else:
                del self.unused[:-_KEPT]
                buffer = _new(size)
        return np.asarray(_Loan(buffer, self))


class _Loan:
    """The owner of an array in a pool's buffer, alive as long as any view."""

    def __init__(self, buffer: Array, pool: _Pool) -> None:
        self._buffer, self._pool = buffer, ref(pool)
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        if pool := self._pool():
            pool.unused.append(self._buffer)


_POOL: Final[ContextVar[_Pool | None]] = ContextVar("pool", default=None)


@contextmanager
def buffer_pool() -> Iterator[None]:
    """Let `empty` reuse large buffers free of arrays, within the context.

    New memory is slow where the system has to find and clear it, most of all in a virtual machine: reading
    into it then takes many times as long as into reused memory.
    """
    token = _POOL.set(_Pool())
    try:
        yield
    finally:
        _POOL.reset(token)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array as `numpy.empty`, aligned for runtimes to share the memory.

    They share it without a copy.
    """
    size = math.prod(shape) * dtype.itemsize
    pool = _POOL.get() if size >= _LARGE else None
    buffer = pool.take(size + _ALIGNED) if pool else _new(size + _ALIGNED)
    start = -buffer.ctypes.data % _ALIGNED
    return buffer[start : start + size].view(dtype).reshape(shape)


def _new(size: int) -> Array:
    """Allocate bytes; large buffers are touched by several threads.

    A page is mapped when it is first written to, and several processors map several pages at a time.
    """
    values = np.empty(size, np.uint8)
    if size >= _SHARED:
        pages, count = values[::_PAGE], _SHARE // _PAGE
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads:
            for start in range(0, len(pages), count):
                threads.submit(pages[start : start + count].fill, 0)
    return values


def row_chunks(matrix: Array) -> Iterator[Array]:
    """Yield a matrix in row-major pieces, copied only if needed.

    Arrays of other ranks come in one piece.
    """
    if matrix.ndim != 2:
        yield np.ascontiguousarray(matrix)
        return
    count = max(1, _STRIP // max(1, matrix.shape[1] * matrix.itemsize))
    for top in range(0, len(matrix), count):
        yield contiguous(matrix[top : top + count])


def contiguous(matrix: Array) -> Array:
    """Return a row-major matrix: the given matrix, or a copy.

    Other ranks use NumPy's copy.
    """
    if matrix.flags.c_contiguous or matrix.ndim != 2:
        return np.ascontiguousarray(matrix)
    values = empty(matrix.shape, matrix.dtype)
    fill(values, matrix)
    return values


def fill(array: Array, matrix: Array) -> None:
    """Copy a matrix into `array`, block by block in case of a transposition.

    NumPy copies a transposed matrix one value after the other along a column, which takes twenty times as
    long for columns longer than a cache. Each block is first gathered: only contiguous blocks are transposed
    fast.
    """
    if matrix.strides[1] <= matrix.strides[0]:
        array[:] = matrix
        return
    values = np.empty((_COLUMNS, _ROWS + _APART), matrix.dtype)
    for top in range(0, matrix.shape[0], _ROWS):
        for left in range(0, matrix.shape[1], _COLUMNS):
            region = slice(top, top + _ROWS), slice(left, left + _COLUMNS)
            rows, columns = matrix[region].shape
            values[:columns, :rows] = matrix[region].T
            array[region] = values[:columns, :rows].T


T = TypeVar("T")


def prefetch(items: Iterable[T], count: int) -> Iterator[T]:
    """Iterate `items`, with up to `count` made ahead in another thread.

    At most `count` items and one are in memory. A consumer that stops early waits for the item in progress.
    Raises what making an item raises.
    """
    items_left, context = iter(items), copy_context()

    def following() -> list[T]:
        return list(islice(items_left, 1))

    with ThreadPoolExecutor(1) as maker:
        coming = deque(maker.submit(context.run, following) for _ in range(count))
        try:
            while item := coming.popleft().result():
                coming.append(maker.submit(context.run, following))
                yield item[0]
        finally:
            for future in coming:
                future.cancel()
