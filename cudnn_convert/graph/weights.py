"""Which copy of a recurrence's weights to take, and that the copies agree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import opaque
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.index import Index
from cudnn_convert.model import (
    Array,
    BlobEvidence,
    CanonicalEvidence,
    CanonicalParameters,
    Cell,
    Mode,
    Model,
    Sizes,
)

#: Two copies of one model written by one `save` differ by the rounding of one bias sum, no more.
_AGREE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Facts:
    """What a cuDNN node says of itself; `layers` and `units` are None where its state has no static shape."""

    node: str
    mode: Mode
    directions: int
    layers: int | None
    units: int | None
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Weights:
    """Decoded cells `[layer][direction]`, their sizes, and the arrays they were decoded from."""

    sizes: Sizes
    cells: tuple[tuple[Cell, ...], ...]
    evidence: BlobEvidence | CanonicalEvidence


def take(model: Model, index: Index, facts: Facts, variable: str, *, copy: str) -> Weights:
    """The weights that `variable` holds. `copy` is `auto` (canonical where it exists, checked against the
    raw blob), `canonical` or `raw`. Raises UnsupportedModelError.
    """
    canonical = _canonical(model, variable, facts) if copy != "raw" else None
    blob = _blob(model, index, variable) if copy != "canonical" else None
    if canonical is not None:
        found = _from_canonical(canonical, facts)
        if blob is not None:
            _refuse_disagreement(model, facts, found, blob)
        return found
    if blob is not None:
        return _from_blob(model, facts, variable, blob)
    scope = variable.rpartition("/")[0] or "the root scope"
    wanted = {"canonical": f"canonical keys under {scope}", "raw": f"the blob {variable}"}
    expected = wanted.get(copy, f"{wanted['raw']} or {wanted['canonical']}")
    raise _refusal(model, facts, f"weights: expected {expected}, found neither")


def _refusal(model: Model, facts: Facts, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(model.path, [f"{facts.node}: {reason}"])


def _canonical(model: Model, variable: str, facts: Facts) -> CanonicalParameters | None:
    """The canonical set of a blob: of the variable's own scope, else of the one around it."""
    own = variable.rpartition("/")[0]
    for scope in (own, own.rpartition("/")[0]):
        prefix = f"{scope}/" if scope else ""
        for found in model.canonical:
            if found.scope == prefix and facts.mode in found.modes and found.directions == facts.directions:
                return found
    return None


def _blob(model: Model, index: Index, op: str) -> Array | None:
    if op in model.variables:
        return model.variables[op].read()
    if index.nodes[op].op == "Const":
        return np.asarray(tf.make_ndarray(index.nodes[op].attr["value"].tensor))
    return None


def _from_canonical(canonical: CanonicalParameters, facts: Facts) -> Weights:
    sizes = Sizes(facts.mode, canonical.layers, facts.directions, canonical.units, canonical.input_size)
    stored = {key: value.astype(facts.dtype) for key, value in canonical.tensors().items()}
    return Weights(sizes, _cast(canonical.decode(facts.mode), facts), CanonicalEvidence(stored))


def _from_blob(model: Model, facts: Facts, variable: str, blob: Array) -> Weights:
    """Sizes from the static shape of the initial state and the blob's length."""
    if facts.layers is None or facts.units is None:
        raise _refusal(
            model, facts, "input_h: expected a static shape [layers*directions, batch, units], found none"
        )
    sizes = Sizes(facts.mode, facts.layers, facts.directions, facts.units, 0)
    inputs = opaque.solve_input_size(blob.size, sizes)
    if inputs is None:
        expected = f"a length that {sizes.layers} layers of {sizes.units} units can have"
        raise _refusal(model, facts, f"{variable}: expected {expected}, found {blob.size}")
    sizes = replace(sizes, input_size=inputs)
    cells = opaque.split(blob, sizes, where=variable)
    return Weights(sizes, _cast(cells, facts), BlobEvidence(blob.astype(facts.dtype)))


def _cast(cells: tuple[tuple[Cell, ...], ...], facts: Facts) -> tuple[tuple[Cell, ...], ...]:
    def cast(cell: Cell) -> Cell:
        arrays = (cell.kernel, cell.recurrent_kernel, cell.bias, cell.recurrent_bias)
        return Cell(cell.mode, *(array.astype(facts.dtype) for array in arrays))

    return tuple(tuple(cast(cell) for cell in layer) for layer in cells)


def _refuse_disagreement(model: Model, facts: Facts, found: Weights, blob: Array) -> None:
    """Canonical keys and raw blob of one checkpoint must hold the same weights; biases as far as summed."""
    raw = opaque.split(blob, found.sizes, where=f"{facts.node}: params")
    for layer, pairs in enumerate(zip(found.cells, raw, strict=True)):
        for way, cell, other in zip(("forward", "backward"), *pairs, strict=False):
            for part, ours, theirs in (
                ("kernel", cell.kernel, other.kernel),
                ("recurrent_kernel", cell.recurrent_kernel, other.recurrent_kernel),
                ("bias", cell.bias + cell.recurrent_bias, other.bias + other.recurrent_bias),
            ):
                worst = float(np.max(np.abs(ours - theirs), initial=0.0))
                if not worst <= _AGREE * max(1.0, float(np.max(np.abs(ours), initial=0.0))):
                    where = f"layers[{layer}].{way}.{part}"
                    what = "expected canonical keys and raw blob to agree"
                    cure = "choose with --weights canonical or --weights raw"
                    raise _refusal(
                        model, facts, f"{where}: {what}, found a difference of {worst:.3g}; {cure}"
                    )
