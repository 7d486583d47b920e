"""Describes recurrences of graphless weights, and the tensors of the weights.

Recurrences come from the plan, or where that needs flags from keys and shapes. `canonical_tensors` finds the
tensors of each canonical set, and `describe_difference` whether two copies agree. `GraphRecurrence` describes
a recurrence of a graph.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import CudnnConvertError
from cudnn_convert.graph import ops
from cudnn_convert.inspection import End, InspectedRecurrence, Offered, WeightTensor
from cudnn_convert.model import CanonicalParameters, Convention, Mode, Model, Sizes, Tensor
from cudnn_convert.plan import RecurrencesPlan
from cudnn_convert.recurrences import graphless, weight_copies
from cudnn_convert.weights import parameter_blob


@dataclass(frozen=True, slots=True)
class GraphRecurrence:
    """A recurrence of a graph, before the comparison of tensors.

    A size in `facts` is None where no static shape and no tensor gives it. `blob` is the variable or constant
    of its parameters, `matrices` those from which they are computed, `keys` its canonical set.
    """

    facts: weight_copies.Facts
    time_major: bool = True
    lengths: bool = False
    dropout: float = 0.0
    skip_input: bool = False
    blob: WeightTensor | None = None
    matrices: tuple[WeightTensor, ...] = ()
    keys: CanonicalParameters | None = None

    @property
    def sizes(self) -> Sizes | None:
        """The sizes if all are known, else None."""
        facts = self.facts
        if facts.layers is None or facts.units is None or facts.input_size is None:
            return None
        widths = (facts.units, facts.input_size, self.skip_input, facts.projection)
        return Sizes(facts.mode, facts.layers, facts.directions, *widths)

    def describe(self, node: Any) -> InspectedRecurrence:
        """Return the `InspectedRecurrence` of the node, with tensors left out."""
        facts = self.facts
        axes = ("time", "batch", "input") if self.time_major else ("batch", "time", "input")
        return InspectedRecurrence(
            name=node.name,
            op=node.op,
            needs_gpu=node.op in ops.CUDNN,
            mode=facts.mode.value,
            layers=facts.layers,
            directions=facts.directions,
            units=facts.units,
            input_size=facts.input_size,
            projection=facts.projection,
            dtype=facts.dtype.name,
            axes=("batch", "input") if node.op == "LSTMBlockCell" else axes,
            lengths=self.lengths,
            dropout=self.dropout,
            settings={"skip_input": True} if self.skip_input else {},
        )


RAW: Final = "raw"
CANONICAL: Final = "canonical"
AGREE: Final = "both, agree"
#: Blobs of more values are compared by the plan alone, where that is made.
_MOST: Final = 1 << 27


def canonical_tensors(model: Model) -> dict[str, tuple[WeightTensor, ...]]:
    """Return the tensors of each canonical set by scope, by metadata alone."""
    return {
        parameters.scope: describe_tensors(model.variables, model.list_stored_keys(parameters))
        for parameters in model.canonical
    }


def describe_tensors(tensors: Mapping[str, Tensor], names: Iterable[str]) -> tuple[WeightTensor, ...]:
    """Describe the tensors `names`."""
    return tuple(WeightTensor(name, tuple(tensors[name].shape), tensors[name].dtype.name) for name in names)


def describe_copies(raw: Sequence[WeightTensor], keys: Sequence[WeightTensor], compared: str | None) -> str:
    """Describe the existing copies of weights, and the agreement.

    `compared` is None where unknown, "" where they agree, else the difference.
    """
    if not (raw and keys):
        return RAW if raw else CANONICAL if keys else "none"
    if compared is None:
        return "both, not compared"
    return f"both, differ: {compared}" if compared else AGREE


def describe_difference(
    canonical_parameters: CanonicalParameters,
    raw: Tensor,
    sizes: Sizes,
    dtype: np.dtype[Any],
    convention: Convention,
) -> str | None:
    """Describe the difference of the copies.

    It is "" where they agree, None where they are too large.
    """
    if math.prod(raw.shape) > _MOST:
        return None
    try:
        blob = parameter_blob.split(raw.read().astype(dtype, copy=False), sizes, where="parameters")
        difference = weight_copies.compare_copies(canonical_parameters.decode(sizes.mode), blob, convention)
    except CudnnConvertError as error:
        return str(error)
    return difference or ""


def recurrences(
    model: Model, plans: Sequence[RecurrencesPlan], convention: Convention, *, checked: bool
) -> Iterator[InspectedRecurrence]:
    """Yield the recurrences of graphless weights.

    From a single plan; from what several plans agree on; without a plan from names and shapes. `checked`: the
    plan compared the copies.
    """
    keys, blobs = canonical_tensors(model), graphless.blob_by_scope(model)
    by_scope = {blob: scope for scope, blob in blobs.items()}
    singles: dict[str, list[graphless.Single]] = {}
    for plan in plans:
        for single in plan.singles:
            singles.setdefault(single.recurrence.shared, []).append(single)
    for variable, same in singles.items():
        scope = by_scope.get(variable, variable.removesuffix(weight_copies.BLOB))
        shown = _describe_planned(model, variable, same, keys.get(scope, ()))
        copies = shown.copies if checked else _compare(model, shown, scope, same[0], convention)
        yield replace(shown, copies=copies, live=True if len(same) == len(plans) else None)
    if not plans:
        for scope in dict.fromkeys(parameters.scope for parameters in model.canonical):
            sets = [parameters for parameters in model.canonical if parameters.scope == scope]
            yield _describe_keys(sets, _raw(model, blobs.get(scope, "")), keys.get(scope, ()))
        for blob in graphless.blob_keys(model):
            if blob not in blobs.values():
                yield _blob(model, blob)


def signatures(plan: RecurrencesPlan) -> Iterator[Offered]:
    """Yield the signature of each recurrence, with named sizes as open dimensions."""
    for single in plan.singles:
        names = single.signature
        ends = [
            {key: End(tensor, specs[key][0].name, specs[key][1]) for key, tensor in named.items()}
            for named, specs in ((names.inputs, single.inputs), (names.outputs, single.outputs))
        ]
        yield Offered(single.name, True, *ends)


def _describe_planned(
    model: Model, variable: str, singles: Sequence[graphless.Single], keys: tuple[WeightTensor, ...]
) -> InspectedRecurrence:
    """Describe a recurrence of several plans, with None for a disputed size."""
    raw, first = _raw(model, variable), singles[0].recurrence
    sizes = [single.recurrence.sizes for single in singles]
    recurrence = _describe_unknown(
        singles[0].name, _agree(sizes, "mode"), first.dtype.name, batch_major=singles[0].batch_major
    )
    return replace(
        recurrence,
        **_agree_on_sizes(sizes),
        lengths=first.lengths,
        raw=raw,
        canonical=keys,
        copies=describe_copies(raw, keys, ""),
    )


def _describe_keys(
    sets: Sequence[CanonicalParameters], raw: tuple[WeightTensor, ...], keys: tuple[WeightTensor, ...]
) -> InspectedRecurrence:
    """Describe the recurrence of a scope's canonical keys.

    `sets` are all that fit them.
    """
    parameters = sets[0]
    modes = dict.fromkeys(mode for fitting in sets for mode in fitting.modes)
    mode = next(iter(modes)) if len(modes) == 1 else graphless.mode_by_name(parameters.scope)
    sizes = _agree_on_sizes(sets)
    if any(fitting.may_be_half for fitting in sets):
        sizes["directions"] = None
    return replace(
        _describe_unknown(
            parameters.scope.rstrip("/"), mode, parameters.dtype.name, batch_major=parameters.batch_major
        ),
        **sizes,
        raw=raw,
        canonical=keys,
        copies=describe_copies(raw, keys, None),
    )


def _blob(model: Model, key: str) -> InspectedRecurrence:
    """Describe a blob lacking canonical keys, with unknown sizes.

    The scope's default name may give the mode.
    """
    mode = graphless.mode_by_name(key)
    shown = _describe_unknown(graphless.name(key), mode, model.variables[key].dtype.name, batch_major=False)
    return replace(shown, raw=_raw(model, key), copies=RAW)


_SIZES: Final = ("layers", "directions", "units", "input_size", "projection")


def _agree_on_sizes(items: Sequence[Sizes | CanonicalParameters]) -> dict[str, Any]:
    """Return the common sizes as fields of an `InspectedRecurrence`."""
    settings = {"skip_input": True} if _agree(items, "skip_input") else {}
    return {**{name: _agree(items, name) for name in _SIZES}, "settings": settings}


def _agree(items: Sequence[Any], name: str) -> Any:
    """Return the common value of an attribute, or None for different values."""
    values = {getattr(item, name) for item in items}
    return values.pop() if len(values) == 1 else None


def _describe_unknown(name: str, mode: Mode | None, dtype: str, *, batch_major: bool) -> InspectedRecurrence:
    """Return a recurrence with unknown sizes and tensors."""
    return InspectedRecurrence(
        name=name,
        op="",
        needs_gpu=True,
        mode=None if mode is None else mode.value,
        dtype=dtype,
        axes=("batch", "time", "input") if batch_major else ("time", "batch", "input"),
    )


def _compare(
    model: Model,
    inspection: InspectedRecurrence,
    scope: str,
    single: graphless.Single,
    convention: Convention,
) -> str:
    """Describe copies of weights left uncompared by all plans."""
    sizes = single.recurrence.sizes
    sets = [parameters for parameters in model.canonical if parameters.scope == scope]
    fitting = [parameters for parameters in sets if sizes.mode in parameters.modes]
    if not (inspection.raw and inspection.canonical and fitting):
        return inspection.copies
    blob = model.variables[inspection.raw[0].name]
    difference = describe_difference(fitting[0], blob, sizes, single.recurrence.dtype, convention)
    return describe_copies(inspection.raw, inspection.canonical, difference)


def _raw(model: Model, key: str) -> tuple[WeightTensor, ...]:
    return describe_tensors(model.variables, [key] if key in model.variables else [])
