"""Items made beside their use: in order, two at a time, and never without their errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cudnn_convert import progress
from cudnn_convert.write.ahead import ahead


def test_all_items_in_order() -> None:
    assert [*ahead(range(100))] == [*range(100)]
    assert [*ahead([None, 0, [], ""])] == [None, 0, [], ""]
    assert [*ahead([])] == []


def test_an_item_is_made_while_its_predecessor_is_used() -> None:
    used, made = [threading.Event() for _ in range(4)], [threading.Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number in range(4):
            assert number < 2 or used[number - 2].is_set()  # no further ahead than one
            made[number].set()
            yield number

    for number in ahead(items()):
        assert number == 3 or made[number + 1].wait(10)
        used[number].set()


def test_what_fails_fails_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second")

    found = []
    with pytest.raises(ValueError, match="the second"):
        found.extend(ahead(items()))
    assert found == [1]


def test_who_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    for _ in ahead(range(100)):
        break
    assert threading.active_count() == before


def test_items_are_made_in_the_context_of_their_user() -> None:
    heard = []

    def items() -> Iterator[int]:
        progress.at("writing", 1, 2)
        yield 1

    with progress.heard_by(lambda *given: heard.append(given)):
        assert [*ahead(items())] == [1]
    assert heard == [("writing", 1, 2)]
