"""A map of weights for a person, on stdout: a row for each matrix and bias, then what is no recurrence's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.table import Table

from cudnn_convert.report import GateReport, Place, Subject, VariableReport, WeightsReport
from cudnn_convert.tables import Screen

_UNTOLD: Final = "?"


def show(found: Subject) -> None:
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
