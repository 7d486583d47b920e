"""Figures of the prose stay under their ceilings, which may only fall."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from support.package_modules import trees
from support.samples import ROOT

NEGATION = re.compile(
    r"\b(?:no|not|none|nor|neither|never|nothing|nobody|nowhere|without|cannot)\b|n't\b", re.IGNORECASE
)
PRONOUN = re.compile(
    r"\b(?:it|its|they|them|theirs?|that|those|these|this|what|which|whose|ones?|others?)\b", re.IGNORECASE
)
#: Openings that hide the subject of a sentence.
OPENING = re.compile(r"(?:What|Where|Of|Nor|Neither|Whoever|Whatever|Which|As|Whether)\b")
#: Whole lines of Markdown that are no prose: tables, headings, HTML, pictures, code.
OTHER = re.compile(r"\s*(?:\||#|<|!\[|    |\t)")

#: Of the pages: marks in 100 sentences, and the words of the middle one.
OF_PAGES = {"negations": 12.0, "semicolons": 1.0, "openings": 0.5, "median": 12.0}
#: The words of the longest page, code and tables included, of those that no program writes.
LONGEST = 1500
GENERATED = {"docs/errors.md", "docs/flags.md", "docs/ops.md", "docs/performance.md"}
#: Of first lines of docstrings: marks in 100 lines, and lines of more than 15 words.
OF_LINES = {"negations": 2.0, "pronouns": 2.0, "openings": 0.5, "long": 0.5}


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown that have four words or more."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    text = "\n".join(line for line in text.splitlines() if not OTHER.match(line))
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "CODE", text)
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+", text):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\[*])", " ".join(block.split())):
            if len(sentence.split()) > 3:
                yield sentence.strip()


def first_lines(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (ast.get_docstring(node) or "").splitlines()[:1]


def count(mark: re.Pattern[str], texts: list[str]) -> float:
    """How often a mark stands in 100 texts."""
    return 100 * sum(len(mark.findall(text)) for text in texts) / len(texts)


def measure_pages(texts: list[str]) -> dict[str, float]:
    return {
        "negations": count(NEGATION, texts),
        "semicolons": count(re.compile(";"), texts),
        "openings": 100 * sum(bool(OPENING.match(text)) for text in texts) / len(texts),
        "median": median(len(text.split()) for text in texts),
    }


def measure_lines(texts: list[str]) -> dict[str, float]:
    return {
        "negations": count(NEGATION, texts),
        "pronouns": 100 * sum(bool(PRONOUN.search(text)) for text in texts) / len(texts),
        "openings": 100 * sum(bool(OPENING.match(text)) for text in texts) / len(texts),
        "long": 100 * sum(len(text.split()) > 15 for text in texts) / len(texts),
    }


def exceeding(figures: dict[str, float], ceilings: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in figures.items() if value > ceilings[name]}


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_pages_speak_plainly() -> None:
    texts = [sentence for page in pages() for sentence in sentences(page.read_text(encoding="utf-8"))]
    assert not exceeding(measure_pages(texts), OF_PAGES), f"at most {OF_PAGES}"


def test_a_page_is_read_at_once() -> None:
    lengths = {page.relative_to(ROOT).as_posix(): len(page.read_text("utf-8").split()) for page in pages()}
    assert lengths.keys() >= GENERATED
    long = {page: words for page, words in lengths.items() if words > LONGEST and page not in GENERATED}
    assert not long, f"pages of at most {LONGEST} words"


def test_first_lines_of_docstrings_speak_plainly() -> None:
    texts = [line for tree in trees().values() for line in first_lines(tree)]
    assert not exceeding(measure_lines(texts), OF_LINES), f"at most {OF_LINES}"


def test_each_mark_is_counted() -> None:
    page = "# Not a title\n\nWhat it does; it never stops here.\nCan't `not` stop [it](not.md) now.\n\n"
    page += "| not | a |\n"
    found = [*sentences(page)]
    assert found == ["What it does; it never stops here.", "Can't CODE stop [it] now."]
    assert measure_pages(found) == {"negations": 100, "semicolons": 50, "openings": 50, "median": 6}
    lines = [*first_lines(ast.parse('"""Which one is long."""\ndef f():\n    """Read\n    not this."""\n'))]
    assert lines == ["Which one is long.", "Read"]
    assert measure_lines(lines) == {"negations": 0, "pronouns": 50, "openings": 50, "long": 0}
    assert exceeding({"long": 2.0}, {"long": 1.0}) == {"long": 2.0}
