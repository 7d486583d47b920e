"""Which copy of a recurrence's weights to take, and that the copies agree."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from cudnn_convert import layouts, opaque
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import agreement, pairing, parameters, sizing
from cudnn_convert.graph.facts import Facts
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.trace import Origin
from cudnn_convert.model import (
    Array,
    BlobEvidence,
    CanonicalEvidence,
    CanonicalParameters,
    Cell,
    Convention,
    Model,
    Sizes,
)


@dataclass(frozen=True, slots=True)
class Weights:
    """Decoded cells `[layer][direction]`, their sizes, and the arrays they were decoded from."""

    sizes: Sizes
    cells: tuple[tuple[Cell, ...], ...]
    evidence: BlobEvidence | CanonicalEvidence


def take(
    model: Model, index: Index, facts: Facts, origin: Origin, *, copy: str, convention: Convention
) -> Weights:
    """The weights that come from `origin`. `copy` is `auto` (canonical where it exists, checked against the
    raw blob), `canonical` or `raw`; of computed parameters there is one copy. Raises UnsupportedModelError,
    AmbiguousSourceError.
    """
    variable = origin.op
    if origin.computed:
        computed = parameters.value(model, index, origin)
        return _conventional(_from_blob(model, facts, variable, computed), convention)
    # TensorFlow 1 has no canonical keys for a projection: those found belong to another recurrence.
    has_canonical = copy != "raw" and not facts.projection
    canonical = pairing.by_scope(model, variable, facts.mode, facts.directions) if has_canonical else None
    blob = _blob(model, index, variable) if copy != "canonical" else None
    if canonical is None and blob is None and has_canonical:
        canonical = pairing.by_sizes(model, facts)
    if canonical is not None:
        found = _from_canonical(canonical, facts)
        if blob is not None:
            _refuse_disagreement(model, facts, found, blob, convention)
        return _conventional(found, convention)
    if blob is not None:
        return _conventional(_from_blob(model, facts, variable, blob), convention)
    scope = variable.rpartition("/")[0] or "the root scope"
    wanted = {"canonical": f"canonical keys under {scope}", "raw": f"the blob {variable}"}
    expected = wanted.get(copy, f"{wanted['raw']} or {wanted['canonical']}")
    half = pairing.half(model, facts)
    raise _refusal(model, facts, f"weights: expected {expected}, found neither{half}")


def _conventional(found: Weights, convention: Convention) -> Weights:
    canonical = isinstance(found.evidence, CanonicalEvidence)
    cells = tuple(
        tuple(layouts.conventional(cell, convention, canonical=canonical) for cell in layer)
        for layer in found.cells
    )
    return replace(found, cells=cells)


def _refusal(model: Model, facts: Facts, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(model.path, [f"{facts.node}: {reason}"])


def _blob(model: Model, index: Index, op: str) -> Array | None:
    if op in model.variables:
        return model.variables[op].read()
    if index.nodes[op].op == "Const":
        return np.asarray(tf.make_ndarray(index.nodes[op].attr["value"].tensor))
    return None


def _from_canonical(canonical: CanonicalParameters, facts: Facts) -> Weights:
    sizes = Sizes(facts.mode, canonical.layers, facts.directions, canonical.units, canonical.input_size)
    stored = {key: value.astype(facts.dtype) for key, value in canonical.tensors().items()}
    return Weights(
        sizes, _cast(canonical.decode(facts.mode), facts), CanonicalEvidence(stored, canonical.dialect)
    )


def _from_blob(model: Model, facts: Facts, variable: str, blob: Array) -> Weights:
    """Sizes from the static shapes of the inputs, the op's input mode and the blob's length."""
    if facts.layers is None or facts.units is None:
        state = "input_c" if facts.projection else "input_h"
        raise _refusal(
            model, facts, f"{state}: expected a static shape [layers*directions, batch, units], found none"
        )
    known = Sizes(facts.mode, facts.layers, facts.directions, facts.units, facts.input_size or 0)
    known = replace(known, projection=facts.projection)
    sizes = sizing.solve(blob.size, known, facts.input_mode)
    if sizes is None:
        found = f"{blob.size} where the op says {facts.input_mode}; are graph and weights of one model?"
        raise _refusal(model, facts, f"{variable}: expected {sizing.lengths(known)}, found {found}")
    cells = opaque.split(blob, sizes, where=variable)
    return Weights(sizes, _cast(cells, facts), BlobEvidence(blob.astype(facts.dtype)))


def _cast(cells: tuple[tuple[Cell, ...], ...], facts: Facts) -> tuple[tuple[Cell, ...], ...]:
    def cast(cell: Cell) -> Cell:
        return Cell(
            cell.mode,
            cell.kernel.astype(facts.dtype),
            cell.recurrent_kernel.astype(facts.dtype),
            cell.bias.astype(facts.dtype),
            cell.recurrent_bias.astype(facts.dtype),
            None if cell.projection is None else cell.projection.astype(facts.dtype),
        )

    return tuple(tuple(cast(cell) for cell in layer) for layer in cells)


def _refuse_disagreement(
    model: Model, facts: Facts, found: Weights, blob: Array, convention: Convention
) -> None:
    raw = opaque.split(blob, found.sizes, where=f"{facts.node}: params")
    if reason := agreement.difference(found.cells, raw, convention):
        raise _refusal(model, facts, reason)
