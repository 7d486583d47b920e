"""Plans weights lacking a graph: each recurrence becomes a signature.

TensorFlow is not imported.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from cudnn_convert.errors import RefusalError, UnsupportedModelError, UsageError
from cudnn_convert.formats import Content, Keeps
from cudnn_convert.model import Array, Convention, Model, Part, Recurrence, Signature
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, RecurrencesPlan, Streaming
from cudnn_convert.plan.moving_averages import describe_unused_averages, use_moving_averages
from cudnn_convert.plan.notes import no_numbers
from cudnn_convert.plan.source import convention_of, describe_weights, interface_of
from cudnn_convert.recurrences import graphless, weight_copies
from cudnn_convert.recurrences.graphless import Alone, SignatureOptions, Single
from cudnn_convert.text import list_some
from cudnn_convert.values import StreamState


def warn_of_lost_graph(model: Model, plan: Plan | None = None) -> tuple[str, ...]:
    """Warn of tensors left out for lack of a graph, and name the missing file.

    `plan` is what is made of the weights, if that is known.
    """
    others = graphless.list_other_tensors(model, {part.name for part in plan.parts} if plan else ())
    if not others:
        return ()
    left = list_some(others, _LISTED)
    lack = f"{model.graphless.lack}, so that recurrences alone are converted; left out: {left}"
    return ("; ".join(filter(None, (lack, model.graphless.cure))),)


#: How many tensors that are left out a warning lists.
_LISTED: Final = 12


def plan_weights(model: Model, options: Options) -> RecurrencesPlan:
    """Plan a model of weights alone.

    Raises UnsupportedModelError with all reasons at once, AmbiguousSourceError where flags must decide.
    """
    interface, signature, weights = interface_of(options), options.signature, options.weights
    if options.recurrences_only and interface.layout is None:
        interface = replace(interface, layout="batch")  # which Keras leaves no choice of
    if options.form.content is Content.RECURRENCES:  # the user of the weights may need the states
        interface = replace(interface, states=True)
    model, copy = use_moving_averages(model, weights)
    blobs = graphless.find_blob_recurrences(model, describe_weights(options), wanted=signature)
    alone = _choose(model, blobs, signature)
    left_out = describe_unused_averages(model, weights, [recurrence.variable for recurrence in alone])
    choices = (note for recurrence in alone for note in interface.notes(recurrence))
    if options.form.content is Content.RECURRENCES and Keeps.ONE_FILE in options.form.keeps:
        # The names are keys of arrays there, not of files: the title of the source need not change.
        alone = [replace(each, name=each.title or each.name) for each in alone]
    singles = _singles(model, alone, interface, copy=copy, convention=convention_of(options))
    flags = describe_choices(interface, signature, weights)
    return join_plans(model, singles, notes=(*model.notes, *choices, *left_out), flags=flags)


def join_plans(
    model: Model, singles: Sequence[Single], *, notes: Sequence[str], flags: Sequence[str], graph: Any = None
) -> RecurrencesPlan:
    """Return the plan of separate recurrences, each with a signature.

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
    return RecurrencesPlan(
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
    model: Model, alone: Sequence[Alone], interface: SignatureOptions, *, copy: str, convention: Convention
) -> tuple[Single, ...]:
    reasons: list[str] = []
    singles: list[Single] = []
    for each in alone:
        try:
            recurrence = _recurrence(model, each, interface, copy=copy, convention=convention)
        except RefusalError as error:
            reasons += error.reasons
        else:
            singles.append(Single(each.name, recurrence, interface.batch_major(each), interface.states))
    if reasons:
        raise UnsupportedModelError(model.path, reasons)
    return tuple(singles)


def _recurrence(
    model: Model, recurrence: Alone, interface: SignatureOptions, *, copy: str, convention: Convention
) -> Recurrence:
    """Return the recurrence, as if decoded from a graph."""
    sizes = recurrence.sizes
    facts = weight_copies.Facts(
        node=f"{recurrence.name}/CudnnRNN",
        mode=sizes.mode,
        directions=sizes.directions,
        layers=sizes.layers,
        units=sizes.units,
        dtype=recurrence.dtype,
        input_size=sizes.input_size,
        input_mode="skip_input" if sizes.skip_input else "linear_input",
        projection=sizes.projection,
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


def describe_choices(interface: SignatureOptions, signature: str | None, weights: str) -> tuple[str, ...]:
    """Return the flags to repeat the choices.

    Sizes come from the file or from flags already.
    """
    choices = {"signature": signature, "layout": interface.layout}
    choices |= {"weights": None if weights == "auto" else weights}
    asked = {"states": interface.states, "lengths": interface.lengths}
    values = tuple(f"--{name}={value}" for name, value in choices.items() if value is not None)
    return (*values, *(f"--{name}" for name, value in asked.items() if value))


def name_states(parts: Sequence[Part], recurrences: Sequence[Recurrence]) -> tuple[StreamState, ...]:
    """Return the states of recurrences, each a signature, as named by `graphless.Single`."""
    states = []
    for part, recurrence in zip(parts, recurrences, strict=True):
        for kind in "hc":
            key, end = f"initial_{kind}", f"state_{kind}"
            if key in part.signature.inputs:
                keys = {"key": part.prefix + key, "next_key": part.prefix + end}
                ends = {"start": part.signature.inputs[key], "end": part.signature.outputs[end]}
                states.append(StreamState.of(recurrence, kind, time_major=True, **keys, **ends))
    return tuple(states)


def stream_singles(plan: RecurrencesPlan) -> RecurrencesPlan:
    """Add to a plan of weights the way to run each recurrence in chunks.

    The plan is unchanged where one cannot be run so.
    """
    if any(single.recurrence.sizes.directions == 2 for single in plan.singles):
        return plan
    pairs = [*zip(plan.parts, plan.singles, strict=True)]
    axes = {part.prefix: int(single.batch_major) for part, single in pairs}
    lengths = [f"{part.prefix}sequence_lengths" for part, single in pairs if single.recurrence.lengths]
    streaming = Streaming(
        name_states(plan.parts, plan.recurrences),
        {f"{prefix}inputs": axis for prefix, axis in axes.items()},
        {f"{prefix}outputs": axis for prefix, axis in axes.items()},
        frozenset(lengths),
        {f"{prefix}inputs": 1 - axis for prefix, axis in axes.items()},
    )
    return replace(plan, streaming=streaming)
