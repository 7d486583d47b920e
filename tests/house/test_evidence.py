"""The tables of evidence in the documentation: each row names tests that exist, each question has a row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.samples import ROOT

EVIDENCE, QUESTIONS, TESTING = (
    ROOT / "docs" / f"{name}.md" for name in ("cudnn-evidence", "cudnn-questions", "testing")
)
#: What a row may rest on.
KINDS = (
    *("published figures", "authors' scores", "TensorFlow's own ops", "PyTorch's own ops", "recording"),
    *("TensorFlow on a GPU", "nothing but reading", "the reference"),
)
NAMED = re.compile(r"`(?:(tests/[\w/]+\.py)::)?(test_\w+)`")


def read_table(page: Path, title: str) -> list[list[str]]:
    """The cells of each row of the table between two comments."""
    (text,) = re.findall(
        f"<!-- {title} -->\n(.*?)<!-- {title} -->", page.read_text(encoding="utf-8"), re.DOTALL
    )
    lines = text.strip().splitlines()
    assert re.fullmatch(r"(\|-+)+\|", lines[1])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[0], *lines[2:]]]


def list_tests(cell: str) -> list[tuple[str, str]]:
    """(file, name) of each test in a cell; where the file is left out, it is the last named before."""
    assert not NAMED.sub("", cell).replace(",", "").strip(), f"{cell}: something else than tests"
    tests, file = [], ""
    for found, name in NAMED.findall(cell):
        file = found or file
        tests.append((file, name))
    return tests


def list_functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", [EVIDENCE, TESTING], ids=lambda page: page.name)
def test_every_statement_names_its_evidence_and_tests_that_exist(page: Path) -> None:
    head, *rows = read_table(page, "evidence")
    assert head == ["statement", "evidence", "test"]
    assert len(rows) >= 9
    assert len({statement for statement, _, _ in rows}) == len(rows)
    for statement, evidence, cell in rows:
        assert evidence.startswith(KINDS), statement
        tests = list_tests(cell)
        assert tests, statement
        for file, name in tests:
            assert name in list_functions(file), f"{statement}: no {file}::{name}"


def test_every_question_has_a_row_and_what_would_settle_it() -> None:
    asked = re.findall(r"^## (Q\d+)\.", QUESTIONS.read_text(encoding="utf-8"), re.MULTILINE)
    head, *rows = read_table(QUESTIONS, "questions")
    assert head == ["question", "answer", "what is left"]
    assert [row[0].split()[0] for row in rows] == asked == [f"Q{n}" for n in range(1, 14)]
    assert all(all(cells) and len(cells) == 3 for cells in rows)
    statements = " ".join(row[0] for row in read_table(EVIDENCE, "evidence"))
    assert all(f"({question})" in statements for question in asked)


def test_a_test_that_is_gone_would_be_named() -> None:
    tests = list_tests(
        "`tests/house/test_evidence.py::test_a_test_that_is_gone_would_be_named`, `test_of_old`"
    )
    assert [name in list_functions(file) for file, name in tests] == [True, False]
    with pytest.raises(AssertionError, match="something else than tests"):
        list_tests("a test of ours")
