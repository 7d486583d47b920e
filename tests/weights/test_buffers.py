"""Turned matrices hold what they held; memory is used again; items are made beside their use."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from cudnn_convert import context
from cudnn_convert.weights import buffers
from cudnn_convert.weights.buffers import prefetch


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (257, 33), (300, 700), (0, 4)])
def test_a_turned_matrix_has_its_rows_side_by_side(shape: tuple[int, int]) -> None:
    stored = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    for matrix in (stored.T, stored, stored[:, ::-1].T, stored[::2]):
        found = buffers.contiguous(matrix)
        assert found.flags.c_contiguous
        assert [[*row] for row in found] == [[*row] for row in matrix]


SHAPE = (700, 500)
FLOAT = np.dtype(np.float32)


def test_what_is_in_order_is_not_copied() -> None:
    matrix = np.ones((300, 700), np.float32)
    assert np.shares_memory(buffers.contiguous(matrix), matrix)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_memory_begins_where_runtimes_take_it_as_it_is(dtype: str) -> None:
    for rows in range(1, 9):
        found = buffers.empty((rows, 3), np.dtype(dtype))
        assert found.shape == (rows, 3)
        assert found.dtype == dtype
        assert found.ctypes.data % 64 == 0


def test_other_ranks_are_copied_too() -> None:
    turned = np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2)
    copy = buffers.contiguous(turned)
    assert copy.flags.c_contiguous
    np.testing.assert_array_equal(copy, turned)


def test_strips_are_a_turned_matrix_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = np.arange(700 * 300, dtype=np.float32).reshape(700, 300)
    monkeypatch.setattr(buffers, "_STRIP", 70 * 700 * 4)
    found = [*buffers.row_chunks(stored.T)]
    assert [strip.shape for strip in found] == [(70, 700)] * 4 + [(20, 700)]
    assert all(strip.flags.c_contiguous for strip in found)
    assert [[*row] for strip in found for row in strip] == [[*row] for row in stored.T]


def test_a_row_longer_than_a_strip_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_STRIP", 4)
    stored = np.arange(35, dtype=np.float32).reshape(5, 7)
    assert [strip.tolist() for strip in buffers.row_chunks(stored.T)] == [[[*row]] for row in stored.T]


def test_strips_of_what_is_in_order_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of them in memory are little of it, wherever they lie."""
    monkeypatch.setattr(buffers, "_STRIP", 200 * 700 * 4)
    for array, count in ((np.ones((300, 700), np.float32), 2), (np.ones(5), 1), (np.ones((0, 4)), 0)):
        found = [*buffers.row_chunks(array)]
        assert len(found) == count
        assert sum(map(len, found)) == len(array)
        assert all(np.shares_memory(strip, array) for strip in found)


def test_large_memory_is_there_before_it_is_used() -> None:
    """Several threads ask for its pages, so that its user waits for none: not one of 2 MB, a 64th of it."""
    resource = pytest.importorskip("resource", reason="the system counts no memory of a process")
    made = buffers.empty((1 << 27,), np.dtype(np.uint8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made.fill(1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 32
    assert made.min() == 1


def test_memory_that_nothing_lies_in_is_used_again() -> None:
    with buffers.buffer_pool():
        kept, places = buffers.empty(SHAPE, FLOAT), set()
        for _ in range(9):
            dropped = buffers.empty(SHAPE, FLOAT)
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
    with buffers.buffer_pool():
        first = buffers.empty(SHAPE, FLOAT)
        first[:] = 7
        held = view(first)
        before = bytes(held)
        del first
        for _ in range(9):
            buffers.empty(SHAPE, FLOAT)[:] = 8
        assert bytes(held) == before


def test_small_memory_and_memory_of_other_sizes_is_new() -> None:
    with buffers.buffer_pool():
        many = [buffers.empty((rows, 1000), FLOAT) for rows in range(300, 320)]
        for number, array in enumerate(many):
            array[:] = number
        assert [np.unique(array).tolist() for array in many] == [[number] for number in range(20)]


def test_little_is_kept_that_fits_nothing() -> None:
    """Only what is in use may be many; of the rest, as much as stays is soon too much."""
    with buffers.buffer_pool():
        used = [buffers.empty(SHAPE, FLOAT) for _ in range(40)]
        places = {array.ctypes.data for array in used}
        del used
        again = [buffers.empty(SHAPE, FLOAT) for _ in range(40)]
        assert {array.ctypes.data for array in again} == places
        bases = [weakref.ref(array.base.base._buffer) for array in again]
        del again
        assert sum(base() is not None for base in bases) == 40
        buffers.empty((3000, 1000), FLOAT)
        assert sum(base() is not None for base in bases) == 4


def test_a_context_has_memory_of_its_own() -> None:
    with buffers.buffer_pool():
        outer = buffers.empty(SHAPE, FLOAT)
        place = outer.ctypes.data
        del outer
        with buffers.buffer_pool():
            assert buffers.empty(SHAPE, FLOAT).ctypes.data != place  # that the outer one holds
        assert buffers.empty(SHAPE, FLOAT).ctypes.data == place


@pytest.mark.parametrize("count", [1, 3, 200])
def test_all_items_in_order(count: int) -> None:
    assert [*prefetch(range(100), count)] == [*range(100)]
    assert [*prefetch([None, 0, [], ""], count)] == [None, 0, [], ""]
    assert [*prefetch([], count)] == []


@pytest.mark.parametrize("count", [1, 3])
def test_items_are_made_while_one_before_them_is_used(count: int) -> None:
    used, made = [threading.Event() for _ in range(8)], [threading.Event() for _ in range(8)]

    def items() -> Iterator[int]:
        for number in range(8):
            assert number <= count or used[number - count - 1].is_set()  # no further ahead than that
            made[number].set()
            yield number

    for number in prefetch(items(), count):
        assert made[min(number + count, 7)].wait(10)
        used[number].set()


def test_one_item_is_made_at_a_time() -> None:
    def items() -> Iterator[int]:
        for number in range(4):
            time.sleep(0.05)  # a second thread would find the generator at work
            yield number

    assert [*prefetch(items(), 3)] == [0, 1, 2, 3]


def test_what_fails_fails_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    found = []
    with pytest.raises(ValueError, match="the second"):
        found.extend(prefetch(items(), 3))
    assert found == [1]


def test_who_stops_early_leaves_no_thread_and_waits_for_one_item_alone() -> None:
    before, begun, stopped = threading.active_count(), [], threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            assert number < 2 or stopped.wait(10)
            yield number

    later = threading.Timer(0.2, stopped.set)
    for _ in prefetch(items(), 50):
        later.start()
        break
    later.join()
    assert threading.active_count() == before
    assert len(begun) < 5


def test_items_are_made_in_the_context_of_their_user() -> None:
    heard = []

    def items() -> Iterator[int]:
        context.report_progress("writing", 1, 2)
        yield 1

    with context.listen(lambda *given: heard.append(given)):
        assert [*prefetch(items(), 1)] == [1]
    assert heard == [("writing", 1, 2)]
