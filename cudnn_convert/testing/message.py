"""What a failure says: the lines of `cudnn-convert verify`, and the figures of its page as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from cudnn_convert.errors import VerificationError
from cudnn_convert.report import OutputReport, OverTime, Verification

_HEADS: Final = (
    *("output", "verdict", "values", "max abs", "max rel", "max ULP", "cosine", "of tolerance"),
    *("worst element", "expected", "found", "judged as"),
)
#: The most points of an error over time.
_POINTS: Final = 8
_NOTHING: Final = "-"
#: From here on a share of the tolerance is told in times, as on the page.
_TIMES: Final = 10


class EquivalenceError(VerificationError, AssertionError):
    """Two models answer differently; `report` is the `Verification` that says where."""

    __module__ = "cudnn_convert.testing"


def lines(result: Verification) -> Iterator[str]:
    """The message of a failure, a line each."""
    wrong = [found for found in result.outputs if not found.passed]
    subject = result.subject
    sides = f": {subject.artifact} against {subject.source}" if subject else ""
    yield f"{len(wrong)} of {len(result.outputs)} outputs differ{sides}"
    for found in wrong:
        yield f"output {found.output}: {found.message}"
    yield from _table([_HEADS, *map(_row, result.outputs)])
    for found in result.outputs:
        if found.over_time is not None and not found.passed:
            yield f"{found.output}: largest error from step: {_over_time(found.over_time)}"
    for warning in result.warnings:
        yield f"warning: {warning}"
    shapes = (", ".join(f"{key} {[*shape]}" for key, shape in feed.items()) for feed in result.feeds)
    yield f"compared on: {'; '.join(shapes)}"


def _row(found: OutputReport) -> Sequence[str]:
    worst = found.worst_element
    exact = found.max_abs is None
    return (
        found.output,
        "equal" if found.passed else "different",
        str(found.compared),
        _number(found.max_abs, ".2e"),
        _number(found.max_rel, ".2e"),
        _number(found.ulp, "d"),
        _number(found.cosine, ".9f"),
        _NOTHING if exact else _share(found.needed),
        f"feed {worst.feed + 1} {[*worst.index]}" if worst else _NOTHING,
        _value(worst.expected) if worst else _NOTHING,
        _value(worst.found) if worst else _NOTHING,
        found.reason,
    )


def _number(value: float | int | None, form: str) -> str:
    return _NOTHING if value is None else format(value, form)


def _share(needed: float) -> str:
    """Of the tolerance: in per cent, or as how many times it where that is more to read."""
    return f"{needed:,.0f} times" if _TIMES <= needed < math.inf else f"{needed:.1%}"


def _value(value: float | int | bool | str) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _over_time(told: OverTime) -> str:
    """At most `_POINTS` steps along the axis, each with the largest error from there to the next."""
    size = -(-len(told.errors) // _POINTS)
    starts = range(0, len(told.errors), size)
    return ", ".join(f"{k * told.group}: {max(told.errors[k : k + size]):.1e}" for k in starts)
