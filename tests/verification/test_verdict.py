"""What the statements say together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from cudnn_convert.report import OutputReport, PieceReport
from cudnn_convert.verification import compare, end_to_end
from cudnn_convert.verification.judges import Draw, Source

OUTPUT = OutputReport("scores", True, 12, 0.0, 0.0, 1e-5, 1e-5, "float32", 0, "")
UNJUDGED = replace(OUTPUT, output="labels", judged=False)
ASKED = PieceReport("rnn", (0,), asked=True, passed=True)
SILENT = PieceReport("other", (0,), asked=False, passed=True)


def test_all_that_agrees_is_equal() -> None:
    found = compare.combine([OUTPUT], [ASKED], {}, still=False)
    assert (found.passed, found.end_to_end, found.unproven, found.warnings) == (True, "equal", (), ())


def test_a_recurrence_that_differs_by_itself_differs_whatever_the_outputs_say() -> None:
    found = compare.combine([OUTPUT], [replace(ASKED, passed=False)], {}, still=False)
    assert (found.passed, found.end_to_end) == (False, "equal")


def test_an_output_that_differs_is_different() -> None:
    found = compare.combine([replace(OUTPUT, passed=False), UNJUDGED], [ASKED], {}, still=False)
    assert (found.passed, found.end_to_end) == (False, "different")


def test_what_is_not_judged_is_said_and_is_no_proof() -> None:
    moving = {"other": frozenset({"labels"})}
    found = compare.combine([OUTPUT, UNJUDGED], [ASKED, SILENT], moving, still=False)
    assert (found.passed, found.end_to_end, found.unproven) == (True, "not judged", ("other",))
    assert "end to end not judged: labels" in found.warnings[0]
    assert (
        compare.combine(
            [OUTPUT, UNJUDGED], [ASKED, SILENT], {"other": frozenset({"scores"})}, still=False
        ).unproven
        == ()
    )


def test_a_recurrence_that_cannot_be_disturbed_needs_an_output_that_is_judged() -> None:
    assert compare.combine([OUTPUT, UNJUDGED], [SILENT], {}, still=False).unproven == ()
    assert compare.combine([UNJUDGED], [ASKED, SILENT], {}, still=False).unproven == ("other",)


def test_a_recurrence_is_asked_where_all_its_layers_were() -> None:
    other = replace(ASKED, layers=(1,), asked=False)
    assert compare.proven_alone([ASKED, other]) == []
    assert compare.proven_alone([ASKED, replace(other, asked=True), SILENT]) == ["rnn"]


def test_outputs_that_never_move_are_a_warning() -> None:
    (warning,) = compare.combine([OUTPUT], [ASKED], {}, still=True).warnings
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
        source, answer, exact, ["rnn"], {"scores": 0, "tags": 1}, feeds=[0, 1, 2]
    )
    assert found == {"tags"}
    assert asked == [0, 1]
    assert disturbed == [["rnn"], ()]
