"""Items made beside their use: in order, no more at a time than was said, and never without their errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from cudnn_convert import progress
from cudnn_convert.write.ahead import ahead, together


@pytest.mark.parametrize("count", [1, 3, 200])
def test_all_items_in_order(count: int) -> None:
    assert [*ahead(range(100), count)] == [*range(100)]
    assert [*ahead([None, 0, [], ""], count)] == [None, 0, [], ""]
    assert [*ahead([], count)] == []


@pytest.mark.parametrize("count", [1, 3])
def test_items_are_made_while_one_before_them_is_used(count: int) -> None:
    used, made = [threading.Event() for _ in range(8)], [threading.Event() for _ in range(8)]

    def items() -> Iterator[int]:
        for number in range(8):
            assert number <= count or used[number - count - 1].is_set()  # no further ahead than that
            made[number].set()
            yield number

    for number in ahead(items(), count):
        assert made[min(number + count, 7)].wait(10)
        used[number].set()


def test_what_fails_fails_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    found = []
    with pytest.raises(ValueError, match="the second"):
        found.extend(ahead(items(), 3))
    assert found == [1]


def test_who_stops_early_leaves_no_thread_and_waits_for_one_item_alone() -> None:
    before, begun, stopped = threading.active_count(), [], threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            assert number < 2 or stopped.wait(10)
            yield number

    for _ in ahead(items(), 50):
        threading.Timer(0.2, stopped.set).start()
        break
    assert threading.active_count() <= before + 1  # the timer's may not have ended
    assert len(begun) < 5


def test_items_are_made_in_the_context_of_their_user() -> None:
    heard = []

    def items() -> Iterator[int]:
        progress.at("writing", 1, 2)
        yield 1

    with progress.heard_by(lambda *given: heard.append(given)):
        assert [*ahead(items(), 1)] == [1]
    assert heard == [("writing", 1, 2)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_calls_run_beside_each_other(count: int) -> None:
    begun, most = [], []
    running = threading.Semaphore(count)
    meeting = threading.Barrier(count)

    def call(number: int) -> int:
        most.append(running.acquire(blocking=False))
        begun.append(number)
        meeting.wait(10)  # for as many as may run
        running.release()
        return number

    assert [*together((partial(call, number) for number in range(20)), count)] == [*range(20)]
    assert all(most)
    assert sorted(begun) == [*range(20)]


def test_a_call_that_fails_fails_in_its_turn_and_none_is_left_running() -> None:
    before, done, taken = threading.active_count(), [], []

    def call(number: int) -> int:
        if number == 2:
            raise ValueError("the third")
        time.sleep(0.05)
        done.append(number)
        return number

    def calls() -> Iterator[Callable[[], int]]:
        for number in range(100):
            taken.append(number)
            yield partial(call, number)

    found = []
    with pytest.raises(ValueError, match="the third"):
        found.extend(together(calls(), 2))
    assert found == [0, 1]
    assert threading.active_count() == before
    assert taken[-1] < 6
    assert [*done] == sorted(done) == [number for number in taken[:-1] if number != 2]
