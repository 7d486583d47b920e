"""Plans recurrences alone, of weights or of a graph.

Each recurrence becomes a signature of its own, or a model of Keras.
"""

from dataclasses import replace

from cudnn_convert.formats import Content
from cudnn_convert.model import Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, from_weights
from cudnn_convert.plan.keras_recurrences import plan_layers
from cudnn_convert.plan.source import ensure_graph, needs_no_graph


def is_alone(model: Model, options: Options) -> bool:
    """Return True if the artifact has recurrences alone."""
    return options.form.content is Content.RECURRENCES or needs_no_graph(model, options)


def plan_alone(model: Model, options: Options) -> Plan:
    """Plan a model's recurrences, and warn where the graph is lost.

    Raises UnsupportedModelError, AmbiguousSourceError, UsageError.
    """
    if needs_no_graph(model, options):
        plan = from_weights.plan_weights(model, options)
    else:
        from cudnn_convert.plan import recurrences_only

        plan = recurrences_only.plan_recurrences(ensure_graph(model, options), options)
    if options.recurrences_only:
        plan = plan_layers(plan, options)
    # Files of arrays may hold other layers, and nothing beside them says so.
    is_told = options.form.content is not Content.RECURRENCES or not model.graphless.cure
    is_lost = model.is_graphless and is_told
    lost = from_weights.warn_of_lost_graph(model, plan) if is_lost else ()
    plan = replace(plan, alone=True, warnings=lost)
    return from_weights.stream_singles(plan) if options.states else plan
