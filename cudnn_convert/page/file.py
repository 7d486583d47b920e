"""A report as files: JSON, or a page with the JSON beside it, put in their places once the work is done."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Final

from cudnn_convert import page
from cudnn_convert.errors import WriteError
from cudnn_convert.report import Report, Verification
from cudnn_convert.write import place

_PAGE: Final = ".html"
#: Bytes of a page that hold its head's first lines.
_HEAD: Final = 1000
Keep = Callable[[Report | Verification], None]


@contextmanager
def prepared(path: Path, *, apart: Sequence[tuple[str, Path]] = (), force: bool) -> Iterator[Keep]:
    """Yields what writes a report, JSON or where `path` ends in .html a page too, and then puts it in place.

    Of the files `apart` none is touched; with `force` a report that is there is replaced. Raises UsageError
    and WriteError before anything is done. An exception in the body leaves all as it was.
    """
    paths = [path, path.with_suffix(".json")] if path.suffix == _PAGE else [path]
    with ExitStack() as stack:
        for one in paths:
            place.refuse(place.Target(one, is_ours, apart, force))
        fresh = [
            stack.enter_context(place.placed(place.Target(one, is_ours, apart, force), folder=False))
            for one in paths
        ]

        def keep(report: Report | Verification) -> None:
            for one, written in zip(paths, fresh, strict=True):
                try:
                    text = page.of(report) if one.suffix == _PAGE else report.to_json()
                    written.write_text(text + "\n", encoding="utf-8")
                except OSError as cause:
                    raise WriteError(one, f"cannot write the report: {cause.strerror}") from cause

        yield keep


def is_ours(path: Path) -> bool:
    """Whether a file is a report of this tool, by what is in it."""
    try:
        if path.suffix == _PAGE:
            with path.open("rb") as stream:
                return page.MARK.encode() in stream.read(_HEAD)
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    kinds = (Report, Verification)
    return isinstance(told, dict) and any(told.keys() >= {one.name for one in fields(kind)} for kind in kinds)
