"""Where each matrix and bias of a recurrence lies: in the source by the blob's layout or by values, in an
artifact by values alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from cudnn_convert import layouts, opaque
from cudnn_convert.lineage.search import Form, Found, find, matrix_forms
from cudnn_convert.model import Array, CanonicalEvidence, Cell, Gate, Recurrence
from cudnn_convert.plan import Plan
from cudnn_convert.report import Place

#: One gate's matrix or bias: layer, direction, gate, and the field of the cell.
Key: TypeAlias = tuple[int, int, str, str]
Places: TypeAlias = Mapping[Key, Found | None]


def parts(recurrence: Recurrence) -> Iterator[tuple[Key, Array]]:
    """Every matrix and bias of a recurrence that its source stores."""
    for number, layer in enumerate(recurrence.cells):
        for way, cell in enumerate(layer):
            skipped = number == 0 and recurrence.sizes.skip_input
            for field in ("kernel", "recurrent_kernel", "bias", "recurrent_bias"):
                for gate, value in zip(cell.mode.gates, getattr(cell, field), strict=True):
                    if not (skipped and field == "kernel"):
                        yield (number, way, gate.value, field), value
            if cell.projection is not None:
                yield (number, way, "all", "projection"), cell.projection


def of_source(plan: Plan, here: Mapping[str, Array], recurrence: Recurrence) -> Places:
    """The places in the source; `here` are the constants of the plan's graph."""
    variables, evidence = plan.model.variables, recurrence.evidence
    if isinstance(evidence, CanonicalEvidence):
        names = [name for name in variables if name.endswith(tuple(evidence.tensors))]
        stored: Mapping[str, Array] = {name: variables[name].read() for name in names} or evidence.tensors
        return dict(_searched(stored, recurrence, source=True))
    if recurrence.shared in variables or recurrence.shared in here:
        return dict(_of_blob(recurrence))
    # Ops pack the blob from variables or constants.
    stored = {name: variables[name].read() for name in needed(plan) if name in variables} or here
    return dict(_searched({k: v for k, v in stored.items() if v.ndim}, recurrence, source=True))


def _of_blob(recurrence: Recurrence) -> Iterator[tuple[Key, Found]]:
    """Regions of the parameter blob, by the numbers of its elements."""
    sizes = recurrence.sizes
    cells = opaque.split(np.arange(opaque.length(sizes)), sizes, where=recurrence.shared)
    numbered = tuple(
        tuple(layouts.conventional(cell, recurrence.convention, canonical=False) for cell in layer)
        for layer in cells
    )
    for (layer, way, gate, field), _ in parts(recurrence):
        cell = numbered[layer][way]
        of = getattr(cell, field)
        part = of if field == "projection" else of[[one.value for one in cell.mode.gates].index(gate)]
        first = int(part.flat[0])
        place = Place(recurrence.shared, f"[{first}:{first + part.size}]", "as it is")
        yield (layer, way, gate, field), Found(place, first)


def of_artifact(there: Mapping[str, Array], recurrence: Recurrence) -> Places:
    """The places in the tensors of an artifact."""
    return dict(_searched(there, recurrence, source=False))


def _searched(
    tensors: Mapping[str, Array], recurrence: Recurrence, *, source: bool
) -> Iterator[tuple[Key, Found | None]]:
    taken: set[tuple[str, int]] = set()
    # Biases: in one row, a row for each direction, or a row for each gate.
    flat = {name: value for name, value in tensors.items() if value.ndim == 1 or value.shape[-2] < 5}
    for key, value in parts(recurrence):
        layer, way, gate, field = key
        cell = recurrence.cells[layer][way]
        if value.ndim > 1:
            composed = not source and cell.projection is not None and field == "recurrent_kernel"
            forms = matrix_forms(value) + (_composed(value, cell.projection) if composed else [])
            yield key, find(tensors, forms, taken)
            continue
        found = find(flat, [Form("as it is", value)], taken)
        yield key, found or find(flat, [*_sums(cell, gate, recurrence, source=source)], set())


def _composed(matrix: Array, projection: Any) -> list[Form]:
    """The recurrent kernel of an op that knows no projection: it takes what the projection would be given."""
    product = matrix.astype(np.float64) @ projection.astype(np.float64)
    return [
        Form(f"times the projection, {form.axes}", form.values, close=True) for form in matrix_forms(product)
    ]


def _sums(cell: Cell, gate: str, recurrence: Recurrence, *, source: bool) -> Iterator[Form]:
    """Both biases in one variable; an LSTM cell of TensorFlow 1 may add 1 to the forget gate itself."""
    number = [one.value for one in cell.mode.gates].index(gate)
    total = cell.bias[number] + cell.recurrent_bias[number]
    yield Form("summed", total)
    added = recurrence.convention.forget_bias if source else 1.0
    if gate == Gate.FORGET.value and added:
        yield Form(f"summed, {added:g} less", total - total.dtype.type(added), close=True)


def needed(plan: Plan) -> list[str]:
    """The variables that the outputs need, by the names that a checkpoint has."""
    if plan.graph is None:
        return []
    from cudnn_convert.graph.session import variable_ops
    from cudnn_convert.graph.variables import checkpoint_key

    return [checkpoint_key(node) for node in variable_ops(plan.graph)]
