"""Maps every tensor of the source to its place in the artifact.

Regions of a parameter blob follow from its layout; all other places, above all those in the artifact, are
found by comparing values. So the map works for artifacts of any tool, and a matrix that was written wrongly
has no place in it, or an odd one.

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
from cudnn_convert.report import GateReport, LayoutReport, TensorRegion, VariableReport, WeightsReport
from cudnn_convert.weight_map import search
from cudnn_convert.weight_map.search import FIRST, Key, Locations, doubt, gate_order, whole
from cudnn_convert.weights import layouts


def trace_weights(plan: Plan, form: str, artifact: Path) -> WeightsReport:
    """Map a plan's weights to an artifact of format `form`, which must load."""
    there = runners.read_arrays(form, artifact)
    here = {} if plan.graph is None else dict(checkpoint.constants(plan.graph))
    gates, sources, targets = {}, {}, {}
    for recurrence in plan.recurrences:
        in_source = search.of_source(plan, here, recurrence)
        in_artifact = search.of_artifact(there, recurrence)
        keys = [key for key, _ in search.parts(recurrence)]
        gates[recurrence.node] = tuple(_gate(recurrence, key, in_source, in_artifact) for key in keys)
        sources[recurrence.node] = _layout(recurrence, in_source)
        targets[recurrence.node] = _layout(recurrence, in_artifact)
    decoded = {row.source.tensor for rows in gates.values() for row in rows if row.source}
    return WeightsReport(gates, sources, targets, tuple(_variables(plan, here, there, decoded)))


def _gate(recurrence: Recurrence, key: Key, sources: Locations, targets: Locations) -> GateReport:
    layer, direction, gate, field = key
    source, target = _region(sources, key), _region(targets, key)
    return GateReport(layer, WAYS[direction], gate, field, source, target, doubt(recurrence, targets, key))


def _region(locations: Locations, key: Key) -> TensorRegion | None:
    location = locations.get(key)
    return location.region if location else None


def _layout(recurrence: Recurrence, locations: Locations) -> LayoutReport:
    """The gate order in the tensors with the first recurrent kernel, and its names."""
    mode, order = recurrence.sizes.mode, gate_order(recurrence, locations, FIRST)
    names = [layout.name for layout in layouts.LAYOUTS if order and layout.gates.get(mode) == order]
    names += ["cudnn"] if order == mode.gates else []
    return LayoutReport(tuple(gate.value for gate in order), tuple(names))


def _variables(
    plan: Plan, here: Mapping[str, Array], there: Mapping[str, Array], decoded: set[str]
) -> Iterator[VariableReport]:
    """The variables, or in a graph without variables the constants, of no recurrence."""
    needed, copies = set(search.list_needed_variables(plan)), _copies(plan.model, plan.recurrences)
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
    """The names of all copies of recurrences' weights: canonical keys and blobs."""
    keys = {f"{parameters.scope}{key}" for parameters in model.canonical for key in parameters.tensors()}
    return keys | {recurrence.shared for recurrence in recurrences}
