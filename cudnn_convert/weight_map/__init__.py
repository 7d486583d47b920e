"""Maps every tensor of the source to a place in the artifact.

The regions of a source's blob follow from its layout. All other matrices and biases, above all those in the
artifact, are located by comparing values, which trusts no statement of this package. So the map works for
artifacts of any tool. A place is doubtful where it differs from the others, since all weights of a recurrence
are written alike.

`objections` lists weights that are nowhere in the artifact, or in an odd order. It is a separate check in a
proof and runs nothing. It can fail a proof, never pass one, so it reports only unambiguous weights, not those
whose values could occur in many places.

May import: model, weights, report, graph, plan, artifacts.
Entry: `trace_weights` gives the map, `objections` what speaks against an artifact in a proof.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from cudnn_convert.artifacts import checkpoint, runners
from cudnn_convert.model import WAYS, Array, CanonicalEvidence, Cell, Gate, Model, Recurrence, is_float
from cudnn_convert.plan import Plan
from cudnn_convert.report.values import GateReport, LayoutReport, TensorRegion, VariableReport, WeightsReport
from cudnn_convert.weights import layouts, lazy, parameter_blob


def trace_weights(plan: Plan, form: str, artifact: Path) -> WeightsReport:
    """Map a plan's weights to a loadable artifact of format `form`."""
    there = runners.read_arrays(form, artifact)
    here = _read_constants(plan)
    gates, sources, targets = {}, {}, {}
    for recurrence in plan.recurrences:
        in_source = of_source(plan, here, recurrence)
        in_artifact = of_artifact(there, recurrence)
        keys = [key for key, _ in parts(recurrence)]
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
    """Return the gate order of the first recurrent kernel's tensors, and the order's names."""
    mode, order = recurrence.sizes.mode, gate_order(recurrence, locations, FIRST)
    rows = (*layouts.LAYOUTS, layouts.CUDNN)
    names = tuple(row.name for row in rows if row.gates.get(mode) == order)
    return LayoutReport(tuple(gate.value for gate in order), names)


def _variables(
    plan: Plan, here: Mapping[str, Array], there: Mapping[str, Array], decoded: set[str]
) -> Iterator[VariableReport]:
    """Yield the variables outside recurrences, or else the constants.

    The constants stand for them in a graph without variables.
    """
    needed, copies = set(list_needed_variables(plan)), _copies(plan.model, plan.recurrences)
    for name, tensor in plan.model.variables.items():
        if name in decoded:
            continue
        role = "other copy" if name in copies else "needed" if name in needed else "not needed"
        has_values = is_float(np.dtype(tensor.dtype)) and np.prod(tensor.shape, dtype=int) > 0
        target = whole(there, name, tensor.read()) if role == "needed" and has_values else None
        yield VariableReport(name, tuple(tensor.shape), role, target)
    if plan.model.variables:
        return
    for name, value in here.items():
        if name not in decoded and value.ndim and value.size > 1:
            yield VariableReport(name, value.shape, "needed", whole(there, name, value))


def _copies(model: Model, recurrences: Sequence[Recurrence]) -> set[str]:
    """Return the names of all copies of recurrences' weights: canonical keys and blobs."""
    keys = {key for parameters in model.canonical for key in model.list_stored_keys(parameters)}
    return keys | {recurrence.shared for recurrence in recurrences}


#: Tolerance for a bias after adding and subtracting a value.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class RegionStart:
    """A region, with the index of the first element in the flat tensor."""

    region: TensorRegion
    first: int


@dataclass(frozen=True, slots=True)
class RegionForm:
    """A form for writing a part: `TensorRegion.axes` and values.

    `close`: compare with a tolerance, since values may be rounded.
    """

    axes: str
    values: Array
    close: bool = False


def matrix_forms(matrix: Array) -> list[RegionForm]:
    """Return the forms of cuDNN's `[units, inputs]` matrix in sources and targets."""
    forms = [RegionForm("as it is", matrix), RegionForm("transposed", matrix.T)]
    if matrix.shape[0] != matrix.shape[1]:
        forms.append(RegionForm("reshaped", matrix.reshape(matrix.T.shape)))
    return forms


def find(
    tensors: Mapping[str, Array], forms: Sequence[RegionForm], taken: set[tuple[str, int]]
) -> RegionStart | None:
    """Find the first free place of any form, and add the place to `taken`.

    None where there is no such place, or where all values are equal, since zeros occur in many places.
    """
    for form in forms:
        if np.all(form.values == form.values.flat[0]):
            continue
        for name, tensor in tensors.items():
            for start in _starts(tensor, form):
                if (name, start) not in taken:
                    taken.add((name, start))
                    return RegionStart(
                        TensorRegion(name, _part(tensor, start, form.values), form.axes), start
                    )
    return None


