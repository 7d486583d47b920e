"""What to convert: the outputs, the inputs, the constants, the graph between them and its recurrences.

Nothing is guessed silently: `Plan.notes` says what was chosen, `Plan.flags` repeats the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from cudnn_convert import notes, specs, states
from cudnn_convert.errors import AmbiguousSourceError, UnsupportedModelError, UsageError
from cudnn_convert.graph import (
    build,
    choose,
    cut,
    refuse,
    resolve,
    settle,
    simplify,
    tables,
    updates,
    variables,
)
from cudnn_convert.graph.cut import Cut
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.graph.settle import Carried
from cudnn_convert.model import SERVING, Array, Convention, Model, Part, Recurrence, Signature
from cudnn_convert.specs import Spec

#: tensorflow v1.15.0 python/training/moving_averages.py ExponentialMovingAverage, its default name.
AVERAGE: Final = "ExponentialMovingAverage"
_USUAL: Final = Convention()


@dataclass(frozen=True, slots=True)
class Plan:
    """A model cut down to its chosen signature.

    `source` names the signature's tensors as the file does, `signature` as `graph` does: they differ where
    a tensor in the middle of the graph became an input. `parts` divides `signature` where the artifact has
    several. `whole` is the cut graph with everything that inference does not need still in it, state in its
    variables: verification runs that one. `states` says what became of the state. `initializers` are the ops
    of both graphs that fill tables.
    """

    model: Model
    whole: Any
    graph: Any
    source: Signature
    signature: Signature
    parts: tuple[Part, ...]
    recurrences: tuple[Recurrence, ...]
    notes: tuple[str, ...]
    flags: tuple[str, ...]
    states: tuple[Carried, ...] = ()
    initializers: tuple[str, ...] = ()


def make(
    model: Model,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    constants: Sequence[str] = (),
    signature: str | None = None,
    weights: str = "auto",
    convention: Convention = _USUAL,
    keeps_variables: bool = True,
) -> Plan:
    """The plan for a model with a graph, and the flags of the same names (`constants`: `--set`).

    Where the format does not keep variables, state becomes inputs and outputs.
    """
    repeated = () if weights == "auto" else (f"--weights={weights}",)
    if weights == "ema":
        model, weights = _averaged(model), "raw"
    index = Index(model.graph)
    given, wanted_inputs, wanted_outputs = _wanted(model, inputs, outputs, signature)
    wanted_outputs = states.with_updates(index, wanted_outputs)
    names = [spec.tensor for spec in wanted_outputs]
    writes = {name: split(name)[0] for name in names if updates.updates(index, split(name)[0])}
    read = [name for name in names if name not in writes]
    cut.require(model.path, index, [*read, *(spec.tensor for spec in wanted_inputs)])
    bound = _constants(model, index, constants, names)
    _refuse_bound(wanted_inputs, bound)
    states.refuse_bound(model.graph, names, bound)
    asked = states.asked(index, model.graph, names, wanted_inputs)
    cuts = [Cut(spec.tensor, spec.shape) for spec in wanted_inputs if spec.tensor not in asked]
    streams = [] if inputs else cut.streams(index, names, stop=[*(found.tensor for found in cuts), *bound])
    cuts += [Cut(name) for name in streams]
    whole, moved = cut.cut(model.graph, inputs=cuts, constants=bound, outputs=names)
    whole, kept = cut.with_values(whole, [moved.get(name, name) for name in names])
    whole, kept = updates.with_values(whole, kept)
    writes = {new: writes[name] for new, name in zip(kept, names, strict=True) if name in writes}
    stateful = simplify.simplified(whole, kept)
    leaving = {spec.tensor: spec.shape for spec in wanted_inputs if spec.tensor in asked}
    settled = settle.settled(model, stateful, kept, keep=keeps_variables, shapes=leaving, asked=writes)
    model, graph = settled.model, settled.graph
    starts = [found.state.tensor for found in settled.leaving]
    found = _inputs(model, graph, moved, wanted_inputs, streams, complete=not inputs, free=starts)
    keys = specs.keyed(found)
    ends = states.next_outputs(settled, stateful, keys, settled.outputs)
    kept = [*settled.outputs, *(name for _, name in ends)]
    source = Signature(keys, specs.keyed([*wanted_outputs, *(spec for spec, _ in ends)]))
    union = Signature(
        {key: moved.get(name, name) for key, name in source.inputs.items()},
        dict(zip(source.outputs, kept, strict=True)),
    )
    chosen = not outputs and not given
    wanted = Signature(source.inputs, dict(list(source.outputs.items())[: len(names)]))
    refuse.unsupported(model.path, graph, outputs=kept, hint=notes.chosen(wanted) if chosen else None)
    recurrences = resolve.recurrences(model, graph, copy=weights, convention=convention)
    variables.require(model.path, graph, model.variables, decoded={found.shared for found in recurrences})
    shapes = {spec.tensor: spec.shape for spec in wanted_inputs if spec.shape is not None}
    flags = (*notes.flags(source, shapes, constants), *repeated)
    told = (*model.notes, *notes.notes(wanted, recurrences, streams, chosen_here=chosen))
    told += (*states.notes(settled, updates.left_out(index, graph), names),)
    parts = _parts(model, given, union, alone=bool(starts))
    fills = tables.fills(model, graph)
    whole, graph = (tables.with_fills(found, model, fills) for found in (whole, graph))
    return Plan(model, whole, graph, source, union, parts, recurrences, told, flags, settled.carried, fills)


def _wanted(
    model: Model, inputs: Sequence[str], outputs: Sequence[str], signature: str | None
) -> tuple[tuple[Part, ...], list[Spec], list[Spec]]:
    """The signatures taken from the file; inputs and outputs by the flags, by these or by the graph."""
    wanted_inputs = specs.parse(inputs, flag="--inputs")
    wanted_outputs = specs.parse(outputs, flag="--outputs")
    _refuse_repeated(wanted_inputs)
    given = () if wanted_outputs else _given(model, signature)
    if not wanted_outputs:
        wanted_outputs = [spec for part in given for spec in _specs(part, part.signature.outputs)]
        wanted_inputs = wanted_inputs or [
            spec for part in given for spec in _specs(part, part.signature.inputs)
        ]
    if not wanted_outputs:
        wanted_outputs = [Spec(None, name) for name in choose.outputs(model.path, model.graph)]
    return given, wanted_inputs, wanted_outputs


def _refuse_repeated(inputs: list[Spec]) -> None:
    names = [spec.tensor for spec in inputs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--inputs: expected each tensor once, found {name} twice")


def _refuse_bound(inputs: list[Spec], bound: dict[str, Array]) -> None:
    for spec in inputs:
        if spec.tensor in bound:
            raise UsageError(f"--set: expected a tensor that is no input, found {spec.tensor} in --inputs")


def _averaged(model: Model) -> Model:
    """The model with each variable's moving average for its value. Canonical keys hold no averages."""
    shadows = {
        name: model.variables.get(f"{name}/{AVERAGE}", found) for name, found in model.variables.items()
    }
    if all(shadows[name] is found for name, found in model.variables.items()):
        raise UnsupportedModelError(model.path, [f"--weights ema: expected keys .../{AVERAGE}, found none"])
    return replace(model, variables=shadows)


