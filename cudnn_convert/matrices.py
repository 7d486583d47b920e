"""Large matrices: memory for them, and turning them at the speed of memory."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: Where TensorFlow takes an array's memory as it is: tensorflow v2.21.0 EIGEN_MAX_ALIGN_BYTES.
_ALIGNED: Final = 64
#: The blocks in which a matrix is turned: many rows, each of them one line of a processor's cache or two.
_ROWS: Final = 256
_COLUMNS: Final = 32


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """As `numpy.empty`, where no runtime has to copy what it is given."""
    size = math.prod(shape) * dtype.itemsize
    held = np.empty(size + _ALIGNED, np.uint8)
    start = -held.ctypes.data % _ALIGNED
    return held[start : start + size].view(dtype).reshape(shape)


def contiguous(matrix: Array) -> Array:
    """A matrix row by row: itself, or a copy. Arrays of other ranks go NumPy's way."""
    if matrix.flags.c_contiguous or matrix.ndim != 2:
        return np.ascontiguousarray(matrix)
    made = np.empty(matrix.shape, matrix.dtype)
    fill(made, matrix)
    return made


def fill(made: Array, matrix: Array) -> None:
    """Copies a matrix, block by block where its columns become rows: NumPy's own way, value after value down
    a column, takes ten times as long where that is longer than what a cache holds.
    """
    if matrix.strides[1] <= matrix.strides[0]:
        made[:] = matrix
        return
    for top in range(0, matrix.shape[0], _ROWS):
        for left in range(0, matrix.shape[1], _COLUMNS):
            block = slice(top, top + _ROWS), slice(left, left + _COLUMNS)
            made[block] = matrix[block]
