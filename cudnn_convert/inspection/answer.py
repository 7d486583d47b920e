"""The inspection itself: one command where one way is left, every way where a choice is, else the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cudnn_convert.inspection import versions
from cudnn_convert.inspection.command import command, flags
from cudnn_convert.inspection.value import Found, Inspection, Offered, Way
from cudnn_convert.inspection.ways import Ways
from cudnn_convert.model import Model
from cudnn_convert.options import Options

#: What a source without a graph may leave to its user.
_CLAIMS: Final = ("mode", "layers", "units", "directions")
PORTABLE: Final = "portable already: nothing reaches a cuDNN op; --force-convert writes a copy all the same"


def told(
    source: Path,
    model: Model,
    *,
    runs_on_cpu: bool | None,
    recurrences: Iterable[Found],
    signatures: Iterable[Offered],
    reasons: Sequence[str] = (),
    options: Options | None = None,
) -> Inspection:
    """An inspection, with the command of `options` where there are any."""
    return Inspection(
        source=str(source),
        kind=model.kind,
        versions=versions.recorded(model),
        runs_on_cpu=runs_on_cpu,
        recurrences=tuple(recurrences),
        signatures=tuple(signatures),
        command=None if options is None else command(source, options),
        candidates=(),
        reasons=tuple(reasons),
        notes=model.notes,
    )


def with_ways(found: Inspection, source: Path, ways: Ways, options: Options) -> Inspection:
    """The inspection with the command of the only way, or with all ways.

    A way that says something of the model, as its number of directions, is never the only one: whoever
    knows the model must say whether that is so.
    """
    made = [replace(given, format=options.format) for given, _ in ways.plans]
    found = replace(found, reasons=ways.reasons)
    claims = any(getattr(given, name) != getattr(options, name) for given in made for name in _CLAIMS)
    if len(made) == 1 and not claims:
        return replace(found, command=command(source, made[0]), notes=ways.plans[0][1].notes)
    listed = tuple(Way(flags(given), command(source, given)) for given in made)
    return replace(found, candidates=listed)


def with_notes(found: Inspection, notes: Iterable[str]) -> Inspection:
    """The inspection with more to tell."""
    return replace(found, notes=(*found.notes, *notes))