def _given(model: Model, wanted: str | None) -> tuple[Part, ...]:
    """The signatures of the file itself: the wanted one, all that belong together, or the usual one."""
    found = model.signatures
    if wanted is not None and wanted not in found:
        listed = ", ".join(sorted(found)) or "none"
        raise UsageError(f"{model.path}: --signature: expected one of {listed}, found {wanted}")
    if model.together and wanted is None:
        several = len(found) > 1
        return tuple(Part(key, value, f"{key}/" if several else "") for key, value in found.items())
    if wanted is None and SERVING not in found and len(found) > 1:
        reason = f"signatures: expected {SERVING} or one, found {', '.join(sorted(found))}"
        raise AmbiguousSourceError(model.path, [f"{reason}; choose with --signature"])
    key = wanted or (SERVING if SERVING in found else next(iter(found), None))
    return (Part(key, found[key]),) if key is not None else ()


def _specs(part: Part, tensors: Mapping[str, str]) -> list[Spec]:
    return [Spec(part.prefix + key, name) for key, name in tensors.items()]


def _parts(model: Model, given: Sequence[Part], union: Signature, *, alone: bool) -> tuple[Part, ...]:
    """The parts in the tensors of the cut graph; `alone`: state became inputs, which belong to one."""
    if not model.together or not given:
        return (Part(SERVING, union),)
    if alone and len(given) > 1:
        listed = ", ".join(part.name for part in given)
        reason = f"signatures: expected one where state becomes inputs, found {listed}"
        raise UnsupportedModelError(model.path, [f"{reason}; choose with --signature"])
    if alone:
        return (Part(given[0].name, union),)

    def of(part: Part) -> Signature:
        kept, prefix = part.signature, part.prefix
        return Signature(
            {key: union.inputs[prefix + key] for key in kept.inputs if prefix + key in union.inputs},
            {key: union.outputs[prefix + key] for key in kept.outputs},
        )

    return tuple(Part(part.name, of(part), part.prefix) for part in given)


