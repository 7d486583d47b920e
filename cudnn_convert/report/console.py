"""Prints the choices made and the proof on stderr."""

from __future__ import annotations

import sys
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cudnn_convert.errors import command, visible
from cudnn_convert.report import Report, Verification

#: Columns of a file or a pipe, where nothing needs to be cut.
_WIDE: Final = 10_000


def explain(report: Report) -> None:
    """What was found, what was chosen and how to say it again, and how equal the result is."""
    console = Screen(stderr=True)
    table = _table("recurrence", "op", "mode", "layers", "directions", "units", "inputs", "weights")
    for found in report.recurrences:
        sizes = (found.layers, found.directions, found.units, found.input_size)
        table.add_row(found.node, found.op, found.mode, *map(str, sizes), found.weights)
    if report.recurrences:
        console.print(table)
    for note in report.notes:
        console.print(f"note: {note}")
    if report.flags:
        console.print(f"repeat with: {command(report.flags)}")
    if report.out is None:
        return
    if report.verification is None:
        console.print("NOT VERIFIED: nothing was compared (--no-verify)", style="bold red")
    else:
        verification(report.verification)


def verification(result: Verification) -> None:
    """Each recurrence by itself; then the worst difference of each output, and its share of the tolerance."""
    console = Screen(stderr=True)
    if result.recurrences:
        console.print(_recurrences(result))
    table = _table("output", "values", "worst difference", "of tolerance", "judged as")
    for found in result.outputs:
        share = f"{found.needed:.1%}" if found.judged else "not judged"
        table.add_row(found.output, str(found.compared), f"{found.worst:.2e}", share, found.reason)
    console.print(table)
    for warning in result.warnings:
        console.print(f"warning: {warning}")
    if result.recording:
        console.print(f"judged by {_recording(result.recording)}")
    sizes = "; ".join(
        ", ".join(f"{key} {list(shape)}" for key, shape in feed.items()) for feed in result.feeds
    )
    seed = "" if result.seed is None else f" (seed {result.seed})"
    console.print(f"compared on: {sizes}{seed}")


def _recurrences(result: Verification) -> Table:
    """Each recurrence by itself, and what its inputs would have shown."""
    table = _table(
        *("recurrence", "layers", "asked in", "worst difference", "of tolerance"),
        *("wrong weights show", "weakest weight shows", ""),
    )
    for found in result.recurrences:
        numbers = (f"{found.worst:.2e}", f"{found.needed:.1%}", _times(found.smallest), _times(found.weakest))
        if not found.asked:
            numbers = ("", "", "", "")
        layers = ", ".join(map(str, found.layers))
        said = [f"{len(found.unseen)} changes show little"] if found.unseen else []
        said += [] if found.sampled is None else [f"single weights of {found.sampled} rows of each matrix"]
        table.add_row(found.node, layers, found.piece, *numbers, found.message or "; ".join(said))
    return table


def _times(share: float | None) -> str:
    """How many tolerances."""
    return "nothing to show" if share is None else f"{share:,.0f} tolerances"


def _recording(facts: dict[str, Any]) -> str:
    """A recording in one line: its file, what made it, where, and how float32 was computed there."""
    names = [device["description"] for device in facts["devices"] if device["type"] == "GPU"] or ["CPU"]
    built = "".join(f", {name} {facts[name]}" for name in ("cuda", "cudnn") if facts[name])
    tf32 = "on" if facts["tf32"]["on"] else "off"
    made = f"{facts['recorder']} from {facts['source']}, TensorFlow {facts['tensorflow']}{built}"
    return f"{facts['file']}: {made}; {'; '.join(names)}; TF32 {tf32} ({facts['tf32']['reason']})"


class Screen(Console):
    """A console for names out of files: nothing in them is markup, or acts on a terminal."""

    def __init__(self, *, stderr: bool) -> None:
        is_seen = (sys.stderr if stderr else sys.stdout).isatty()
        width = None if is_seen else _WIDE
        super().__init__(
            stderr=stderr, width=width, highlight=False, markup=False, emoji=False, soft_wrap=True
        )

    def render_str(self, text: str, **settings: Any) -> Text:
        """Also of each cell of a table."""
        return super().render_str(visible(text), **settings)


def _table(*columns: str) -> Table:
    """A table whose names fold where a terminal is narrow; a name that is cut is no name."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