def _starts(tensor: Array, form: RegionForm) -> Iterator[int]:
    """Yield the flat index of each block of `tensor` with the values of the form.

    In a tensor of rank 1 a matrix is contiguous; in others it is a block of the last two axes.
    """
    block = np.atleast_2d(form.values if tensor.ndim > 1 else form.values.reshape(-1)).astype(tensor.dtype)
    plane = tensor.reshape(-1, tensor.shape[-1])
    (rows, columns), width = block.shape, plane.shape[1]
    height = tensor.shape[-2] if tensor.ndim > 1 else 1
    if rows > height or columns > width:
        return
    at = np.unravel_index(int(np.argmax(np.abs(block.astype(np.float64)))), block.shape)
    for hit in np.flatnonzero(_equal(plane, block[at], close=form.close)):
        row, column = int(hit) // width - int(at[0]), int(hit) % width - int(at[1])
        inside = row >= 0 and column >= 0 and row % height + rows <= height and column + columns <= width
        region = plane[row : row + rows, column : column + columns]
        if inside and _equal(region, block, close=form.close).all():
            yield row * width + column


def _equal(array: Array, expected: Any, *, close: bool) -> Array:
    if not close:
        return np.asarray(array == expected)
    array, expected = array.astype(np.float64), np.float64(expected)
    return np.asarray(np.isclose(array, expected, rtol=_ROUNDING, atol=_ROUNDING))


def _part(tensor: Array, start: int, values: Array) -> str:
    """Return the block as a Python slice."""
    indices = [int(k) for k in np.unravel_index(start, tensor.shape)]
    sizes = list(values.shape) if tensor.ndim > 1 else [math.prod(values.shape)]
    lengths = [None] * (tensor.ndim - len(sizes)) + sizes
    slices = [
        str(first) if length is None else ":" if length == width else f"{first}:{first + length}"
        for first, length, width in zip(indices, lengths, tensor.shape, strict=True)
    ]
    return f"[{', '.join(slices)}]"


def whole(tensors: Mapping[str, Array], name: str, value: Array) -> str | None:
    """Return the tensor equal to `value`, reshaped or transposed, or None.

    The tensor of the same name is tried first.
    """
    own = tensors.get(name)
    if own is not None and own.shape == value.shape and np.array_equal(own, value.astype(own.dtype)):
        return name
    if np.all(value == value.flat[0]):
        return None
    for candidate, tensor in tensors.items():
        if tensor.size == value.size:
            flat = tensor.reshape(-1)
            if any(np.array_equal(flat, form.reshape(-1).astype(flat.dtype)) for form in (value, value.T)):
                return candidate
    return None


#: One gate's matrix or bias: layer, direction, gate, and the field of the cell.
Key: TypeAlias = tuple[int, int, str, str]
Locations: TypeAlias = Mapping[Key, RegionStart | None]


def parts(recurrence: Recurrence) -> Iterator[tuple[Key, Array]]:
    """Yield every stored matrix and bias of a recurrence, by key."""
    for number, layer in enumerate(recurrence.cells):
        for direction, cell in enumerate(layer):
            skipped = number == 0 and recurrence.sizes.skip_input
            for field in ("kernel", "recurrent_kernel", "bias", "recurrent_bias"):
                for gate, value in zip(cell.mode.gates, getattr(cell, field), strict=True):
                    if not (skipped and field == "kernel"):
                        yield (number, direction, gate.value, field), value
            if cell.projection is not None:
                yield (number, direction, "all", "projection"), cell.projection


def of_source(plan: Plan, here: Mapping[str, Array], recurrence: Recurrence) -> Locations:
    """Return the locations in the source.

    `here` has the constants of the plan's graph.
    """
    variables, evidence = plan.model.variables, recurrence.evidence
    if isinstance(evidence, CanonicalEvidence):
        names = [name for name in variables if name.endswith(tuple(evidence.tensors))]
        stored: Mapping[str, Array] = {name: variables[name].read() for name in names} or evidence.tensors
        return dict(_search_tensors(stored, recurrence, source=True))
    if recurrence.shared in variables or recurrence.shared in here:
        return dict(_of_blob(recurrence))
    # The graph packs the blob from variables or constants.
    stored = {
        name: variables[name].read() for name in list_needed_variables(plan) if name in variables
    } or here
    return dict(_search_tensors({k: v for k, v in stored.items() if v.ndim}, recurrence, source=True))


