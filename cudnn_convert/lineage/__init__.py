"""From every tensor of the source to its place in the artifact, for the report.

A parameter blob's regions are known by its layout; all other places, those in the artifact above all, are
found by the values themselves. So the map is made alike for our artifacts and for others, and a matrix that
was written wrongly has no place in it, or an odd one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from cudnn_convert import layouts
from cudnn_convert.lineage import arrays, places
from cudnn_convert.lineage.places import Key, Places
from cudnn_convert.lineage.search import whole
from cudnn_convert.model import WAYS, Array, Gate, Model, Recurrence, is_float
from cudnn_convert.plan import Plan
from cudnn_convert.report import GateReport, LayoutReport, Place, VariableReport, WeightsReport

#: Whose order of gates stands for the whole recurrence: the field that every cell has in every source.
_FIRST: Final = (0, 0, "recurrent_kernel")


def traced(plan: Plan, form: str, artifact: Path) -> WeightsReport:
    """The map of a plan to an artifact of format `form`, which must load."""
    there = arrays.read(form, artifact)
    here = {} if plan.graph is None else dict(arrays.of_graph(plan.graph))
    gates, sources, targets = {}, {}, {}
    for recurrence in plan.recurrences:
        found = places.of_source(plan, here, recurrence)
        made = places.of_artifact(there, recurrence)
        keys = [key for key, _ in places.parts(recurrence)]
        gates[recurrence.node] = tuple(_gate(recurrence, key, found, made) for key in keys)
        sources[recurrence.node] = _layout(recurrence, found)
        targets[recurrence.node] = _layout(recurrence, made)
    decoded = {row.source.tensor for rows in gates.values() for row in rows if row.source}
    return WeightsReport(gates, sources, targets, tuple(_variables(plan, here, there, decoded)))


def _gate(recurrence: Recurrence, key: Key, found: Places, made: Places) -> GateReport:
    layer, way, gate, field = key
    source, target = _place(found, key), _place(made, key)
    return GateReport(layer, WAYS[way], gate, field, source, target, _doubt(recurrence, made, key))


def _place(found: Places, key: Key) -> Place | None:
    one = found.get(key)
    return one.place if one else None


def _order(recurrence: Recurrence, found: Places, group: tuple[int, int, str]) -> tuple[Gate, ...]:
    """The gates of one field of one pseudo-layer as the tensors hold them; none where one is not found."""
    layer, way, field = group
    gates = recurrence.sizes.mode.gates
    told = {gate: place for gate in gates if (place := found.get((layer, way, gate.value, field)))}
    if len(told) < len(gates):
        return ()
    tensors = [place.place.tensor for place in told.values()]
    return tuple(sorted(told, key=lambda gate: (-tensors.count(told[gate].place.tensor), told[gate].first)))


def _layout(recurrence: Recurrence, found: Places) -> LayoutReport:
    """The order of the gates in the tensors that hold the first recurrent kernel."""
    mode, order = recurrence.sizes.mode, _order(recurrence, found, _FIRST)
    names = [layout.name for layout in layouts.LAYOUTS if order and layout.gates.get(mode) == order]
    names += ["cudnn"] if order == mode.gates else []
    return LayoutReport(tuple(gate.value for gate in order), tuple(names))


def _doubt(recurrence: Recurrence, found: Places, key: Key) -> str:
    """What makes one target unlike the others: all of a recurrence's weights are written in one way."""
    layer, way, gate, field = key
    if field == "projection":
        return ""
    usual, order = (_order(recurrence, found, group) for group in (_FIRST, (layer, way, field)))
    if usual and order and usual != order:
        return f"gates in the order {', '.join(one.value for one in order)}"
    kernel, own = (found.get((layer, way, gate, one)) for one in ("kernel", field))
    axes = [one.place.axes for one in (kernel, own) if one is not None]
    if field == "recurrent_kernel" and sorted(axes) == ["as it is", "transposed"]:
        return f"{axes[1]}, where the kernel lies {axes[0]}"
    return ""


def _variables(
    plan: Plan, here: Mapping[str, Array], there: Mapping[str, Array], decoded: set[str]
) -> Iterator[VariableReport]:
    """What is no recurrence's: variables, and in a graph of constants those."""
    needed, copies = set(places.needed(plan)), _copies(plan.model, plan.recurrences)
    for name, tensor in plan.model.variables.items():
        if name in decoded:
            continue
        role = "other copy" if name in copies else "needed" if name in needed else "not needed"
        target = None
        if role == "needed":
            has_values = is_float(np.dtype(tensor.dtype)) and np.prod(tensor.shape, dtype=int) > 0
            target = whole(there, name, tensor.read()) if has_values else None
        yield VariableReport(name, tuple(tensor.shape), role, target)
    if plan.model.variables:
        return
    for name, value in here.items():
        if name not in decoded and value.ndim and value.size > 1:
            yield VariableReport(name, value.shape, "needed", whole(there, name, value))


def _copies(model: Model, recurrences: Sequence[Recurrence]) -> set[str]:
    """The names of the copy of the weights that was not taken."""
    keys = {f"{found.scope}{key}" for found in model.canonical for key in found.tensors()}
    return keys | {found.shared for found in recurrences}
