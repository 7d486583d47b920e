"""Writes docs/errors.md: the messages of docs/troubleshooting/ by their words, with what answers each.

PYTHON scripts/write_errors.py; `make docs` does it too. A test fails where the page is not what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PAGE, SOURCES = DOCS / "errors.md", DOCS / "troubleshooting"
HEAD = """# Errors by message

Find the words that you see in the first column. The link leads to the cause and to the command that helps.
A message of `cudnn-convert` itself ends with what to do. For any other, ask what the file is:
`cudnn-convert inspect FILE`.

`scripts/write_errors.py` writes this page from the headings of the pages of
[Troubleshooting](troubleshooting.md).

| message or symptom | page |
|---|---|
"""


def page() -> str:
    """All of docs/errors.md."""
    return HEAD + "".join(f"| {row} | {title} |\n" for row, title in sorted(_rows(), key=_by_words))


def _by_words(row: tuple[str, str]) -> str:
    return re.sub(r"\W", "", row[0]).lower()


def _rows() -> Iterator[tuple[str, str]]:
    """The link to each heading, and the title of the page that it stands on."""
    for path in SOURCES.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        for heading in re.findall(r"^## (.*)$", text, re.MULTILINE):
            words = heading.replace("`", "")
            anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            yield f"[`{words}`](troubleshooting/{path.name}#{anchor})", title


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