def _of_blob(recurrence: Recurrence) -> Iterator[tuple[Key, RegionStart]]:
    """Yield regions of the parameter blob, from split element numbers."""
    sizes = recurrence.sizes
    cells = parameter_blob.split(np.arange(parameter_blob.length(sizes)), sizes, where=recurrence.shared)
    numbered = tuple(
        tuple(layouts.conventional(cell, recurrence.convention, canonical=False) for cell in layer)
        for layer in cells
    )
    for key, part in parts(replace(recurrence, cells=numbered)):
        first = int(part.flat[0])
        region = TensorRegion(recurrence.shared, f"[{first}:{first + part.size}]", "as it is")
        yield key, RegionStart(region, first)


def of_artifact(there: Mapping[str, Array], recurrence: Recurrence) -> Locations:
    """Return the locations in the tensors of an artifact."""
    return dict(_search_tensors(there, recurrence, source=False))


def _search_tensors(
    tensors: Mapping[str, Array], recurrence: Recurrence, *, source: bool
) -> Iterator[tuple[Key, RegionStart | None]]:
    taken: set[tuple[str, int]] = set()
    # Biases: one row, one row a direction, or one row a gate.
    flat = {name: value for name, value in tensors.items() if value.ndim == 1 or value.shape[-2] < 5}
    for key, value in parts(recurrence):
        layer, direction, gate, field = key
        cell = recurrence.cells[layer][direction]
        if value.ndim > 1:
            composed = not source and cell.projection is not None and field == "recurrent_kernel"
            forms = matrix_forms(value) + (_apply_projection(value, cell.projection) if composed else [])
            yield key, find(tensors, forms, taken)
            continue
        location = find(flat, [RegionForm("as it is", value)], taken)
        yield key, location or find(flat, [*_sums(cell, gate, recurrence, source=source)], set())


def _apply_projection(matrix: Array, projection: Any) -> list[RegionForm]:
    """Return forms of the recurrent kernel times the projection.

    An op without projection takes them.
    """
    product = matrix.astype(np.float64) @ projection.astype(np.float64)
    return [
        RegionForm(f"times the projection, {form.axes}", form.values, close=True)
        for form in matrix_forms(product)
    ]


def _sums(cell: Cell, gate: str, recurrence: Recurrence, *, source: bool) -> Iterator[RegionForm]:
    """Yield forms of the summed biases.

    A TensorFlow 1 LSTM cell may add 1 to the forget gate itself.
    """
    number = [each.value for each in cell.mode.gates].index(gate)
    total = cell.bias[number] + cell.recurrent_bias[number]
    yield RegionForm("summed", total)
    added = recurrence.convention.forget_bias if source else 1.0
    if gate == Gate.FORGET.value and added:
        yield RegionForm(f"summed, {added:g} less", total - total.dtype.type(added), close=True)


def _read_constants(plan: Plan) -> dict[str, Array]:
    """Return the constants of a plan's graph by name.

    Recurrences alone may have none.
    """
    return {} if plan.graph is None else dict(checkpoint.constants(plan.graph))


def list_needed_variables(plan: Plan) -> list[str]:
    """List the checkpoint names of the variables needed by the outputs."""
    if plan.graph is None:
        return []
    from cudnn_convert.graph.session import checkpoint_key, variable_ops

    return [checkpoint_key(node) for node in variable_ops(plan.graph)]


#: The group whose gate order is the recurrence's: every cell has this field in every source.
FIRST: Final = (0, 0, "recurrent_kernel")


def gate_order(recurrence: Recurrence, locations: Locations, group: tuple[int, int, str]) -> tuple[Gate, ...]:
    """Return the gate order of a field of a pseudo-layer in the tensors.

    Empty where a gate is not located.
    """
    layer, direction, field = group
    gates = recurrence.sizes.mode.gates
    located = {
        gate: location for gate in gates if (location := locations.get((layer, direction, gate.value, field)))
    }
    if len(located) < len(gates):
        return ()
    tensors = [location.region.tensor for location in located.values()]
    return tuple(
        sorted(located, key=lambda gate: (-tensors.count(located[gate].region.tensor), located[gate].first))
    )


