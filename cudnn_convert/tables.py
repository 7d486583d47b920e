"""What a person reads on stderr: progress, the choice made, the proof."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table

from cudnn_convert.report import Report, Verification

_CONSOLE: Final = Console(stderr=True, highlight=False, soft_wrap=True)


def silent(_: str) -> None:
    """Progress that nobody wants to see."""


def progress(step: str) -> None:
    """One line for each step of the walk."""
    _CONSOLE.print(f"{step} ...", style="dim")


def explain(report: Report) -> None:
    """What was found, what was chosen and how to say it again, and how equal the result is."""
    table = Table("recurrence", "op", "mode", "layers", "directions", "units", "inputs", "weights", box=None)
    for found in report.recurrences:
        sizes = (found.layers, found.directions, found.units, found.input_size)
        table.add_row(found.node, found.op, found.mode, *map(str, sizes), found.weights)
    if report.recurrences:
        _CONSOLE.print(table)
    for note in report.notes:
        _CONSOLE.print(f"note: {note}", markup=False)
    _CONSOLE.print(f"repeat with: {' '.join(report.flags)}", markup=False)
    if report.verification is None:
        _CONSOLE.print("NOT VERIFIED: nothing was compared (--no-verify)", style="bold red")
    else:
        verification(report.verification)


def verification(result: Verification) -> None:
    """The worst difference of each output, and the share of its tolerance that it used."""
    table = Table("output", "values", "worst difference", "of tolerance", "judged as", box=None)
    for found in result.outputs:
        share = f"{found.needed:.1%}"
        table.add_row(found.output, str(found.compared), f"{found.worst:.2e}", share, found.reason)
    _CONSOLE.print(table)
    for warning in result.warnings:
        _CONSOLE.print(f"warning: {warning}", markup=False)
    sizes = "; ".join(
        ", ".join(f"{key} {list(shape)}" for key, shape in feed.items()) for feed in result.feeds
    )
    _CONSOLE.print(f"compared on: {sizes} (seed {result.seed})", markup=False)
