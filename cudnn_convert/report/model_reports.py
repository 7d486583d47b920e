"""Reports of a model's recurrences, states and decoders."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from cudnn_convert.model import CanonicalEvidence, Recurrence
from cudnn_convert.report.values import DecoderReport, RecurrenceReport, StateReport
from cudnn_convert.values import Decoder, SearchRules, VariableState


def of_recurrence(recurrence: Recurrence) -> RecurrenceReport:
    """Return the report of a recurrence."""
    sizes = recurrence.sizes
    return RecurrenceReport(
        node=recurrence.node,
        op=recurrence.op,
        mode=sizes.mode.value,
        layers=sizes.layers,
        directions=sizes.directions,
        units=sizes.units,
        input_size=sizes.input_size,
        dtype=recurrence.dtype.name,
        weights="canonical" if isinstance(recurrence.evidence, CanonicalEvidence) else "raw",
    )


def of_states(streaming: Any, variables: Iterable[VariableState]) -> tuple[StateReport, ...]:
    """Return the reports of states, from a `plan.Streaming` or from variables.

    Where `streaming` is None, the states are those held in variables.
    """
    if streaming is None:
        return tuple(
            StateReport(
                *(state.variable, state.kind, state.key, state.next_key),
                begin_key=state.begin_key or None,
                begin_value=state.value.tolist() if state.begin_key else None,
            )
            for state in variables
        )
    outputs, values = streaming.begin_outputs, streaming.values
    return tuple(
        StateReport(
            *(state.node, state.kind, state.key, state.next_key),
            begin_key=outputs.get(state.key),
            begin_value=values[state.key].tolist() if state.key in values else None,
        )
        for state in streaming.states
    )


def of_decoder(decoder: Decoder, token: str, logits: str) -> DecoderReport:
    """Return the report of a search.

    `token` and `logits` are the source's tensors.
    """
    return DecoderReport(
        **{rule.name: getattr(decoder, rule.name) for rule in fields(SearchRules)},
        token=token,
        logits=logits,
        inputs=tuple(decoder.signature.inputs),
        outputs=tuple(decoder.signature.outputs),
    )
