"""Writes reports beside OUT: JSON, a page, a model card.

Each file appears whole or not at all, and replaces with `force` only a report of this tool.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, fields
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, Final, TypeVar

from cudnn_convert import storage
from cudnn_convert.errors import CudnnConvertError, UsageError, VerificationError, name_write
from cudnn_convert.report import Report, Verification
from cudnn_convert.report.html import MARK

_PAGE: Final = ".html"
#: The bytes of a page or a card that hold its mark.
_HEAD: Final = 1000
Keep = Callable[[Report | Verification], None]
_Result = TypeVar("_Result")
#: A path, whether an older file there is ours, and what makes the text; None for what has no such file.
ReportFile = tuple[Path, Callable[[Path], bool], Callable[[_Result], str | None]]


@contextmanager
def write_reports(
    report: Path | None,
    model_card: Path | None = None,
    *,
    apart: Sequence[tuple[str, Path]] = (),
    force: bool,
    warn: Callable[[str], None] | None = None,
) -> Iterator[Keep]:
    """Yield a function to keep a report, then put the files in place.

    `report` is JSON, or a page with JSON beside it where it ends in .html; `model_card` is Markdown. Of the
    files `apart` none is touched. The report of a failed proof is written too. Raises UsageError and
    WriteError before anything is done; after another exception of the body all is as it was. `warn` hears of
    a file that could not be put in place after all was done; without it WriteError is raised.
    """
    failed: VerificationError | None = None
    with ExitStack() as stack:
        files = _list_files(report, model_card)
        keep = stack.enter_context(open_files(files, apart=apart, force=force))
        try:
            yield keep
        except VerificationError as error:
            keep(error.report)
            failed = error
        try:
            stack.close()
        except CudnnConvertError as error:
            if warn is None:
                raise
            warn(str(error))
    if failed is not None:
        raise failed


@contextmanager
def open_files(
    files: Iterable[ReportFile[_Result]], *, apart: Sequence[tuple[str, Path]] = (), force: bool
) -> Iterator[Callable[[_Result], None]]:
    """Yield a function to render a result to all files, then put the files in place.

    Raises UsageError and WriteError as `write_reports`.
    """
    files = [*files]
    targets = [storage.Destination(path, own, apart, force) for path, own, _ in files]
    for target in targets:
        storage.refuse(target)
    paths = [path for path, *_ in files]
    if len({*paths}) < len(paths):  # the card, which is the last
        cure = "choose another path"
        raise UsageError(f"--card {paths[-1]}: expected a file of its own, found one of the report; {cure}")
    with ExitStack() as stack:
        fresh = [stack.enter_context(storage.atomic_output(target, folder=False)) for target in targets]

        def keep(result: _Result) -> None:
            for (path, _, render), written in zip(files, fresh, strict=True):
                with name_write(path, "cannot write the report"):
                    text = render(result)
                    if text is not None:
                        written.write_text(text + "\n", encoding="utf-8")

        yield keep


def list_report(
    report: Path, own: Callable[[Path], bool], of_page: Callable[[_Result], str]
) -> Iterator[ReportFile[_Result]]:
    """Yield the files of a report: JSON, after a page for names in .html."""
    if report.suffix == _PAGE:
        yield report, own, of_page
        report = report.with_suffix(".json")
    yield report, own, methodcaller("to_json")


def _list_files(report: Path | None, model_card: Path | None) -> Iterator[ReportFile[Report | Verification]]:
    """Yield the files of a report and a card."""
    if report is not None:
        from cudnn_convert.report import page

        yield from list_report(report, is_ours, page.of)
    if model_card is not None:
        from cudnn_convert.report import card

        card.date()  # a bad setting ends a call before its work
        own = partial(has_mark, mark=card.MARK)
        yield model_card, own, lambda result: card.of(result) if isinstance(result, Report) else None


def has_mark(path: Path, mark: str) -> bool:
    """Return True if the first bytes of a file hold a mark of cudnn-convert."""
    try:
        with path.open("rb") as stream:
            return mark.encode() in stream.read(_HEAD)
    except OSError:
        return False


def read_record(path: Path) -> dict[str, Any]:
    """Return the object in a file of JSON, or an empty dictionary."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def is_ours(path: Path) -> bool:
    """Return True if the content of a file is a report by cudnn-convert.

    A report is a page or JSON.
    """
    if path.suffix == _PAGE:
        return has_mark(path, MARK)
    names = read_record(path).keys()
    return any(names >= _list_fields(kind) for kind in (Report, Verification))


def _list_fields(kind: type[Report | Verification]) -> set[str]:
    """Return the names of the fields common to reports of every version."""
    return {field.name for field in fields(kind) if field.default is MISSING}
