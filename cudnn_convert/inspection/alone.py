"""The recurrences of weights without a graph: as planned, and where that needs flags, as far as keys tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from cudnn_convert.graph import graphless
from cudnn_convert.graph.interface import Single
from cudnn_convert.inspection import copies
from cudnn_convert.inspection.value import End, Found, Held, Offered
from cudnn_convert.model import CanonicalParameters, Convention, Mode, Model
from cudnn_convert.plan import Plan


def recurrences(
    model: Model, plans: Sequence[Plan], convention: Convention, *, checked: bool
) -> Iterator[Found]:
    """Those of the only plan; of several, what all of them say; without a plan, what names and shapes do.

    `checked`: the plan compared the copies.
    """
    keys, blobs = copies.keys(model), graphless.blob_by_scope(model)
    by_scope = {blob: scope for scope, blob in blobs.items()}
    singles: dict[str, list[Single]] = {}
    for plan in plans:
        for one in plan.singles:
            singles.setdefault(one.recurrence.shared, []).append(one)
    for variable, found in singles.items():
        scope = by_scope.get(variable, variable.removesuffix(graphless.BLOB))
        made = _planned(model, variable, found, keys.get(scope, ()))
        told = made.copies if checked else _compared(model, made, scope, found[0], convention)
        yield replace(made, copies=told, live=True if len(found) == len(plans) else None)
    if not plans:
        for scope in dict.fromkeys(one.scope for one in model.canonical):
            sets = [one for one in model.canonical if one.scope == scope]
            yield _keyed(sets, _raw(model, blobs.get(scope, "")), keys[scope])
        for blob in graphless.blobs(model):
            if blob not in blobs.values():
                yield _blob(model, blob)


def signatures(plan: Plan) -> Iterator[Offered]:
    """What each recurrence takes and gives; a name in a shape is an axis that is open."""
    for one in plan.singles:
        ends = [
            {key: End(tensor, specs[key][0].name, specs[key][1]) for key, tensor in named.items()}
            for named, specs in (
                (one.signature.inputs, one.inputs),
                (one.signature.outputs, one.outputs),
            )
        ]
        yield Offered(one.name, True, *ends)


def _planned(model: Model, variable: str, found: Sequence[Single], keys: tuple[Held, ...]) -> Found:
    """One recurrence of all plans that have it; where they do not agree on a size, None."""
    raw, first = _raw(model, variable), found[0].recurrence
    sizes = [one.recurrence.sizes for one in found]
    made = _found(found[0].name, _agreed(sizes, "mode"), first.dtype.name, batch_major=found[0].batch_major)
    return replace(
        made,
        layers=_agreed(sizes, "layers"),
        directions=_agreed(sizes, "directions"),
        units=_agreed(sizes, "units"),
        input_size=_agreed(sizes, "input_size"),
        lengths=first.lengths,
        raw=raw,
        canonical=keys,
        copies=copies.told(raw, keys, ""),
    )


def _keyed(sets: Sequence[CanonicalParameters], raw: tuple[Held, ...], keys: tuple[Held, ...]) -> Found:
    """A scope's canonical keys; `sets` are all that keys and shapes fit."""
    one = sets[0]
    modes = dict.fromkeys(mode for found in sets for mode in found.modes)
    mode = next(iter(modes)) if len(modes) == 1 else graphless.mode_by_name(one.scope)
    is_half = any(found.may_be_half for found in sets)
    return replace(
        _found(one.scope.rstrip("/"), mode, one.dtype.name, batch_major=one.batch_major),
        layers=_agreed(sets, "layers"),
        directions=None if is_half else _agreed(sets, "directions"),
        units=_agreed(sets, "units"),
        input_size=_agreed(sets, "input_size"),
        raw=raw,
        canonical=keys,
        copies=copies.told(raw, keys, None),
    )


def _blob(model: Model, key: str) -> Found:
    """A blob on its own: its length alone is known, and perhaps its mode, by its scope."""
    mode = graphless.mode_by_name(key.removesuffix(graphless.BLOB))
    made = _found(graphless.name(key), mode, model.variables[key].dtype.name, batch_major=False)
    return replace(made, raw=_raw(model, key), copies=copies.RAW)


def _agreed(found: Sequence[Any], name: str) -> Any:
    """What all of them say, None where they do not agree."""
    said = {getattr(one, name) for one in found}
    return said.pop() if len(said) == 1 else None


def _found(name: str, mode: Mode | None, dtype: str, *, batch_major: bool) -> Found:
    """A recurrence of which no size is known yet, nor which tensors hold it."""
    return Found(
        name=name,
        op="",
        function=None,
        needs_gpu=True,
        live=None,
        mode=None if mode is None else mode.value,
        layers=None,
        directions=None,
        units=None,
        input_size=None,
        projection=0,
        dtype=dtype,
        axes=("batch", "time", "input") if batch_major else ("time", "batch", "input"),
        lengths=False,
        dropout=0.0,
        raw=(),
        canonical=(),
        copies="",
    )


def _compared(model: Model, one: Found, scope: str, single: Single, convention: Convention) -> str:
    """What the copies are, where no plan compared them."""
    sizes = single.recurrence.sizes
    fitting = [found for found in model.canonical if found.scope == scope and sizes.mode in found.modes]
    if not (one.raw and one.canonical and fitting):
        return one.copies
    blob = model.variables[one.raw[0].name]
    difference = copies.compared(fitting[0], blob, sizes, single.recurrence.dtype, convention)
    return copies.told(one.raw, one.canonical, difference)


def _raw(model: Model, key: str) -> tuple[Held, ...]:
    return copies.held(model.variables, [key] if key in model.variables else [])
