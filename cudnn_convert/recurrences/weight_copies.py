"""Chooses a copy of a recurrence's weights, and checks the agreement of all copies.

A checkpoint may have the raw blob and canonical keys of one recurrence. A canonical set is matched to a blob
by scope, else by being the only one that fits its sizes; both copies must have the same weights. A set in the
scope of a layer is that layer's, so it is no copy of another variable there, such as a moving average.

`auto_select` skips the input matrices of layer 0 where the input is as wide as the units (tensorflow v1.15.0
core/kernels/cudnn_rnn_ops.cc ToRNNInputMode); it was the default until TensorFlow 1.2. A blob with those
matrices and one without never have the same length.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import AmbiguousSourceError, Reason, Remedy, UnsupportedModelError
from cudnn_convert.model import (
    WAYS,
    Array,
    BlobEvidence,
    CanonicalEvidence,
    CanonicalParameters,
    Cell,
    Convention,
    Mode,
    Model,
    Sizes,
)
from cudnn_convert.weights import buffers, layouts, lazy, parameter_blob
from cudnn_convert.weights.lazy import Cells


@dataclass(frozen=True, slots=True)
class Facts:
    """The attributes and static shapes of a cuDNN node; None for unknown sizes."""

    node: str
    mode: Mode
    directions: int
    layers: int | None
    units: int | None
    dtype: np.dtype[Any]
    input_size: int | None = None
    input_mode: str = "linear_input"
    projection: int = 0

    @property
    def sizes(self) -> Sizes | None:
        """The sizes, an unknown input size as 0; None if layers or units are unknown."""
        if self.layers is None or self.units is None:
            return None
        inputs = self.input_size or 0
        return Sizes(self.mode, self.layers, self.directions, self.units, inputs, projection=self.projection)


def skips(input_mode: str, sizes: Sizes) -> bool:
    """Return True if layer 0 lacks input matrices by the attribute `input_mode`."""
    if input_mode == "auto_select":
        return sizes.input_size == sizes.units
    return input_mode == "skip_input"


def solve_sizes(elements: int, sizes: Sizes, input_mode: str) -> Sizes | None:
    """Return the sizes for a blob of `elements` values.

    None where none fit. `sizes.input_size` is 0 where the graph does not state it; `sizes.skip_input` is
    ignored.
    """
    for skip in (False, True):
        inputs = parameter_blob.solve_input_size(elements, replace(sizes, skip_input=skip))
        if inputs is not None and sizes.input_size in (0, inputs):
            solved = replace(sizes, input_size=inputs, skip_input=skip)
            return solved if skips(input_mode, solved) == skip else None
    return None


def describe_lengths(sizes: Sizes) -> str:
    """Describe the blob lengths for `sizes`, for linear and skipped input of layer 0."""
    without, with_one = (
        parameter_blob.length(replace(sizes, input_size=size, skip_input=False)) for size in (0, 1)
    )
    linear = f"{without} + {with_one - without} * input size"
    if sizes.input_size:
        linear = f"{parameter_blob.length(replace(sizes, skip_input=False))}"
    return f"{linear} values for linear_input, {without} for skip_input"


#: What contrib layers call their blob (tensorflow v1.15.0 contrib/cudnn_rnn/python/layers/cudnn_rnn.py).
BLOB: Final = "opaque_kernel"


def scopes(variable: str) -> tuple[str, str]:
    """Return the scopes of a variable's canonical keys: the variable's, and the enclosing scope."""
    own = variable.rpartition("/")[0]
    inner, outer = (f"{scope}/" if scope else "" for scope in (own, own.rpartition("/")[0]))
    return inner, outer


def match_by_scope(
    model: Model, variable: str, mode: Mode, directions: int, *, projection: int
) -> CanonicalParameters | None:
    """Return the canonical set in the variable's scope, else in the enclosing scope, or None.

    The scope is that of the key from which the variable is restored.
    """
    for scope in scopes(model.keys.get(variable, variable)):
        for parameters in _sets(model, variable, mode, directions, projection):
            if parameters.scope == scope:
                return parameters
    return None


def match_by_sizes(
    model: Model, facts: Facts, variable: str, *, has_blob: bool
) -> CanonicalParameters | None:
    """Return the variable's only candidate among canonical sets of the node's sizes, or None.

    Savers of TensorFlow before 1.4 use a scope that the user chose. With `has_blob`, the error advises to use
    the blob. Raises AmbiguousSourceError where several fit.
    """
    sets = _sets(model, variable, facts.mode, facts.directions, facts.projection)
    known = [
        parameters
        for parameters in sets
        if not parameters.may_be_dense
        and facts.layers in (None, parameters.layers)
        and facts.units in (None, parameters.units)
    ]
    if len(known) > 1:
        scopes = ", ".join(parameters.scope.rstrip("/") or "the root scope" for parameters in known)
        reason = f"{facts.node}: expected one set of canonical keys of its sizes, found {scopes}"
        cure = Remedy({"weights": "raw"}, "use the blob with") if has_blob else None
        other = "give a checkpoint that holds the blob"
        raise AmbiguousSourceError(model.path, [Reason(f"{reason}; {cure or other}", cure)])
    return known[0] if known else None


def _sets(
    model: Model, variable: str, mode: Mode, directions: int, projection: int
) -> list[CanonicalParameters]:
    """Return the candidate canonical sets for a variable, by mode, directions and projection."""
    key = model.keys.get(variable, variable)
    if key.rpartition("/")[2] != variable.rpartition("/")[2]:
        return []  # such as a moving average, which has no canonical keys
    sets = [
        parameters
        for parameters in model.canonical
        if mode in parameters.modes
        and (parameters.directions, parameters.projection) == (directions, projection)
    ]
    if not sets or model.is_graphless:
        return sets
    names = (node.name for node in model.graph.node if node.name.rpartition("/")[2] == BLOB)
    blobs = [model.keys.get(name, name) for name in names]
    return [parameters for parameters in sets if key in (_owners(parameters, blobs) or [key])]


def _owners(parameters: CanonicalParameters, blobs: Sequence[str]) -> list[str]:
    """Return the layers' blobs belonging to a canonical set.

    Those are the blobs of its scope, else the blobs of a scope directly inside it.
    """
    inside, around = ([blob for blob in blobs if scopes(blob)[k] == parameters.scope] for k in (0, 1))
    return inside or around


def describe_missing_half(model: Model, facts: Facts) -> str:
    """Return the message's ending for a half-stored bidirectional layer, else ""."""
    if facts.directions == 2 and any(parameters.may_be_half for parameters in model.canonical):
        return "; of a bidirectional layer TensorFlow before 1.4 saved half under its canonical keys"
    return ""


