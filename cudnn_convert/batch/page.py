"""The page of a batch: a row a model, with a link to the model's own page.

As the page of a report it needs nothing else and loads nothing; the links lead to the folder beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

from cudnn_convert.batch import results
from cudnn_convert.batch.results import Result
from cudnn_convert.errors import WriteError
from cudnn_convert.report.html import NOTHING, Markup, join, name, table, tag
from cudnn_convert.report.page import document

_TONES: Final = {
    **dict.fromkeys(results.STATUSES, "bad"),
    **dict.fromkeys(results.PASSED, "good"),
    results.UNPROVEN: "warn",
    results.REFUSED: "warn",
    results.INTERRUPTED: "warn",
}
_HEADS: Final = ("", "source", "OUT", "seconds", "MiB", "of tolerance", "why, or its page")


def model_page(path: Path, out: str) -> Path:
    """The page of the model with an OUT, in a folder beside the page of a batch."""
    return path.with_suffix("") / f"{out}.html"


def write(file: Path, path: Path, lines: Iterable[Result]) -> None:
    """Write the page that will stand at `path` to a file. Raises WriteError."""
    ordered = sorted(lines, key=lambda result: (result.status in results.PASSED, result.out))
    try:
        file.write_text(of(ordered, path) + "\n", encoding="utf-8")
    except OSError as cause:
        raise WriteError(path, f"cannot write the report: {cause.strerror}") from cause


def of(lines: Iterable[Result], path: Path) -> str:
    """The page of results, those first that need somebody's look."""
    several = list(lines)
    counts = Counter(result.status for result in several)
    passed = sum(counts[status] for status in results.PASSED)
    title = f"{passed} of {len(several)} models converted, or portable already"
    tone = "good" if passed == len(several) else "bad"
    chips = [_chip(status, f"{counts[status]} {status}") for status in results.STATUSES if counts[status]]
    header = tag(
        "header",
        tag("p", "cudnn-convert, batch", class_="eyebrow"),
        tag("h1", title),
        tag("div", *chips, class_="chips"),
        class_=f"card verdict {tone}",
    )
    rows = (_row(result, path) for result in several)
    return document(title, header, table(_HEADS, rows, numbers=(3, 4, 5)))


def _chip(status: str, text: str) -> Markup:
    return tag("span", text, class_=f"chip {_TONES[status]}")


def _row(result: Result, path: Path) -> Iterator[object]:
    yield _chip(result.status, result.status)
    yield name(result.source)
    yield name(result.out)
    yield f"{result.seconds:.1f}"
    yield Markup(NOTHING) if result.peak_mb is None else f"{result.peak_mb:.0f}"
    needed = (result.verification or {}).get("needed")
    yield Markup(NOTHING) if needed is None else f"{needed:.1%}"
    own = model_page(path, result.out)
    lines: list[object] = [*result.reasons]
    if own.is_file():
        link = quote_from_bytes(str(own.relative_to(path.parent)).encode(errors="surrogateescape"))
        lines.append(tag("a", "report", href=link))
    yield join((tag("p", line) for line in lines), "") if lines else Markup(NOTHING)