def _constants(model: Model, index: Index, settings: Sequence[str], outputs: list[str]) -> dict[str, Array]:
    """The values that `--set` binds, by tensor. Globs match the tensors that the outputs need."""
    if not settings:
        return {}
    needed = index.ancestors(split(name)[0] for name in outputs)
    seen = build.sound(build.kept(model.graph, needed))
    bound: dict[str, Array] = {}
    for setting in settings:
        pattern, equals, text = setting.rpartition("=")
        if not equals or not pattern:
            raise UsageError(f"--set: expected TENSOR=VALUE, found {setting!r}")
        ops = [op for op in index.nodes if op in needed and fnmatchcase(op, pattern.removesuffix(":0"))]
        names = [f"{op}:0" for op in ops] or [tensor(pattern)]
        cut.require(model.path, index, names)
        for name in names:
            if split(name)[0] in needed:
                bound[name] = cut.parse_value(seen, name, text)
    return bound


def _inputs(
    model: Model,
    graph: Any,
    moved: dict[str, str],
    wanted: list[Spec],
    streams: list[str],
    *,
    complete: bool,
    free: Sequence[str],
) -> list[Spec]:
    """The inputs of the cut graph in its order, each with the name that the source has for it.

    Those that are `free` need not be wanted.
    """
    origin = {name: source for source, name in moved.items()}
    keys = {spec.tensor: spec for spec in wanted}
    # Without --inputs every stream was cut; with it, one may be left where inference goes.
    found, missing = [], cut.streams(Index(graph), [f"{node.name}:0" for node in graph.node], stop=())
    for node in graph.node:
        if node.op in cut.PLACEHOLDERS:
            name = origin.get(f"{node.name}:0", f"{node.name}:0")
            found.append(keys.get(name, Spec(None, name)))
            missing += [] if name in keys or name in free or complete else [name]
    if missing:
        raise _incomplete(model, missing)
    unused = [spec.tensor for spec in wanted if spec not in found]
    if unused and not complete:
        raise UsageError(
            f"{model.path}: --inputs: the outputs do not need {', '.join(unused)}; leave them out"
        )
    order = {spec.tensor: place for place, spec in enumerate(wanted)}
    return sorted(found, key=lambda spec: order.get(spec.tensor, len(order)))


def _incomplete(model: Model, missing: Sequence[str]) -> UsageError:
    advice = "add them, or bind them with --set"
    return UsageError(f"{model.path}: --inputs: the outputs also need {', '.join(missing)}; {advice}")
