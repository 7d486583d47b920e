"""Writes reports beside OUT: JSON, a page, a model card.

Each file appears whole or not at all, and replaces with `force` only a report of this tool.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, fields
from operator import methodcaller
from pathlib import Path
from typing import Final

from cudnn_convert import storage
from cudnn_convert.errors import CudnnConvertError, UsageError, VerificationError, WriteError
from cudnn_convert.report import Report, Verification
from cudnn_convert.report.html import MARK

_PAGE: Final = ".html"
#: The bytes of a page that hold its mark.
_HEAD: Final = 1000
Keep = Callable[[Report | Verification], None]
#: Makes the text of a file; None for what has no such file.
_Render = Callable[[Report | Verification], str | None]


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
    files = [*_list_files(report, model_card)]
    targets = [storage.Destination(path, own, apart, force) for path, own, _ in files]
    for target in targets:
        storage.refuse(target)
    if model_card is not None and model_card in [path for path, *_ in files[:-1]]:
        raise UsageError(
            f"--card {model_card}: expected a file of its own, found one of the report; choose another path"
        )
    failed: VerificationError | None = None
    with ExitStack() as stack:
        fresh = [stack.enter_context(storage.atomic_output(target, folder=False)) for target in targets]

        def keep(result: Report | Verification) -> None:
            for (path, _, render), written in zip(files, fresh, strict=True):
                try:
                    text = render(result)
                    if text is not None:
                        written.write_text(text + "\n", encoding="utf-8")
                except OSError as cause:
                    raise WriteError(path, f"cannot write the report: {cause.strerror}") from cause

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


def _list_files(
    report: Path | None, model_card: Path | None
) -> Iterator[tuple[Path, Callable[[Path], bool], _Render]]:
    """Yield the files of a report and a card, with tests for older files and renderers."""
    if report is not None and report.suffix == _PAGE:
        from cudnn_convert.report import page

        yield report, is_ours, page.of
        report = report.with_suffix(".json")
    if report is not None:
        yield report, is_ours, methodcaller("to_json")
    if model_card is not None:
        from cudnn_convert.report import card

        card.date()  # a bad setting ends a call before its work
        yield model_card, card.is_ours, lambda result: card.of(result) if isinstance(result, Report) else None


def is_ours(path: Path) -> bool:
    """Return True if the content of a file is a report by cudnn-convert.

    A report is a page or JSON.
    """
    try:
        if path.suffix == _PAGE:
            with path.open("rb") as stream:
                return MARK.encode() in stream.read(_HEAD)
        record = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(record, dict) and any(
        record.keys() >= _list_fields(kind) for kind in (Report, Verification)
    )


def _list_fields(kind: type[Report | Verification]) -> set[str]:
    """Return the names of the fields common to reports of every version."""
    return {field.name for field in fields(kind) if field.default is MISSING}
