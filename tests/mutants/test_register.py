"""Every class of mutants has a row in the register, and the test in a row is run at every push."""

from __future__ import annotations

import pytest
from mutants import register
from mutants.register import Collected, Mutant

ROW = ("steps: without_h", "tests/a.py::test_a[lstm]")
HERE = Mutant(ROW[1], frozenset({ROW[0]}), True)
FILES = frozenset({"tests/a.py"})


def test_the_register_lists_what_is_tried(request: pytest.FixtureRequest) -> None:
    """In a run of some files, of those alone; with ids of single tests nothing can be said."""
    collected = request.config.stash[register.COLLECTED]
    if not collected.mutants or any("::" in argument for argument in request.config.args):
        pytest.skip("no file with mutants is run as a whole")
    found = register.objections(register.read(register.FILE.read_text(encoding="utf-8")), collected)
    assert not found, "\n".join(
        ["run python tests/mutants/register.py, and look at what it changed:", *found]
    )


@pytest.mark.first("named")
@pytest.mark.parametrize("name", ["named", "left"])
def test_parameters_that_no_marker_names_are_not_of_the_first_tier(
    request: pytest.FixtureRequest, name: str
) -> None:
    request.node.add_marker(pytest.mark.mutant)
    assert [mutant.is_first for mutant in register.tried([request.node])] == [name == "named"]


def test_a_row_of_a_test_that_is_there_is_right() -> None:
    assert register.objections([ROW], Collected(FILES, (HERE,))) == []


def test_a_row_of_a_file_that_was_not_collected_is_left() -> None:
    assert register.objections([ROW], Collected(frozenset(), ())) == []


@pytest.mark.parametrize(
    ("rows", "mutants", "told"),
    [
        ([], [HERE], "missing: steps: without_h, for tests/a.py::test_a[lstm]"),
        (
            [],
            [Mutant(ROW[1], HERE.classes, False)],
            "missing: steps: without_h, for which there is no test of the first tier",
        ),
        ([ROW], [], "no mutant: tests/a.py::test_a[lstm]"),
        ([ROW], [Mutant(ROW[1], HERE.classes, False)], "not in the first tier: tests/a.py::test_a[lstm]"),
        ([ROW, ROW], [HERE], "twice: steps: without_h"),
    ],
)
def test_what_is_wrong_is_told(rows: list[tuple[str, str]], mutants: list[Mutant], told: str) -> None:
    assert register.objections(rows, Collected(FILES, tuple(mutants))) == [told]


def test_a_row_of_another_class_is_told() -> None:
    other = ("steps: without_c", ROW[1])
    assert register.objections([ROW, other], Collected(FILES, (HERE,))) == [
        "of another class than 'steps: without_c': tests/a.py::test_a[lstm]"
    ]


def test_what_is_written_is_read() -> None:
    rows = [ROW, ("steps: without_c", ROW[1]), ("nodes: dropped", "tests/a.py::test_b")]
    assert register.read(register.render(rows)) == sorted(rows, key=lambda row: (row[1], row[0]))
