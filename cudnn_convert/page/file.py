"""A report as a file: JSON, or a page with the JSON beside it."""

from __future__ import annotations

from pathlib import Path

from cudnn_convert import page
from cudnn_convert.errors import WriteError
from cudnn_convert.report import Report, Verification


def write(path: Path, report: Report | Verification) -> None:
    """Writes JSON, or where `path` ends in .html a page, and the JSON beside it. Raises WriteError."""
    if path.suffix == ".html":
        _write(path, page.of(report))
        path = path.with_suffix(".json")
    _write(path, report.to_json())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as cause:
        raise WriteError(path, f"cannot write the report: {cause.strerror}") from cause
