"""How far rounding moves answers: the largest of several evaluations, on inputs moved by their last place."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudnn_convert.verification import effort, rounding


def test_floats_move_by_their_last_place_and_whole_numbers_stay() -> None:
    feed = {
        "x": np.array([0.1, -0.3, 0.0, 4.0, np.inf, 1e-30], np.float32),
        "ids": np.array([3, 5]),
        "half": np.array([0.1], np.float16),
    }
    first, again, other = (rounding.perturb_feed(feed, seed=1, draw=draw) for draw in (1, 1, 2))
    np.testing.assert_array_equal(first["x"], again["x"])
    assert any(np.any(first[key] != other[key]) for key in feed)
    assert first["x"].dtype == np.float32
    assert first["half"].dtype == np.float16
    np.testing.assert_array_equal(first["ids"], feed["ids"])
    np.testing.assert_array_equal(first["x"][2:5], feed["x"][2:5])
    places = [0, 1, 5]
    away = np.abs(first["x"][places] / feed["x"][places] - 1)
    assert np.all((away > 0) & (away < 2.5e-7))


def test_the_draw_without_a_number_moves_nothing() -> None:
    feed = {"x": np.array([0.1], np.float32)}
    assert rounding.perturb_feed(feed, seed=1, draw=0)["x"] is feed["x"]


def evaluations(errors: list[list[float]]) -> Any:
    """The values of each draw and feed: zeros, off by so much."""
    calls: list[tuple[int, int]] = []

    def evaluate(draw: int, number: int) -> list[np.ndarray]:
        calls.append((draw, number))
        return [np.array([errors[draw][number], 0.0]), np.array([7])]

    return evaluate, calls


EXACT = [[np.zeros(2), np.array([3])], [np.zeros(2), np.array([4])]]


def test_the_largest_of_all_evaluations_counts() -> None:
    evaluate, calls = evaluations([[1e-6, 2e-6], [3e-6, 1e-6], [9e-6, 0], [0, 4e-6]])
    seen: list[list[float]] = []
    found = rounding.largest(
        EXACT,
        evaluate,
        enough=lambda first: seen.append([*first]) or False,
        doubtful=lambda _: False,
        in_order=True,
    )
    assert found == [9e-6, 0]  # integers have no noise
    assert seen == [[2e-6, 0]]
    assert calls == [(draw, feed) for draw in range(4) for feed in range(2)]


def test_more_evaluations_are_of_the_noisiest_feed() -> None:
    evaluate, calls = evaluations([[1e-6, 2e-6], [3e-6, 1e-6], [9e-6, 0], [0, 4e-6]])
    assert rounding.largest(EXACT, evaluate, enough=lambda _: False, doubtful=lambda _: False) == [4e-6, 0]
    assert calls == [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1)]


def test_one_evaluation_is_enough_where_no_verdict_hangs_on_more() -> None:
    evaluate, calls = evaluations([[1e-6, 2e-6]])
    assert rounding.largest(EXACT, evaluate, enough=lambda _: True, doubtful=lambda _: True) == [2e-6, 0]
    assert calls == [(0, 0), (0, 1)]


def test_what_is_no_number_has_no_difference() -> None:
    one, other = np.array([np.inf, np.nan, 1.0]), np.array([np.inf, 0.0, 1.5])
    assert rounding.difference(one, other) == 0.5
    assert rounding.difference(one, other[:2]) == 0


def test_a_doubtful_verdict_has_further_evaluations_of_all_feeds() -> None:
    evaluate, calls = evaluations([[1e-6, 2e-6]] * 5 + [[8e-6, 0]] + [[0, 0]] * 9)
    found = rounding.largest(EXACT, evaluate, enough=lambda _: False, doubtful=lambda worst: worst[0] < 5e-6)
    assert found == [8e-6, 0]
    assert calls[5:] == [(4, 0), (4, 1), (5, 0), (5, 1)]
    evaluate, calls = evaluations([[1e-6, 2e-6]] * 12)
    assert rounding.largest(EXACT, evaluate, enough=lambda _: False, doubtful=lambda _: True) == [2e-6, 0]
    assert len(calls) == 2 + effort.NOISE_DRAWS + 2 * effort.MORE_NOISE_DRAWS  # and then it differs


def test_the_spread_is_of_finite_values() -> None:
    assert rounding.spread(np.array([-1.0, np.nan, 2.0, np.inf])) == 3
    assert rounding.spread(np.array([np.nan])) == 0
