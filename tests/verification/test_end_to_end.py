"""Rounding noise of whole models, and what all statements say together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from cudnn_convert.report import OutputReport, PieceReport
from cudnn_convert.verification import compare, effort, end_to_end
from cudnn_convert.verification.judges import Draw, Source

# What the statements say together.

OUTPUT = OutputReport("scores", True, 12, 0.0, 0.0, 1e-5, 1e-5, "float32", 0, "")
UNJUDGED = replace(OUTPUT, output="labels", judged=False)
ASKED = PieceReport("rnn", (0,), asked=True, passed=True)
SILENT = PieceReport("other", (0,), asked=False, passed=True)


def test_all_that_agrees_is_equal() -> None:
    found = compare.combine([OUTPUT], [ASKED], {})
    assert (found.passed, found.end_to_end, found.unproven, found.warnings) == (True, "equal", (), ())


def test_a_recurrence_that_differs_by_itself_differs_whatever_the_outputs_say() -> None:
    found = compare.combine([OUTPUT], [replace(ASKED, passed=False)], {})
    assert (found.passed, found.end_to_end) == (False, "equal")


def test_an_output_that_differs_is_different() -> None:
    found = compare.combine([replace(OUTPUT, passed=False), UNJUDGED], [ASKED], {})
    assert (found.passed, found.end_to_end) == (False, "different")


def test_what_is_not_judged_is_said_and_is_no_proof() -> None:
    moving = {"other": frozenset({"labels"})}
    found = compare.combine([OUTPUT, UNJUDGED], [ASKED, SILENT], moving)
    assert (found.passed, found.end_to_end, found.unproven) == (True, "not judged", ("other",))
    assert "end to end not judged: labels" in found.warnings[0]
    assert (
        compare.combine([OUTPUT, UNJUDGED], [ASKED, SILENT], {"other": frozenset({"scores"})}).unproven == ()
    )


def test_a_recurrence_that_cannot_be_disturbed_needs_an_output_that_is_judged() -> None:
    assert compare.combine([OUTPUT, UNJUDGED], [SILENT], {}).unproven == ()
    assert compare.combine([UNJUDGED], [ASKED, SILENT], {}).unproven == ("other",)


def test_a_recurrence_is_asked_where_all_its_layers_were() -> None:
    other = replace(ASKED, layers=(1,), asked=False)
    assert compare.proven_alone([ASKED, other]) == []
    assert compare.proven_alone([ASKED, replace(other, asked=True), SILENT]) == ["rnn"]


def test_a_recurrence_that_moves_no_output_is_a_warning() -> None:
    other = replace(ASKED, node="other")
    (warning,) = compare.combine([OUTPUT], [ASKED, other, SILENT], {}, still=["rnn"]).warnings
    assert warning.startswith("the outputs on these inputs do not depend on rnn, asked by itself alone; ")
    assert "--data" in warning


def test_feeds_are_tried_until_an_output_moves() -> None:
    disturbed: list[object] = []

    class Disturbing(Draw):
        def disturb(self, nodes: Collection[str]) -> None:
            disturbed.append(nodes)

    source = Source(lambda *_: [], [], lambda: None, Disturbing())
    exact = [[np.zeros(3, np.float32), np.array([1, 2])]] * 3
    answers = {
        0: [np.full(3, 1e-7), np.array([1, 2])],
        1: [np.zeros(3), np.array([1, 3])],
        2: [np.full(3, 1.0), np.array([1, 2])],
    }
    asked: list[int] = []

    def answer(number: int) -> list[np.ndarray]:
        asked.append(number)
        return answers[number]

    found = end_to_end.find_dependent_outputs(
        source, answer, exact, "rnn", {"scores": 0, "tags": 1}, feeds=[0, 1, 2]
    )
    assert found == {"tags"}
    assert asked == [0, 1]
    assert disturbed == [["rnn"], ()]


# How far rounding moves answers: the largest of several evaluations, on inputs moved by their last place.


def test_floats_move_by_their_last_place_and_whole_numbers_stay() -> None:
    feed = {
        "x": np.array([0.1, -0.3, 0.0, 4.0, np.inf, 1e-30], np.float32),
        "ids": np.array([3, 5]),
        "half": np.array([0.1], np.float16),
    }
    first, again, other = (end_to_end.perturb_feed(feed, seed=1, draw=draw) for draw in (1, 1, 2))
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
    assert end_to_end.perturb_feed(feed, seed=1, draw=0)["x"] is feed["x"]


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
    found = end_to_end.largest(
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
    assert end_to_end.largest(EXACT, evaluate, enough=lambda _: False, doubtful=lambda _: False) == [4e-6, 0]
    assert calls == [(0, 0), (0, 1), (1, 1), (2, 1), (3, 1)]


def test_one_evaluation_is_enough_where_no_verdict_hangs_on_more() -> None:
    evaluate, calls = evaluations([[1e-6, 2e-6]])
    assert end_to_end.largest(EXACT, evaluate, enough=lambda _: True, doubtful=lambda _: True) == [2e-6, 0]
    assert calls == [(0, 0), (0, 1)]


def test_what_is_no_number_has_no_difference() -> None:
    one, other = np.array([np.inf, np.nan, 1.0]), np.array([np.inf, 0.0, 1.5])
    assert end_to_end.difference(one, other) == 0.5
    assert end_to_end.difference(one, other[:2]) == 0


def test_a_doubtful_verdict_has_further_evaluations_of_all_feeds() -> None:
    evaluate, calls = evaluations([[1e-6, 2e-6]] * 5 + [[8e-6, 0]] + [[0, 0]] * 9)
    found = end_to_end.largest(
        EXACT, evaluate, enough=lambda _: False, doubtful=lambda worst: worst[0] < 5e-6
    )
    assert found == [8e-6, 0]
    assert calls[5:] == [(4, 0), (4, 1), (5, 0), (5, 1)]
    evaluate, calls = evaluations([[1e-6, 2e-6]] * 12)
    assert end_to_end.largest(EXACT, evaluate, enough=lambda _: False, doubtful=lambda _: True) == [2e-6, 0]
    assert len(calls) == 2 + effort.NOISE_DRAWS + 2 * effort.MORE_NOISE_DRAWS  # and then it differs
