"""Plans weights that have no graph, with or without moving averages.

Each recurrence becomes a signature. `use_moving_averages` replaces variables by their averages for
`--weights ema`. `refuse` lists recurrences that a checkpoint of CPU-compatible cells cannot store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import RefusalError, UnsupportedModelError, UsageError
from cudnn_convert.model import Array, Convention, Model, Part, Recurrence, Signature
from cudnn_convert.plan import Plan
from cudnn_convert.plan.notes import no_numbers
from cudnn_convert.recurrences import graphless, weight_copies
from cudnn_convert.recurrences.graphless import Alone, Described, Interface, Single

#: tensorflow v1.15.0 python/training/moving_averages.py ExponentialMovingAverage, its default name.
_AVERAGE: Final = "ExponentialMovingAverage"


def use_moving_averages(model: Model, weights: str) -> tuple[Model, str]:
    """The model with the values that `--weights` asks for, and the copy to take."""
    return (_use_averages(model), "raw") if weights == "ema" else (model, weights)


def _use_averages(model: Model) -> Model:
    """The model with each variable replaced by its moving average.

    Canonical keys have no averages. A saver of averages alone stores no other values. Raises
    UnsupportedModelError where there are no averages.
    """
    ending = f"/{_AVERAGE}"
    averages = {
        name.removesuffix(ending): variable
        for name, variable in model.variables.items()
        if name.endswith(ending)
    }
    if not averages:
        reason = f"--weights ema: expected keys ...{ending}, found none; take the weights without --weights"
        raise UnsupportedModelError(model.path, [reason])
    # The user asked for averages, so the graph's saver does not decide.
    return replace(model, variables={**model.variables, **averages}, keys={}, checkpoint=None)


def describe_unused_averages(model: Model, weights: str, taken: Iterable[str]) -> tuple[str, ...]:
    """A note that the file has moving averages of `taken` variables that are not used."""
    known = {key for key in model.variables if key.endswith(f"/{_AVERAGE}")}
    # A saver may restore a variable from its average: then the average is used already.
    own = [name for name in taken if name in model.variables and model.keys.get(name) not in known]
    count = sum(f"{name}/{_AVERAGE}" in known for name in own)
    if weights == "ema" or not count:
        return ()
    what = f"moving averages of {count} variable{'' if count == 1 else 's'}"
    return (f"{what} lie in the file and are not taken; --weights ema takes them",)


def refuse(path: Path, recurrences: Sequence[Recurrence]) -> None:
    """Refuse recurrences that CPU-compatible cells cannot store.

    Raises UnsupportedModelError with all reasons.
    """
    reasons, what = [], "--format checkpoint: expected"
    dtypes: dict[str, Any] = {}
    for recurrence in recurrences:
        if recurrence.sizes.projection:
            reasons.append(f"{recurrence.node}: {what} no projection, which CudnnCompatibleLSTMCell has not")
        dtype = dtypes.setdefault(recurrence.shared, recurrence.dtype)
        if dtype != recurrence.dtype:
            types = f"{dtype} and {recurrence.dtype}"
            reasons.append(f"{recurrence.node}: {what} one dtype for {recurrence.shared}, found {types}")
    if reasons:
        raise UnsupportedModelError(path, [f"{reason}; take another format" for reason in reasons])


_USUAL: Final = Convention()


def plan_weights(
    model: Model,
    description: Described,
    interface: Interface,
    *,
    signature: str | None = None,
    weights: str = "auto",
    convention: Convention = _USUAL,
) -> Plan:
    """Plan a model without a graph; `signature` and `weights` are the flags.

    Raises UnsupportedModelError with all reasons at once, AmbiguousSourceError where flags must decide.
    """
    model, copy = use_moving_averages(model, weights)
    alone = _choose(model, graphless.find_blob_recurrences(model, description, wanted=signature), signature)
    left_out = describe_unused_averages(model, weights, [recurrence.variable for recurrence in alone])
    return join_plans(
        model,
        _singles(model, alone, interface, copy=copy, convention=convention),
        notes=(
            *model.notes,
            *(note for recurrence in alone for note in interface.notes(recurrence)),
            *left_out,
        ),
        flags=describe_choices(interface, signature, weights),
    )


def join_plans(
    model: Model, singles: Sequence[Single], *, notes: Sequence[str], flags: Sequence[str], graph: Any = None
) -> Plan:
    """The plan of separate recurrences, one signature each.

    `graph` is the one from which their weights were computed, if any.
    """
    several = len(singles) > 1
    parts = tuple(
        Part(single.name, single.signature, f"{single.name}/" if several else "") for single in singles
    )
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
        recurrences=tuple(single.recurrence for single in singles),
        notes=(*notes, *no_numbers([single.recurrence for single in singles])),
        flags=tuple(flags),
        singles=tuple(singles),
    )


def _choose(model: Model, alone: Sequence[Alone], signature: str | None) -> list[Alone]:
    chosen = [single for single in alone if signature in (None, single.name)]
    if not chosen:
        listed = ", ".join(sorted(single.name for single in alone))
        raise UsageError(f"{model.path}: --signature: expected one of {listed}, found {signature}")
    return chosen


def _singles(
    model: Model, alone: Sequence[Alone], interface: Interface, *, copy: str, convention: Convention
) -> tuple[Single, ...]:
    reasons: list[str] = []
    singles_of_all: list[Single] = []
    for standalone in alone:
        try:
            recurrence = _recurrence(model, standalone, interface, copy=copy, convention=convention)
        except RefusalError as error:
            reasons += error.reasons
        else:
            singles_of_all.append(
                Single(standalone.name, recurrence, interface.batch_major(standalone), interface.states)
            )
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return tuple(singles_of_all)


def _recurrence(
    model: Model, recurrence: Alone, interface: Interface, *, copy: str, convention: Convention
) -> Recurrence:
    """The recurrence, as it would be decoded from a graph."""
    sizes = recurrence.sizes
    facts = weight_copies.Facts(
        node=f"{recurrence.name}/CudnnRNN",
        mode=sizes.mode,
        directions=sizes.directions,
        layers=sizes.layers,
        units=sizes.units,
        dtype=recurrence.dtype,
        input_size=sizes.input_size,
        input_mode="linear_input",
        projection=0,
    )

    def read() -> Array | None:
        return model.variables[recurrence.variable].read() if recurrence.variable in model.variables else None

    taken = weight_copies.take(model, facts, recurrence.variable, read, copy=copy, convention=convention)
    return Recurrence(
        node=facts.node,
        op="CudnnRNNV3" if interface.lengths else "CudnnRNN",
        sizes=taken.sizes,
        time_major=True,
        lengths=interface.lengths,
        dtype=recurrence.dtype,
        cells=taken.cells,
        evidence=taken.evidence,
        shared=recurrence.variable,
        convention=convention,
    )


def describe_choices(interface: Interface, signature: str | None, weights: str) -> tuple[str, ...]:
    """The flags that repeat the choices; sizes come from the file or from flags already."""
    choices = {"signature": signature, "layout": interface.layout}
    choices |= {"weights": None if weights == "auto" else weights}
    asked = {"states": interface.states, "lengths": interface.lengths}
    values = tuple(f"--{name}={value}" for name, value in choices.items() if value is not None)
    return (*values, *(f"--{name}" for name, value in asked.items() if value))