def doubt(recurrence: Recurrence, locations: Locations, key: Key) -> str:
    """Return the oddity in the place of a weight, or ""."""
    layer, direction, gate, field = key
    if field == "projection":
        return ""
    usual, order = (gate_order(recurrence, locations, group) for group in (FIRST, (layer, direction, field)))
    if usual and order and usual != order:
        return f"gates in the order {', '.join(kind.value for kind in order)}"
    kernel, own = (locations.get((layer, direction, gate, kind)) for kind in ("kernel", field))
    axes = [location.region.axes for location in (kernel, own) if location is not None]
    if field == "recurrent_kernel" and sorted(axes) == ["as it is", "transposed"]:
        return f"{axes[1]}, where the kernel lies {axes[0]}"
    return ""


#: Parts with fewer distinct values may match by chance.
_KINDS: Final = 4
#: The fields that are compared with those of the first layer.
_COMPARED: Final = ("kernel", "recurrent_kernel")


def objections(plan: Plan, form: str, artifact: Path, *, is_copy: bool) -> tuple[str, ...]:
    """Return the faults of the weights in an artifact of format `form`, a line each.

    `is_copy`: every weight must occur bit for bit, or rounded to its stored type; otherwise only the order of
    those present is checked. Recurrences too large to be read at once are skipped.
    """
    small = [own for own in plan.recurrences if not lazy.exceeds_memory_budget(own.sizes, own.dtype)]
    if not small:
        return ()
    there = runners.read_arrays(form, artifact)
    here = _read_constants(plan)
    return tuple(line for recurrence in small for line in _of(plan, here, there, recurrence, is_copy=is_copy))


def _of(
    plan: Plan,
    here: Mapping[str, Array],
    there: Mapping[str, Array],
    recurrence: Recurrence,
    *,
    is_copy: bool,
) -> Iterator[str]:
    locations = of_artifact(there, recurrence)
    values = dict(parts(recurrence))
    clear = _clear(values)
    for key in values:
        text = _odd(recurrence, locations, key)
        if text and _group(key, values) | _group((0, 0, *key[2:]), values) <= clear:
            yield f"{_name(recurrence, key)}: {text}"
    lost = [key for key in values if key in clear and locations.get(key) is None]
    if not (is_copy and lost):
        return
    stored = of_source(plan, here, recurrence)
    # Unneeded directions are dropped, and what the source computes is in none of its tensors.
    kept = {key[:2] for key, location in locations.items() if location is not None}
    for key in lost:
        if key[:2] in kept and stored.get(key) is not None:
            yield f"{_name(recurrence, key)}: expected the source's values in a tensor, found them in none"


def _clear(values: Mapping[Key, Array]) -> set[Key]:
    """Return the weights identified by value: finite, several values, unique, asymmetric."""
    alike = Counter(text for value in values.values() for text in {value.tobytes(), value.T.tobytes()})
    return {
        key
        for key, value in values.items()
        if is_float(value.dtype)
        and np.isfinite(value.astype(np.float64)).all()
        and np.unique(value.astype(np.float64)).size >= min(_KINDS, max(2, value.size))
        and alike[value.tobytes()] == 1
        and not (value.ndim > 1 and value.shape[0] == value.shape[1] and np.array_equal(value, value.T))
    }


def _group(key: Key, values: Mapping[Key, Array]) -> set[Key]:
    """Return the keys of all gates for the field of a pseudo-layer."""
    layer, direction, _, field = key
    return {other for other in values if (*other[:2], other[3]) == (layer, direction, field)}


def _odd(recurrence: Recurrence, locations: Locations, key: Key) -> str:
    """Return the difference in place between a matrix and the first layer's, or "".

    Matrices of one field are read in one form; a graph may rearrange biases, or another field, with ops.
    """
    layer, direction, gate, field = key
    if field not in _COMPARED:
        return ""
    usual, order = (
        gate_order(recurrence, locations, group) for group in ((0, 0, field), (layer, direction, field))
    )
    if usual and order and usual != order:
        first, own = (", ".join(gate.value for gate in gates) for gates in (usual, order))
        return f"gates in the order {own}, where the first layer has {first}"
    pair = [locations.get((0, 0, gate, field)), locations.get(key)]
    axes = [location.region.axes for location in pair if location is not None]
    if sorted(axes) == ["as it is", "transposed"]:
        return f"{axes[1]}, where that of the first layer lies {axes[0]}"
    return ""


def _name(recurrence: Recurrence, key: Key) -> str:
    layer, direction, gate, field = key
    return f"{recurrence.node}: layer {layer} {WAYS[direction]}, {gate}, {field}"
