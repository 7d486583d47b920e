"""Prints maps, inspections, choices and proofs as tables or plain lines.

Maps and inspections go to stdout: tables on a terminal, plain lines in a pipe. Choices and proofs go to
stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cudnn_convert.errors import command, visible
from cudnn_convert.inspection.result import End, Found, Held, Inspection
from cudnn_convert.report import (
    GateReport,
    Report,
    Subject,
    TensorRegion,
    VariableReport,
    Verification,
    WeightsReport,
)

_UNTOLD: Final = "?"


def show_map(subject: Subject) -> None:
    """Everything in the map; `?` where a place cannot be told by the values."""
    assert subject.weights is not None
    console = Screen(stderr=False)
    where = subject.artifact or f"what --format {subject.format} writes"
    console.print(f"{subject.source}: {subject.kind}, to {where}", style="bold")
    for recurrence in subject.recurrences:
        sizes = f"{recurrence.layers} layers, {recurrence.directions} directions, {recurrence.units} units"
        sizes += f", {recurrence.input_size} inputs"
        console.print(
            f"{recurrence.node or '(root)'}: {recurrence.mode}, {sizes}, {recurrence.dtype}", style="bold"
        )
        console.print(_orders(subject.weights, recurrence.node))
        console.print(_gates(subject.weights.gates[recurrence.node]))
    if subject.weights.variables:
        console.print(_variables(subject.weights.variables))
    for note in subject.notes:
        console.print(f"note: {note}")


def _orders(weights: WeightsReport, node: str) -> str:
    sides = (("source", weights.source_layouts[node]), ("target", weights.target_layouts[node]))
    return "; ".join(f"gates in the {side}: {', '.join(layout.gates) or _UNTOLD}" for side, layout in sides)


def _gates(rows: Iterable[GateReport]) -> Table:
    table = _make_table("layer", "direction", "gate", "weights", "source", "target")
    for row in rows:
        target = f"{_region(row.target)}{f' ({row.doubt})' if row.doubt else ''}"
        table.add_row(str(row.layer), row.direction, row.gate, row.weights, _region(row.source), target)
    return table


def _region(region: TensorRegion | None) -> str:
    return _UNTOLD if region is None else f"{region.tensor}{region.part} {region.axes}"


def _variables(rows: Iterable[VariableReport]) -> Table:
    table = _make_table("other tensor", "shape", "role", "target")
    for row in rows:
        table.add_row(row.source, str(list(row.shape)), row.role, row.target or "-")
    return table


_LIVE: Final = {True: "yes", False: "no", None: "?"}
_RUNS: Final = {True: "yes", False: "no", None: "not known"}


def show_inspection(inspection: Inspection) -> None:
    """Everything but the functions that nothing calls, which are counted."""
    console = Screen(stderr=False)
    versions = ", ".join(f"{name} {version}" for name, version in inspection.versions.items())
    console.print(
        f"{inspection.source}: {inspection.kind}{f' ({versions})' if versions else ''}", style="bold"
    )
    shown = [
        recurrence
        for recurrence in inspection.recurrences
        if recurrence.live is not False or recurrence.function is None
    ]
    if shown:
        console.print(_recurrences(shown))
        for line in (*_settings(shown), *_weights(shown)):
            console.print(line)
    if hidden := len(inspection.recurrences) - len(shown):
        console.print(f"{hidden} more in functions that nothing calls: dead (--json lists them)")
    for offered in inspection.signatures:
        name = f"signature {offered.key}" if offered.key else "signature chosen from the graph"
        console.print(f"{name}{'' if offered.taken else ' (not taken)'}")
        for kind, ends in (("takes", offered.inputs), ("gives", offered.outputs)):
            for line in _ends(ends):
                console.print(f"  {kind} {line}")
    for note in inspection.notes:
        console.print(f"note: {note}")
    console.print(f"runs on a CPU as it is: {_RUNS[inspection.runs_on_cpu]}")
    for reason in inspection.reasons:
        console.print(reason)
    _commands(console, inspection)


def _commands(console: Screen, inspection: Inspection) -> None:
    if inspection.command is not None:
        console.print("convert it with:")
        console.print(f"  {command(inspection.command)}", style="bold")
    elif inspection.candidates:
        console.print("convert it with one of:")
        for candidate in inspection.candidates:
            console.print(f"  {command(candidate.command)}", style="bold")
    elif not inspection.runs_on_cpu:
        console.print("no command converts it as it is")


def _recurrences(recurrences: Iterable[Found]) -> Table:
    names = "op mode layers directions units inputs dtype axes lengths dropout".split()
    table = Table("recurrence", *names, "live", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # a name that is cut is no name
    for recurrence in recurrences:
        sizes = (recurrence.layers, recurrence.directions, recurrence.units, recurrence.input_size)
        units = [("?" if size is None else str(size)) for size in sizes]
        units[2] += f" to {recurrence.projection}" if recurrence.projection else ""
        table.add_row(
            recurrence.name or "(root)",
            recurrence.op or "-",
            recurrence.mode or "?",
            *units,
            recurrence.dtype,
            ", ".join(recurrence.axes),
            "yes" if recurrence.lengths else "no",
            f"{recurrence.dropout:g}",
            _LIVE[recurrence.live],
        )
    return table


def _weights(recurrences: Iterable[Found]) -> Iterator[str]:
    """Where weights are, once for all recurrences that share them."""
    sharing: dict[tuple[str, tuple[Held, ...], tuple[Held, ...]], list[str]] = {}
    for recurrence in recurrences:
        sharing.setdefault((recurrence.copies, recurrence.raw, recurrence.canonical), []).append(
            recurrence.name or "(root)"
        )
    for (copies, raw, canonical), names in sharing.items():
        yield f"weights of {', '.join(names)}: {copies}"
        for kind, tensors in (("raw", raw), ("canonical", canonical)):
            if tensors:
                yield f"  {kind}: {', '.join(f'{tensor.name} {list(tensor.shape)}' for tensor in tensors)}"


def _settings(recurrences: Iterable[Found]) -> Iterator[str]:
    for recurrence in recurrences:
        if recurrence.settings:
            settings = ", ".join(f"{key}={value}" for key, value in recurrence.settings.items())
            yield f"{recurrence.name}: {settings}"


def _ends(ends: Mapping[str, End]) -> Iterator[str]:
    for key, end in ends.items():
        shape = "" if end.shape is None else f" [{', '.join(_width(width) for width in end.shape)}]"
        yield f"{key} = {end.tensor}{f' {end.dtype}' if end.dtype else ''}{shape}"


def _width(width: Any) -> str:
    return "?" if width is None else str(width)


#: Columns of a file or a pipe, where nothing needs to be cut.
_WIDE: Final = 10_000


def explain(report: Report) -> None:
    """What was found, what was chosen and how to say it again, and how equal the result is."""
    console = Screen(stderr=True)
    table = _make_table("recurrence", "op", "mode", "layers", "directions", "units", "inputs", "weights")
    for recurrence in report.recurrences:
        sizes = (recurrence.layers, recurrence.directions, recurrence.units, recurrence.input_size)
        table.add_row(recurrence.node, recurrence.op, recurrence.mode, *map(str, sizes), recurrence.weights)
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
        console.print(_recurrence_table(result))
    table = _make_table("output", "values", "worst difference", "of tolerance", "judged as")
    for output in result.outputs:
        share = f"{output.needed:.1%}" if output.judged else "not judged"
        table.add_row(output.output, str(output.compared), f"{output.worst:.2e}", share, output.reason)
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


def _recurrence_table(result: Verification) -> Table:
    """Each recurrence by itself, and what its inputs would have shown."""
    table = _make_table(
        *("recurrence", "layers", "asked in", "worst difference", "of tolerance"),
        *("wrong weights show", "weakest weight shows", ""),
    )
    for recurrence in result.recurrences:
        numbers = (
            f"{recurrence.worst:.2e}",
            f"{recurrence.needed:.1%}",
            _times(recurrence.smallest),
            _times(recurrence.weakest),
        )
        if not recurrence.asked:
            numbers = ("", "", "", "")
        layers = ", ".join(map(str, recurrence.layers))
        remarks = [f"{len(recurrence.unseen)} changes show little"] if recurrence.unseen else []
        remarks += (
            []
            if recurrence.sampled is None
            else [f"single weights of {recurrence.sampled} rows of each matrix"]
        )
        table.add_row(
            recurrence.node, layers, recurrence.piece, *numbers, recurrence.message or "; ".join(remarks)
        )
    return table


def _times(share: float | None) -> str:
    """How many tolerances."""
    return "nothing to show" if share is None else f"{share:,.0f} tolerances"


def _recording(facts: dict[str, Any]) -> str:
    """A recording in one line: its file, what made it, where, and how float32 was computed there."""
    names = [device["description"] for device in facts["devices"] if device["type"] == "GPU"] or ["CPU"]
    built = "".join(f", {name} {facts[name]}" for name in ("cuda", "cudnn") if facts[name])
    tf32 = "on" if facts["tf32"]["on"] else "off"
    origin = f"{facts['recorder']} from {facts['source']}, TensorFlow {facts['tensorflow']}{built}"
    return f"{facts['file']}: {origin}; {'; '.join(names)}; TF32 {tf32} ({facts['tf32']['reason']})"


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


def _make_table(*columns: str) -> Table:
    """A table whose names fold where a terminal is narrow; a name that is cut is no name."""
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
