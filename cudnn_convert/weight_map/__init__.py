"""Maps every tensor of the source to its place in the artifact.

A parameter blob's regions are known by its layout; all other places, those in the artifact above all, are
found by the values themselves. So the map is made alike for our artifacts and for others, and a matrix that
was written wrongly has no place in it, or an odd one.

* search: Finds weights in an artifact by their values, and doubts about their places.

May import: model, weights, report, graph, plan, artifacts.
Entry: `trace_weights` gives the map, `search.objections` what speaks against an artifact in a proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cudnn_convert.artifacts import checkpoint, runners
from cudnn_convert.model import WAYS, Array, Model, Recurrence, is_float
from cudnn_convert.plan import Plan
from cudnn_convert.report import GateReport, LayoutReport, Place, VariableReport, WeightsReport
from cudnn_convert.weight_map import search
from cudnn_convert.weight_map.search import FIRST, Key, Places, doubt, gate_order, whole
from cudnn_convert.weights import layouts


def trace_weights(plan: Plan, form: str, artifact: Path) -> WeightsReport:
    """The map of a plan to an artifact of format `form`, which must load."""
    there = runners.read_arrays(form, artifact)
    here = {} if plan.graph is None else dict(checkpoint.constants(plan.graph))
    gates, sources, targets = {}, {}, {}
    for recurrence in plan.recurrences:
        found = search.of_source(plan, here, recurrence)
        made = search.of_artifact(there, recurrence)
        keys = [key for key, _ in search.parts(recurrence)]
        gates[recurrence.node] = tuple(_gate(recurrence, key, found, made) for key in keys)
        sources[recurrence.node] = _layout(recurrence, found)
        targets[recurrence.node] = _layout(recurrence, made)
    decoded = {row.source.tensor for rows in gates.values() for row in rows if row.source}
    return WeightsReport(gates, sources, targets, tuple(_variables(plan, here, there, decoded)))


def _gate(recurrence: Recurrence, key: Key, sources: Places, targets: Places) -> GateReport:
    layer, way, gate, field = key
    source, target = _place(sources, key), _place(targets, key)
    return GateReport(layer, WAYS[way], gate, field, source, target, doubt(recurrence, targets, key))


def _place(places: Places, key: Key) -> Place | None:
    one = places.get(key)
    return one.place if one else None


def _layout(recurrence: Recurrence, places: Places) -> LayoutReport:
    """The order of the gates in the tensors that hold the first recurrent kernel."""
    mode, order = recurrence.sizes.mode, gate_order(recurrence, places, FIRST)
    names = [layout.name for layout in layouts.LAYOUTS if order and layout.gates.get(mode) == order]
    names += ["cudnn"] if order == mode.gates else []
    return LayoutReport(tuple(gate.value for gate in order), tuple(names))


def _variables(
    plan: Plan, here: Mapping[str, Array], there: Mapping[str, Array], decoded: set[str]
) -> Iterator[VariableReport]:
    """What is no recurrence's: variables, and in a graph of constants those."""
    needed, copies = set(search.needed_variables(plan)), _copies(plan.model, plan.recurrences)
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
