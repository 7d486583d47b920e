"""Prints a map of weights and an inspection, as tables or as plain lines.

A map of weights for a person, on stdout: a row for each matrix and bias, then what is no recurrence's.

An inspection for a person, on stdout: tables on a terminal, plain lines in a pipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rich.table import Table

from cudnn_convert.errors import command
from cudnn_convert.inspection.result import End, Found, Held, Inspection
from cudnn_convert.report import GateReport, Place, Subject, VariableReport, WeightsReport
from cudnn_convert.report.console import Screen

_UNTOLD: Final = "?"


def show_map(found: Subject) -> None:
    """Everything in the map; `?` where a place cannot be told by the values."""
    assert found.weights is not None
    console = Screen(stderr=False)
    where = found.artifact or f"what --format {found.format} writes"
    console.print(f"{found.source}: {found.kind}, to {where}", style="bold")
    for one in found.recurrences:
        sizes = (
            f"{one.layers} layers, {one.directions} directions, {one.units} units, {one.input_size} inputs"
        )
        console.print(f"{one.node or '(root)'}: {one.mode}, {sizes}, {one.dtype}", style="bold")
        console.print(_orders(found.weights, one.node))
        console.print(_gates(found.weights.gates[one.node]))
    if found.weights.variables:
        console.print(_variables(found.weights.variables))
    for note in found.notes:
        console.print(f"note: {note}")


def _orders(weights: WeightsReport, node: str) -> str:
    sides = (("source", weights.source_layouts[node]), ("target", weights.target_layouts[node]))
    return "; ".join(f"gates in the {side}: {', '.join(one.gates) or _UNTOLD}" for side, one in sides)


def _gates(rows: Iterable[GateReport]) -> Table:
    table = _table("layer", "direction", "gate", "weights", "source", "target")
    for row in rows:
        target = f"{_place(row.target)}{f' ({row.doubt})' if row.doubt else ''}"
        table.add_row(str(row.layer), row.direction, row.gate, row.weights, _place(row.source), target)
    return table


def _place(place: Place | None) -> str:
    return _UNTOLD if place is None else f"{place.tensor}{place.part} {place.axes}"


def _variables(rows: Iterable[VariableReport]) -> Table:
    table = _table("other tensor", "shape", "role", "target")
    for row in rows:
        table.add_row(row.source, str(list(row.shape)), row.role, row.target or "-")
    return table


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # a name that is cut is no name
    return table


_LIVE: Final = {True: "yes", False: "no", None: "?"}
_RUNS: Final = {True: "yes", False: "no", None: "not known"}


def show_inspection(found: Inspection) -> None:
    """Everything but the functions that nothing calls, which are counted."""
    console = Screen(stderr=False)
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    console.print(f"{found.source}: {found.kind}{f' ({versions})' if versions else ''}", style="bold")
    shown = [one for one in found.recurrences if one.live is not False or one.function is None]
    if shown:
        console.print(_recurrences(shown))
        for line in (*_settings(shown), *_weights(shown)):
            console.print(line)
    if hidden := len(found.recurrences) - len(shown):
        console.print(f"{hidden} more in functions that nothing calls: dead (--json lists them)")
    for offered in found.signatures:
        name = f"signature {offered.key}" if offered.key else "signature chosen from the graph"
        console.print(f"{name}{'' if offered.taken else ' (not taken)'}")
        for kind, ends in (("takes", offered.inputs), ("gives", offered.outputs)):
            for line in _ends(ends):
                console.print(f"  {kind} {line}")
    for note in found.notes:
        console.print(f"note: {note}")
    console.print(f"runs on a CPU as it is: {_RUNS[found.runs_on_cpu]}")
    for reason in found.reasons:
        console.print(reason)
    _commands(console, found)


def _commands(console: Screen, found: Inspection) -> None:
    if found.command is not None:
        console.print("convert it with:")
        console.print(f"  {command(found.command)}", style="bold")
    elif found.candidates:
        console.print("convert it with one of:")
        for way in found.candidates:
            console.print(f"  {command(way.command)}", style="bold")
    elif not found.runs_on_cpu:
        console.print("no command converts it as it is")


def _recurrences(found: Iterable[Found]) -> Table:
    names = "op mode layers directions units inputs dtype axes lengths dropout".split()
    table = Table("recurrence", *names, "live", box=None, pad_edge=False)
    for column in table.columns:
        column.overflow = "fold"  # a name that is cut is no name
    for one in found:
        sizes = (one.layers, one.directions, one.units, one.input_size)
        units = [("?" if size is None else str(size)) for size in sizes]
        units[2] += f" to {one.projection}" if one.projection else ""
        table.add_row(
            one.name or "(root)",
            one.op or "-",
            one.mode or "?",
            *units,
            one.dtype,
            ", ".join(one.axes),
            "yes" if one.lengths else "no",
            f"{one.dropout:g}",
            _LIVE[one.live],
        )
    return table


def _weights(found: Iterable[Found]) -> Iterator[str]:
    """Where weights are, once for all recurrences that share them."""
    sharing: dict[tuple[str, tuple[Held, ...], tuple[Held, ...]], list[str]] = {}
    for one in found:
        sharing.setdefault((one.copies, one.raw, one.canonical), []).append(one.name or "(root)")
    for (copies, raw, canonical), names in sharing.items():
        yield f"weights of {', '.join(names)}: {copies}"
        for kind, tensors in (("raw", raw), ("canonical", canonical)):
            if tensors:
                yield f"  {kind}: {', '.join(f'{one.name} {list(one.shape)}' for one in tensors)}"


def _settings(found: Iterable[Found]) -> Iterator[str]:
    for one in found:
        if one.settings:
            yield f"{one.name}: {', '.join(f'{key}={value}' for key, value in one.settings.items())}"


def _ends(ends: Mapping[str, End]) -> Iterator[str]:
    for key, end in ends.items():
        shape = "" if end.shape is None else f" [{', '.join(_width(width) for width in end.shape)}]"
        yield f"{key} = {end.tensor}{f' {end.dtype}' if end.dtype else ''}{shape}"


def _width(width: Any) -> str:
    return "?" if width is None else str(width)
