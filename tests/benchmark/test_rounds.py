"""Rounds: their medians, and the sentence where threads fight."""

from __future__ import annotations

from types import SimpleNamespace

from cudnn_convert.benchmark import rounds
from cudnn_convert.benchmark.rounds import explain_threads


def test_threads_that_fight() -> None:
    assert explain_threads({1: 10.0, 2: 25.0}, 2) == (
        "threads fight: one is 2.5x as fast as 2; give the runtime 1"
    )
    assert explain_threads({2: 10.0, 4: 20.0, 1: 15.0}, 4) == (
        "threads fight: 2 are 2.0x as fast as 4; give the runtime 2"
    )
    assert explain_threads({1: 10.0, 2: 11.0}, 2) is None
    assert explain_threads({1: 10.0, 2: 25.0}, 1) is None
    assert explain_threads({2: 25.0}, 2) is None


#: Microseconds of two models by threads, of which those of the first fight.
TIMES = (("a", 1, 10.0), ("a", 2, 30.0), ("b", 1, 10.0), ("b", 2, 6.0))


def test_threads_that_fight_are_told_of_each_model() -> None:
    rows = [SimpleNamespace(model=model, threads=count, median_us=micros) for model, count, micros in TIMES]
    profiles = [{"model": model, "threads": 2, "sentences": ["before"]} for model in "ab"]
    rounds._compare_threads(profiles, rows)  # type: ignore[arg-type]
    assert profiles[0]["sentences"] == [
        "threads fight: one is 3.0x as fast as 2; give the runtime 1",
        "before",
    ]
    assert profiles[1]["sentences"] == ["before"]


def test_figures_are_of_all_rounds() -> None:
    times = [[5.0, 1.0, 2.0], [9.0, 3.0, 4.0], [8.0, 7.0, 90.0]]
    middle, p99 = rounds.summarise_rounds(times)
    assert (middle.low, middle.median, middle.high, p99) == (2, 4, 8, 90)
    assert rounds.summarise_rounds([[float(k) for k in range(200)]])[1] == 198
