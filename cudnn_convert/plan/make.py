"""The plan for a model with a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from cudnn_convert import notes, states
from cudnn_convert.errors import AmbiguousSourceError
from cudnn_convert.graph import branches, flat, refuse, reserved, resolve, tables, updates, variables
from cudnn_convert.graph.index import Index
from cudnn_convert.model import SERVING, Convention, Model, Part, Recurrence, Signature
from cudnn_convert.plan import Plan, averages
from cudnn_convert.plan.request import Request, request
from cudnn_convert.plan.section import section

_USUAL: Final = Convention()


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
    keeps_examples: bool = True,
) -> Plan:
    """The plan for a model with a graph, and the flags of the same names (`constants`: `--set`).

    Where the format does not keep variables, state becomes inputs and outputs. Where tf.Examples cannot stay
    inputs, the features parsed out of them are.
    """
    model = flattened(model)
    model, copy = averages.chosen(model, weights)
    index = Index(model.graph)
    wanted = request(model, index, inputs=inputs, outputs=outputs, constants=constants, signature=signature)
    model = replace(model, graph=reserved.emptied(model.graph, wanted.names))
    found = section(
        model,
        Index(model.graph),
        wanted,
        keeps_variables=keeps_variables,
        keeps_examples=keeps_examples or model.together,
    )
    model, graph = found.settled.model, found.settled.graph
    left = _without_training(model, index, wanted, graph)
    chosen = not outputs and not wanted.given
    hint = notes.chosen(found.asked) if chosen else None
    refuse.unsupported(model.path, graph, outputs=[*found.signature.outputs.values()], hint=hint)
    recurrences = resolve.recurrences(model, graph, copy=copy, convention=convention)
    variables.require(model.path, graph, model.variables, decoded={one.shared for one in recurrences})
    told = (
        *model.notes,
        *notes.notes(found.asked, recurrences, found.streams, chosen_here=chosen),
        *notes.parsed(found.features),
        *notes.left(wanted.left, wanted.names),
        *notes.untaken(left),
        *averages.left_out(model, weights, _variables(graph, recurrences)),
        *states.notes(found.settled, updates.left_out(index, graph), wanted.names),
    )
    shapes = {spec.tensor: spec.shape for spec in wanted.inputs if spec.shape is not None}
    # A SavedModel that stays whole is asked for by no flag at all.
    flags = notes.flags(found.source, shapes, constants) if model.saved is None else ()
    flags += () if weights == "auto" else (f"--weights={weights}",)
    parts = _parts(model, wanted.given, found.signature)
    words = (f"{key}={tensor}" for key, tensor in found.source.inputs.items())
    named = dict(zip(found.signature.inputs.values(), words, strict=True))
    fills = tables.fills(model, graph, named, found.signature.outputs.values())
    whole, graph = (tables.with_fills(one, model, fills) for one in (found.whole, graph))
    return Plan(
        model, whole, graph, found.source, found.signature, parts, recurrences, told, flags,
        found.settled.carried, fills,
    )  # fmt: skip


def _without_training(model: Model, index: Index, wanted: Request, graph: Any) -> list[str]:
    """The recurrences for training whose branches the planned `graph` no longer has.

    Raises AmbiguousSourceError where it has one and the user did not say so.
    """
    kept = {node.name for node in graph.node}
    said = {*wanted.constants, *(spec.tensor for spec in wanted.inputs)}
    cures: dict[str, list[str]] = {}
    for name in wanted.training:
        held = branches.leaving(index, name)
        if name in kept and not (held and f"{held[0]}:0" in said):
            cure = branches.flag(*held) if held else f"--outputs {','.join(wanted.names)}"
            cures.setdefault(cure, []).append(name)
    if cures:
        begin = f"outputs: {', '.join(wanted.names)} may come from"
        reasons = [
            f"{begin} {', '.join(names)}, meant for training; choose with {cure}"
            for cure, names in cures.items()
        ]
        raise AmbiguousSourceError(model.path, reasons)
    return [name for name in wanted.training if name not in kept]


def _variables(graph: Any, recurrences: Sequence[Recurrence]) -> set[str]:
    """The names of the variables that a graph and its recurrences take their weights from."""
    return {node.name for node in graph.node} | {one.shared for one in recurrences}


def flattened(model: Model) -> Model:
    """The model with a graph without calls; a model with signatures is asked for nothing else."""
    graph: Any = model.graph
    signatures = model.signatures.values()
    keep = [name for one in signatures for of in (one.inputs, one.outputs) for name in of.values()]
    keep = [*keep, *model.initializers] if keep else [node.name for node in graph.node]
    return replace(model, graph=flat.flattened(graph, keep)) if flat.calls(graph, keep) else model


def _parts(model: Model, given: Sequence[Part], union: Signature) -> tuple[Part, ...]:
    """The parts in the tensors of the cut graph."""
    if not model.together or not given:
        return (Part(SERVING, union),)

    def of(part: Part) -> Signature:
        kept, prefix = part.signature, part.prefix
        return Signature(
            {key: union.inputs[prefix + key] for key in kept.inputs if prefix + key in union.inputs},
            {key: union.outputs[prefix + key] for key in kept.outputs},
        )

    return tuple(Part(part.name, of(part), part.prefix) for part in given)
