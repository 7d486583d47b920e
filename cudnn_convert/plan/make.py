"""Makes a plan from a model and options.

TensorFlow is imported for graphs only.
"""

from cudnn_convert import context
from cudnn_convert.model import Model
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, alone, applicable
from cudnn_convert.plan.source import cut_at_layers


def make_plan(model: Model, options: Options) -> Plan:
    """Plan a model read from a file.

    Raises UnsupportedModelError, AmbiguousSourceError, UsageError.
    """
    context.report_progress("planning")
    model, options = cut_at_layers(model, options)
    applicable.check_options(model, options)
    if alone.is_alone(model, options):
        return alone.plan_alone(model, options)
    from cudnn_convert.plan import decoding, fix_sizes, from_graph, keys, obstacles, streaming

    plan = from_graph.plan_model(model, options)
    obstacles.check_format(plan, options)
    plan = keys.fit_keys(plan, options)
    plan = streaming.stream(plan, options)
    plan = decoding.plan_decoder(plan, options)
    plan = fix_sizes.fix_sizes(plan, options)
    obstacles.check_inputs(plan, options)
    return plan