#: Two copies of one model written by one `save` differ by the rounding of one bias sum, no more.
_AGREE: Final = 1e-6


def compare_copies(canonical: Cells, raw: Cells, convention: Convention) -> str | None:
    """Describe the first difference of the two copies, or return None.

    Biases are compared as sums. Copies of other sizes differ without an end: blob and keys need not be of one
    model.
    """
    if len(canonical) != len(raw):
        return (
            f"expected canonical keys and raw blob of one depth, found {len(canonical)} and {len(raw)} layers"
        )
    for where, worst in _differences(_read(canonical, convention, canonical=True), _read(raw, convention)):
        return f"{where}: expected canonical keys and raw blob to agree, found a difference of {worst:.3g}"
    return None


def _read(cells: Cells, convention: Convention, *, canonical: bool = False) -> Cells:
    return lazy.map_cells(cells, partial(layouts.conventional, convention=convention, canonical=canonical))


def _differences(canonical: Cells, raw: Cells) -> Iterator[tuple[str, float]]:
    for layer, pairs in enumerate(zip(canonical, raw, strict=True)):
        for direction, cell, other in zip(WAYS, *pairs, strict=False):
            for part, ours, theirs in (
                ("kernel", cell.kernel, other.kernel),
                ("recurrent_kernel", cell.recurrent_kernel, other.recurrent_kernel),
                ("bias", cell.bias + cell.recurrent_bias, other.bias + other.recurrent_bias),
            ):
                worst, most = _largest(ours, theirs)
                if not worst <= _AGREE * max(1.0, most):
                    yield f"layers[{layer}].{direction}.{part}", worst


def _largest(ours: Array, theirs: Array) -> tuple[float, float]:
    """Return the largest difference and the largest value of `ours`, both absolute.

    Compared gate by gate, since memory orders may differ. Arrays of other shapes are infinitely far apart.
    """
    if ours.shape != theirs.shape:
        return math.inf, 0.0
    pairs = [(buffers.contiguous(own), other) for own, other in zip(ours, theirs, strict=True)]
    gaps = [np.max(np.abs(own - other), initial=0.0) for own, other in pairs]
    return float(np.max(gaps)), float(np.max([np.max(np.abs(own), initial=0.0) for own, _ in pairs]))


