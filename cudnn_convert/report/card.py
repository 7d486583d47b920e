"""A model card in Markdown: the origin of an artifact, and the dated verdict.

The artifact itself has neither date nor verdict, so that the same source gives the same bytes. Names in a
card come from files of strangers: they stand in code spans, which no character in them can end.
"""

import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import PurePath
from typing import Final

from cudnn_convert.errors import UsageError
from cudnn_convert.report import Report, Verification
from cudnn_convert.report.values import OutputReport, PieceReport, RecurrenceReport
from cudnn_convert.text import command, visible
from cudnn_convert.version import __version__

#: By which a card is known as one of this tool's.
MARK: Final = "<!-- model card by cudnn-convert -->"
#: Source: https://reproducible-builds.org/specs/source-date-epoch/
_EPOCH: Final = "SOURCE_DATE_EPOCH"
_NONE: Final = "-"


def of(report: Report) -> str:
    """Return the card of a conversion as Markdown. Raises UsageError for a bad `SOURCE_DATE_EPOCH`."""
    return "\n\n".join(_list_parts(report))


def date() -> str:
    """Return the time in UTC, from `SOURCE_DATE_EPOCH` if set.

    Raises UsageError for a bad one.
    """
    given = os.environ.get(_EPOCH)
    if not given:
        return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    try:
        return datetime.fromtimestamp(int(given), timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError) as cause:
        expected = "expected seconds since 1970"
        raise UsageError(f"{_EPOCH}: {expected}, found {given!r}; correct it or unset it") from cause


def _list_parts(report: Report) -> Iterator[str]:
    out = PurePath(report.out).name if report.out else PurePath(report.source).name
    yield f"{MARK}\n# {_code(out)}"
    yield _verdict(report)
    yield _table(("", ""), _facts(report))
    if report.origin is not None:
        yield "## Source files"
        yield _table(
            ("file", "SHA-256"), [(_code(name), _code(sum_)) for name, sum_ in report.origin.files.items()]
        )
    yield "## Inputs and outputs"
    ends = [("input", report.inputs), ("output", report.outputs)]
    rows = [(kind, _code(key), _code(tensor)) for kind, names in ends for key, tensor in names.items()]
    yield _table(("", "key", "tensor of the source"), rows)
    if report.micro is not None:
        yield "## In TensorFlow Lite Micro"
        yield _table(("", ""), [(name, _text(words)) for name, words in report.micro.facts])
    proof = report.verification
    yield "## Recurrences"
    if report.recurrences:
        yield _table(_RECURRENCES, [row for each in report.recurrences for row in _recurrence(each, proof)])
    else:
        yield "None: no cuDNN op is left that the outputs need."
    if proof is not None:
        yield "## Outputs"
        yield _table(_OUTPUTS, map(_output, proof.outputs))
        if proof.ops is not None:
            yield f"Around the recurrences: {_text(proof.ops.verdict)}."
        yield _conditions(proof)
    warnings, remarks = ((), ()) if proof is None else (proof.warnings, proof.remarks)
    warnings = (*report.warnings, *warnings)
    for title, lines in (("Warnings", warnings), ("Remarks", remarks), ("Notes", report.notes)):
        if lines:
            yield f"## {title}"
            yield "\n".join(f"- {_text(line)}" for line in lines)


def _verdict(report: Report) -> str:
    proof = report.verification
    if report.out is None:
        return "**Portable already**: nothing reaches a cuDNN op, and nothing was written."
    if proof is None:
        return "**Not verified**: nothing was compared with the source."
    judge = (
        "a recording of the original" if proof.recording else "the float64 reference of the source's graph"
    )
    if not proof.passed:
        return f"**Different** from {judge}."
    if proof.end_to_end == "equal":
        return f"**Equal** to {judge}, every output within its tolerance."
    return f"**Recurrences equal** by themselves to {judge}; end to end not judged."


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    yield "source", f"{_code(PurePath(report.source).name)}, {_text(report.kind)}"
    yield "format", report.format
    yield "date", date()
    yield "made by", f"cudnn-convert {__version__}"
    if report.origin is None:
        return
    yield "command", _code(command(report.origin.command))
    versions = {"Python": platform.python_version(), **report.origin.versions}
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())
    yield "machine", _text(f"{platform.system()} {platform.machine()}")


_RECURRENCES: Final = (
    *("recurrence", "op", "mode", "layers", "directions", "units", "inputs", "verdict", "asked in"),
    *("worst difference", "of tolerance", "wrong weights show", "weakest weight shows"),
)
_OUTPUTS: Final = ("output", "verdict", "values", "worst difference", "of tolerance", "judged as")


def _recurrence(recurrence: RecurrenceReport, proof: Verification | None) -> Iterator[Sequence[str]]:
    """Yield a row for each place of the proven recurrence, with sizes.

    A place is where the recurrence was asked.
    """
    sizes = (recurrence.layers, recurrence.directions, recurrence.units, recurrence.input_size)
    known = (_code(recurrence.node), recurrence.op, recurrence.mode, *map(str, sizes))
    pieces = [piece for piece in (proof.recurrences if proof else ()) if piece.node == recurrence.node]
    for piece in pieces:
        yield (*known, *_piece(piece))
    if not pieces:
        yield (*known, "not asked by itself", *[_NONE] * 5)


def _piece(piece: PieceReport) -> Iterator[str]:
    yield ("equal" if piece.passed else "**different**") if piece.asked else "not asked"
    yield _code(piece.piece) if piece.piece else _NONE
    if piece.asked:
        yield f"{piece.worst:.2e}"
        yield f"{piece.needed:.1%}"
        yield from (
            _NONE if share is None else f"{share:,.0f} tolerances"
            for share in (piece.smallest, piece.weakest)
        )
    else:
        yield from [_NONE] * 4


def _output(output: OutputReport) -> Iterator[str]:
    yield _code(output.output)
    yield ("equal" if output.passed else "**different**") if output.judged else "not judged"
    yield f"{output.compared:,}"
    yield f"{output.worst:.2e}"
    yield f"{output.needed:.1%}" if output.judged else _NONE
    yield _text(output.reason)


def _conditions(proof: Verification) -> str:
    feeds = "; ".join(
        ", ".join(f"{_code(key)} {[*shape]}" for key, shape in feed.items()) for feed in proof.feeds
    )
    seed = "" if proof.seed is None else f" (seed {proof.seed})"
    return f"Compared on {feeds}{seed}."


def _table(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _code(name: str) -> str:
    """Return a name as a code span, with `|` escaped for a table.

    The fence has more backticks than the name has in a row.
    """
    text = visible(name).replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if "`" in text or not text.strip() else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _text(words: str) -> str:
    """Return words with the characters of Markdown and HTML escaped."""
    return re.sub(r"([\\`*_\[\]<>|#&~])", r"\\\1", visible(words))
