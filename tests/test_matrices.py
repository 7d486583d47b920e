"""Turned matrices hold what they held, whatever lies where in memory."""

from __future__ import annotations

import numpy as np
import pytest

from cudnn_convert import matrices


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (257, 33), (300, 700), (0, 4)])
def test_a_turned_matrix_has_its_rows_side_by_side(shape: tuple[int, int]) -> None:
    stored = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    for matrix in (stored.T, stored, stored[:, ::-1].T, stored[::2]):
        found = matrices.contiguous(matrix)
        assert found.flags.c_contiguous
        assert [[*row] for row in found] == [[*row] for row in matrix]


def test_what_is_in_order_is_not_copied() -> None:
    matrix = np.ones((300, 700), np.float32)
    assert np.shares_memory(matrices.contiguous(matrix), matrix)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_memory_begins_where_runtimes_take_it_as_it_is(dtype: str) -> None:
    for rows in range(1, 9):
        found = matrices.empty((rows, 3), np.dtype(dtype))
        assert found.shape == (rows, 3)
        assert found.dtype == dtype
        assert found.ctypes.data % 64 == 0
