"""Which copy of a recurrence's weights to take, and that the copies agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from cudnn_convert import layers, layouts, opaque
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import agreement, pairing, sizing
from cudnn_convert.graph.facts import Facts
from cudnn_convert.layers import Cells
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
    """Cells `[layer][direction]`, their sizes, and the arrays they are decoded from: at once, or where they
    are large when they are asked for.
    """

    sizes: Sizes
    cells: Cells
    evidence: BlobEvidence | CanonicalEvidence


def take(
    model: Model,
    facts: Facts,
    variable: str,
    read: Callable[[], Array | None],
    *,
    copy: str,
    convention: Convention,
) -> Weights:
    """The weights of the blob `variable`, which `read` gives where there is one, or of its canonical keys.

    `copy` is `auto` (canonical where they exist, checked against the raw blob), `canonical` or `raw`. Raises
    UnsupportedModelError, AmbiguousSourceError.
    """
    # TensorFlow 1 has no canonical keys for a projection: those found belong to another recurrence.
    has_canonical = copy != "raw" and not facts.projection
    canonical = pairing.by_scope(model, variable, facts.mode, facts.directions) if has_canonical else None
    blob = read() if copy != "canonical" else None
    if canonical is None and blob is None and has_canonical:
        canonical = pairing.by_sizes(model, facts, has_blob=copy == "canonical" and read() is not None)
    if canonical is not None:
        found = _from_canonical(canonical, facts)
        if blob is not None:
            _refuse_disagreement(model, facts, found, blob, convention)
        return _conventional(found, facts, convention)
    if blob is not None:
        return of_blob(model, facts, variable, blob, convention=convention)
    scope = variable.rpartition("/")[0] or "the root scope"
    wanted = {"canonical": f"canonical keys under {scope}", "raw": f"the blob {variable}"}
    expected = wanted.get(copy, f"{wanted['raw']} or {wanted['canonical']}")
    half = pairing.half(model, facts)
    lost = f"neither{half}" if half else "neither; is the checkpoint this graph's?"
    if copy in wanted and not half:
        lost = "none; take either copy, without --weights"
    raise _refusal(model, facts, f"weights: expected {expected}, found {lost}")


def of_blob(model: Model, facts: Facts, variable: str, blob: Array, *, convention: Convention) -> Weights:
    """The weights in a blob of which there is one copy. Raises UnsupportedModelError."""
    return _conventional(_from_blob(model, facts, variable, blob), facts, convention)


def _conventional(found: Weights, facts: Facts, convention: Convention) -> Weights:
    canonical = isinstance(found.evidence, CanonicalEvidence)
    change = partial(layouts.conventional, convention=convention, canonical=canonical)
    cells = layers.changed(found.cells, change)
    return replace(found, cells=cells if layers.are_large(found.sizes, facts.dtype) else tuple(cells))


def _refusal(model: Model, facts: Facts, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(model.path, [f"{facts.node}: {reason}"])


def _from_canonical(canonical: CanonicalParameters, facts: Facts) -> Weights:
    sizes = Sizes(facts.mode, canonical.layers, facts.directions, canonical.units, canonical.input_size)
    cells = canonical.decode(facts.mode)  # which sees that all of them are there
    found = canonical.tensors()
    read = layers.Read(found, lambda key: found[key].astype(facts.dtype, copy=False))
    stored = read if layers.are_large(sizes, facts.dtype) else {**read}
    return Weights(sizes, _cast(cells, facts), CanonicalEvidence(stored, canonical.dialect))


def _from_blob(model: Model, facts: Facts, variable: str, blob: Array) -> Weights:
    """Sizes from the static shapes of the inputs, the op's input mode and the blob's length."""
    if facts.layers is None or facts.units is None:
        state = "input_c" if facts.projection else "input_h"
        expected = "expected a static shape [layers*directions, batch, units]"
        raise _refusal(model, facts, f"{state}: {expected}, found none; refine its input with --inputs")
    known = Sizes(facts.mode, facts.layers, facts.directions, facts.units, facts.input_size or 0)
    known = replace(known, projection=facts.projection)
    sizes = sizing.solve(blob.size, known, facts.input_mode)
    if sizes is None:
        found = f"{blob.size} where the op says {facts.input_mode}; are graph and weights of one model?"
        raise _refusal(model, facts, f"{variable}: expected {sizing.lengths(known)}, found {found}")
    cells = opaque.split(blob, sizes, where=variable)
    return Weights(sizes, _cast(cells, facts), BlobEvidence(blob.astype(facts.dtype, copy=False)))


def _cast(cells: Cells, facts: Facts) -> Cells:
    def part(array: Array) -> Array:
        return array.astype(facts.dtype, copy=False)

    def cast(cell: Cell) -> Cell:
        return Cell(
            cell.mode,
            part(cell.kernel),
            part(cell.recurrent_kernel),
            part(cell.bias),
            part(cell.recurrent_bias),
            None if cell.projection is None else part(cell.projection),
        )

    return layers.changed(cells, cast)


def _refuse_disagreement(
    model: Model, facts: Facts, found: Weights, blob: Array, convention: Convention
) -> None:
    raw = opaque.split(blob, found.sizes, where=f"{facts.node}: params")
    if reason := agreement.difference(found.cells, raw, convention):
        raise _refusal(model, facts, reason)