@dataclass(frozen=True, slots=True)
class DecodedWeights:
    """Cells `[layer][direction]`, with the sizes and the source arrays.

    Large weights are decoded on access, others at once.
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
) -> DecodedWeights:
    """Read the weights of the blob `variable`, from the blob or from canonical keys.

    `read` gives the blob, or None. `copy` is `auto` (canonical where they exist, checked against the raw
    blob), `canonical` or `raw`. Raises UnsupportedModelError, AmbiguousSourceError.
    """
    has_canonical = copy != "raw"
    canonical = (
        match_by_scope(model, variable, facts.mode, facts.directions, projection=facts.projection)
        if has_canonical
        else None
    )
    blob = read() if copy != "canonical" else None
    if canonical is None and blob is None and has_canonical:
        canonical = match_by_sizes(
            model, facts, variable, has_blob=copy == "canonical" and read() is not None
        )
    if canonical is not None:
        weights = _from_canonical(canonical, facts)
        if blob is not None:
            _refuse_disagreement(model, facts, weights, blob, convention)
        return _conventional(weights, facts, convention)
    if blob is not None:
        return of_blob(model, facts, variable, blob, convention=convention)
    scope = variable.rpartition("/")[0] or "the root scope"
    wanted = {"canonical": f"canonical keys under {scope}", "raw": f"the blob {variable}"}
    expected = wanted.get(copy, f"{wanted['raw']} or {wanted['canonical']}")
    half = describe_missing_half(model, facts)
    lost = f"neither{half}" if half else "neither; does the checkpoint belong to this graph?"
    if copy in wanted and not half:
        lost = "none; take either copy, without --weights"
    raise _refusal(model, facts, f"weights: expected {expected}, found {lost}")


def of_blob(
    model: Model, facts: Facts, variable: str, blob: Array, *, convention: Convention
) -> DecodedWeights:
    """Decode the weights of a blob alone. Raises UnsupportedModelError.

    No other copy is compared.
    """
    return _conventional(_from_blob(model, facts, variable, blob), facts, convention)


def _conventional(weights: DecodedWeights, facts: Facts, convention: Convention) -> DecodedWeights:
    canonical = isinstance(weights.evidence, CanonicalEvidence)
    cells = _read(weights.cells, convention, canonical=canonical)
    return replace(
        weights, cells=cells if lazy.exceeds_memory_budget(weights.sizes, facts.dtype) else tuple(cells)
    )


def _refusal(model: Model, facts: Facts, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(model.path, [f"{facts.node}: {reason}"])


def _from_canonical(canonical: CanonicalParameters, facts: Facts) -> DecodedWeights:
    sizes = canonical.sizes(facts.mode)
    cells = canonical.decode(facts.mode)  # which sees that all of them are there
    tensors = canonical.tensors
    read = lazy.Read(tensors, lambda key: tensors[key].read().astype(facts.dtype, copy=False))
    stored = read if lazy.exceeds_memory_budget(sizes, facts.dtype) else {**read}
    return DecodedWeights(sizes, _cast(cells, facts), CanonicalEvidence(stored, canonical.dialect))


def _from_blob(model: Model, facts: Facts, variable: str, blob: Array) -> DecodedWeights:
    """Decode a blob, with sizes from static shapes, input mode and length.

    Raises UnsupportedModelError.
    """
    known = facts.sizes
    if known is None:
        state = "input_c" if facts.projection else "input_h"
        expected = "expected a static shape [layers*directions, batch, units]"
        raise _refusal(
            model, facts, f"{state}: {expected}, found none; give the shape of its input with --inputs"
        )
    sizes = solve_sizes(blob.size, known, facts.input_mode)
    if sizes is None:
        actual = f"{blob.size} where the op says {facts.input_mode}; are graph and weights of one model?"
        raise _refusal(model, facts, f"{variable}: expected {describe_lengths(known)}, found {actual}")
    cells = parameter_blob.split(blob, sizes, where=variable)
    return DecodedWeights(sizes, _cast(cells, facts), BlobEvidence(blob.astype(facts.dtype, copy=False)))


def _cast(cells: Cells, facts: Facts) -> Cells:
    def cast(cell: Cell) -> Cell:
        return cell.change_arrays(lambda array: array.astype(facts.dtype, copy=False))

    return lazy.map_cells(cells, cast)


def _refuse_disagreement(
    model: Model, facts: Facts, weights: DecodedWeights, blob: Array, convention: Convention
) -> None:
    raw = parameter_blob.split(blob, weights.sizes, where=f"{facts.node}: params")
    difference = compare_copies(weights.cells, raw, convention)
    if difference is None:
        return
    remedies = [Remedy({"weights": "canonical"}, "choose with"), Remedy({"weights": "raw"})]
    for other in (
        Remedy({"forget_bias": convention.forget_bias + 1}, "they agree with"),
        Remedy({"gate_order": "lingvo"}, "they agree with"),
    ):
        if compare_copies(weights.cells, raw, replace(convention, **other.options)) is None:
            remedies = [other]
    cure = " or ".join(map(str, remedies))
    raise UnsupportedModelError(model.path, [Reason(f"{facts.node}: {difference}; {cure}", *remedies)])
