"""Turned matrices hold what they held, whatever lies where in memory."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from cudnn_convert.weights import lazy


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (257, 33), (300, 700), (0, 4)])
def test_a_turned_matrix_has_its_rows_side_by_side(shape: tuple[int, int]) -> None:
    stored = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    for matrix in (stored.T, stored, stored[:, ::-1].T, stored[::2]):
        found = lazy.contiguous(matrix)
        assert found.flags.c_contiguous
        assert [[*row] for row in found] == [[*row] for row in matrix]


def test_what_is_in_order_is_not_copied() -> None:
    matrix = np.ones((300, 700), np.float32)
    assert np.shares_memory(lazy.contiguous(matrix), matrix)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_memory_begins_where_runtimes_take_it_as_it_is(dtype: str) -> None:
    for rows in range(1, 9):
        found = lazy.empty((rows, 3), np.dtype(dtype))
        assert found.shape == (rows, 3)
        assert found.dtype == dtype
        assert found.ctypes.data % 64 == 0


def test_strips_are_a_turned_matrix_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = np.arange(700 * 300, dtype=np.float32).reshape(700, 300)
    monkeypatch.setattr(lazy, "_STRIP", 70 * 700 * 4)
    found = [*lazy.row_chunks(stored.T)]
    assert [strip.shape for strip in found] == [(70, 700)] * 4 + [(20, 700)]
    assert all(strip.flags.c_contiguous for strip in found)
    assert [[*row] for strip in found for row in strip] == [[*row] for row in stored.T]


def test_a_row_longer_than_a_strip_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "_STRIP", 4)
    stored = np.arange(35, dtype=np.float32).reshape(5, 7)
    assert [strip.tolist() for strip in lazy.row_chunks(stored.T)] == [[[*row]] for row in stored.T]


def test_strips_of_what_is_in_order_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of them in memory are little of it, wherever they lie."""
    monkeypatch.setattr(lazy, "_STRIP", 200 * 700 * 4)
    for array, count in ((np.ones((300, 700), np.float32), 2), (np.ones(5), 1), (np.ones((0, 4)), 0)):
        found = [*lazy.row_chunks(array)]
        assert len(found) == count
        assert sum(map(len, found)) == len(array)
        assert all(np.shares_memory(strip, array) for strip in found)


def test_large_memory_is_there_before_it_is_used() -> None:
    """Several threads ask for its pages, so that its user waits for none: not one of 2 MB, a 64th of it."""
    resource = pytest.importorskip("resource", reason="the system counts no memory of a process")
    made = lazy.empty((1 << 27,), np.dtype(np.uint8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made.fill(1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 32
    assert made.min() == 1


SHAPE = (700, 500)
FLOAT = np.dtype(np.float32)


def test_memory_that_nothing_lies_in_is_used_again() -> None:
    with lazy.buffer_pool():
        kept, places = lazy.empty(SHAPE, FLOAT), set()
        for _ in range(9):
            dropped = lazy.empty(SHAPE, FLOAT)
            assert not np.shares_memory(dropped, kept)
            places.add(dropped.ctypes.data)
            del dropped
        assert len(places) == 1


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda array: array[3:5, ::7].T, id="a slice"),
        pytest.param(lambda array: array.data, id="a memoryview"),
        pytest.param(lambda array: array.reshape(-1).view(np.uint8)[4:8], id="bytes"),
    ],
)
def test_memory_that_anything_lies_in_is_not(view) -> None:
    with lazy.buffer_pool():
        first = lazy.empty(SHAPE, FLOAT)
        first[:] = 7
        held = view(first)
        before = bytes(held)
        del first
        for _ in range(9):
            lazy.empty(SHAPE, FLOAT)[:] = 8
        assert bytes(held) == before


def test_small_memory_and_memory_of_other_sizes_is_new() -> None:
    with lazy.buffer_pool():
        many = [lazy.empty((rows, 1000), FLOAT) for rows in range(300, 320)]
        for number, array in enumerate(many):
            array[:] = number
        assert [np.unique(array).tolist() for array in many] == [[number] for number in range(20)]


def test_little_is_kept_that_fits_nothing() -> None:
    """Only what is in use may be many; of the rest, as much as stays is soon too much."""
    with lazy.buffer_pool():
        used = [lazy.empty(SHAPE, FLOAT) for _ in range(40)]
        places = {array.ctypes.data for array in used}
        del used
        again = [lazy.empty(SHAPE, FLOAT) for _ in range(40)]
        assert {array.ctypes.data for array in again} == places
        bases = [weakref.ref(array.base.base._buffer) for array in again]
        del again
        assert sum(base() is not None for base in bases) == 40
        lazy.empty((3000, 1000), FLOAT)
        assert sum(base() is not None for base in bases) == 4


def test_a_context_has_memory_of_its_own() -> None:
    with lazy.buffer_pool():
        outer = lazy.empty(SHAPE, FLOAT)
        place = outer.ctypes.data
        del outer
        with lazy.buffer_pool():
            assert lazy.empty(SHAPE, FLOAT).ctypes.data != place  # that the outer one holds
        assert lazy.empty(SHAPE, FLOAT).ctypes.data == place
