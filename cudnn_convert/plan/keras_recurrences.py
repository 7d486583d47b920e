"""Plans recurrences alone as models of Keras."""

from dataclasses import replace

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.graph.index import claim
from cudnn_convert.options import Options
from cudnn_convert.plan import RecurrencesPlan
from cudnn_convert.plan.from_weights import join_plans
from cudnn_convert.plan.notes import no_numbers
from cudnn_convert.recurrences import named_weights
from cudnn_convert.recurrences.graphless import Single


def plan_layers(plan: RecurrencesPlan, options: Options) -> RecurrencesPlan:
    """Plan recurrences as models of Keras: batch-major, with full rows, states only on demand.

    Raises UnsupportedModelError for what Keras has no layer of, UsageError for flags without effect.
    """
    if options.layout == "time":
        raise UsageError(
            "--layout: expected batch with --format keras, as its layers take it, found time; "
            "leave out --layout"
        )
    if options.lengths:
        raise UsageError(
            "--lengths: expected no lengths with --format keras, whose layers take a mask, found some; "
            "leave out --lengths"
        )
    reasons = (
        named_weights.explain_keras_refusal(single.name, single.recurrence.sizes) for single in plan.singles
    )
    if lines := [f"{reason}; take another format" for reason in reasons if reason]:
        raise UnsupportedModelError(plan.model.path, lines)
    again = {*no_numbers(plan.recurrences)}  # notes that are written anew
    singles, notes, taken = [], [note for note in plan.notes if note not in again], set[str]()
    for single in plan.singles:
        name = claim(named_weights.name_keras_model(single.name), taken)
        recurrence = single.recurrence
        masked = replace(recurrence, lengths=recurrence.lengths and options.states)
        singles.append(Single(name, masked, batch_major=True, states=options.states))
        if masked.lengths:
            notes.append(f"{name}: its input mask [batch, time] is false past each row's length")
        elif recurrence.lengths:
            notes.append(f"{name}: sequence lengths are not in the model; call its layers with a mask")
    return join_plans(plan.model, singles, notes=notes, flags=plan.flags, graph=plan.graph)
