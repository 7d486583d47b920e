"""Items made beside their use: in order, no more at a time than was said, and never without their errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cudnn_convert import context
from cudnn_convert.weights.lazy import prefetch


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
