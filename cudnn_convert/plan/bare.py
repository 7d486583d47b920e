"""The plan of weights that have no graph and need none: nothing to cut, a signature for each recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from cudnn_convert.errors import RefusalError, UnsupportedModelError, UsageError
from cudnn_convert.graph import lone_blob, weights
from cudnn_convert.graph.facts import Facts
from cudnn_convert.graph.graphless import Alone, Described
from cudnn_convert.graph.interface import Interface, Single
from cudnn_convert.model import Array, Convention, Model, Part, Recurrence, Signature
from cudnn_convert.notes import no_numbers
from cudnn_convert.plan import Plan, averages

_USUAL: Final = Convention()


def make(
    model: Model,
    said: Described,
    interface: Interface,
    *,
    signature: str | None = None,
    weights: str = "auto",
    convention: Convention = _USUAL,
) -> Plan:
    """The plan for a model without a graph; `signature` and `weights` are the flags.

    Raises UnsupportedModelError with all reasons at once, AmbiguousSourceError where flags must decide.
    """
    model, copy = averages.chosen(model, weights)
    alone = _chosen(model, lone_blob.found(model, said, wanted=signature), signature)
    left_out = averages.left_out(model, weights, [one.variable for one in alone])
    return joined(
        model,
        _singles(model, alone, interface, copy=copy, convention=convention),
        notes=(*model.notes, *(note for one in alone for note in interface.notes(one)), *left_out),
        flags=repeated(interface, signature, weights),
    )


def joined(
    model: Model, singles: Sequence[Single], *, notes: Sequence[str], flags: Sequence[str], graph: Any = None
) -> Plan:
    """The plan of recurrences, each a signature of its own; `graph` is what their weights came from."""
    several = len(singles) > 1
    parts = tuple(Part(one.name, one.signature, f"{one.name}/" if several else "") for one in singles)
    union = Signature(
        {part.prefix + key: name for part in parts for key, name in part.signature.inputs.items()},
        {part.prefix + key: name for part in parts for key, name in part.signature.outputs.items()},
    )
    return Plan(
        model=replace(model, together=True),
        whole=None,
        graph=graph,
        source=union,
        signature=union,
        parts=parts,
        recurrences=tuple(one.recurrence for one in singles),
        notes=(*notes, *no_numbers([one.recurrence for one in singles])),
        flags=tuple(flags),
        singles=tuple(singles),
    )


def _chosen(model: Model, alone: Sequence[Alone], signature: str | None) -> list[Alone]:
    found = [one for one in alone if signature in (None, one.name)]
    if not found:
        listed = ", ".join(sorted(one.name for one in alone))
        raise UsageError(f"{model.path}: --signature: expected one of {listed}, found {signature}")
    return found


def _singles(
    model: Model, alone: Sequence[Alone], interface: Interface, *, copy: str, convention: Convention
) -> tuple[Single, ...]:
    reasons: list[str] = []
    found: list[Single] = []
    for one in alone:
        try:
            recurrence = _recurrence(model, one, interface, copy=copy, convention=convention)
        except RefusalError as error:
            reasons += error.reasons
        else:
            found.append(Single(one.name, recurrence, interface.batch_major(one), interface.states))
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return tuple(found)


def _recurrence(
    model: Model, one: Alone, interface: Interface, *, copy: str, convention: Convention
) -> Recurrence:
    """As the graph that could have written the weights would have it."""
    sizes = one.sizes
    facts = Facts(
        node=f"{one.name}/CudnnRNN",
        mode=sizes.mode,
        directions=sizes.directions,
        layers=sizes.layers,
        units=sizes.units,
        dtype=one.dtype,
        input_size=sizes.input_size,
        input_mode="linear_input",
        projection=0,
    )

    def read() -> Array | None:
        return model.variables[one.variable].read() if one.variable in model.variables else None

    taken = weights.take(model, facts, one.variable, read, copy=copy, convention=convention)
    return Recurrence(
        node=facts.node,
        op="CudnnRNNV3" if interface.lengths else "CudnnRNN",
        sizes=taken.sizes,
        time_major=True,
        lengths=interface.lengths,
        dtype=one.dtype,
        cells=taken.cells,
        evidence=taken.evidence,
        shared=one.variable,
        convention=convention,
    )


def repeated(interface: Interface, signature: str | None, weights: str) -> tuple[str, ...]:
    """What says again all that may have been chosen: sizes are told by the file, or were told already."""
    said = {"signature": signature, "layout": interface.layout}
    said |= {"weights": None if weights == "auto" else weights}
    asked = {"states": interface.states, "lengths": interface.lengths}
    values = tuple(f"--{name}={value}" for name, value in said.items() if value is not None)
    return (*values, *(f"--{name}" for name, value in asked.items() if value))
