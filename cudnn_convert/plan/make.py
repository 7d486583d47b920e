"""Makes a plan from a model and options.

TensorFlow is imported for graphs only.
"""

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cudnn_convert import context
from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.formats import FORMATS, Content, Keeps
from cudnn_convert.graph.index import unique
from cudnn_convert.model import Convention, Model, Recurrence, Signature
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, applicable, stream_singles
from cudnn_convert.plan.from_weights import plan_weights, warn_of_lost_graph
from cudnn_convert.plan.keras_recurrences import plan_layers
from cudnn_convert.plan.source import (
    cut_at_layers,
    describe_weights,
    ensure_graph,
    interface_of,
    needs_no_graph,
)


def make_plan(model: Model, options: Options) -> Plan:
    """Plan a model that was read.

    Raises as `from_graph` and `from_weights` do, UsageError.
    """
    context.report_progress("planning")
    model, options = cut_at_layers(model, options)
    convention = Convention(options.gate_order, options.forget_bias)
    _refuse_keras_flags(model, options)
    _require_layers(model, options)
    form = options.form
    is_graphless = model.graph is None and model.architecture is None
    if options.decode and is_graphless:
        expected = f"--decode {options.decode}: expected a model with its graph"
        cure = "give the source that it was trained in, or convert without --decode"
        raise UsageError(f"{expected}, found {model.kind} {model.path}; {cure}")
    if options.states and not (Keeps.STATES in form.keeps or is_graphless):
        formats = ", ".join(name for name, form in FORMATS.items() if Keeps.STATES in form.keeps)
        raise UsageError(f"--states: expected --format {formats}, found {options.format}")
    if form.content is Content.RECURRENCES or needs_no_graph(model, options):
        plan = _plan_alone(model, options, convention)
        plan = plan_layers(plan, options) if options.recurrences_only else plan
        lost = warn_of_lost_graph(model, plan) if is_graphless and not _is_meant_alone(options) else ()
        plan = replace(plan, alone=True, warnings=lost)
        return stream_singles(plan) if options.states else plan
    from cudnn_convert.graph import session
    from cudnn_convert.plan import decoding, obstacles, streaming
    from cudnn_convert.plan.from_graph import plan_graph

    drawn = options.verify and options.data is None and options.golden is None
    plan = plan_graph(
        ensure_graph(model, options),
        inputs=options.inputs,
        outputs=options.outputs,
        constants=options.set,
        signature=options.signature,
        weights=options.weights,
        convention=convention,
        keeps_variables=Keeps.VARIABLES in form.keeps,
        keeps_examples=Keeps.STRINGS in form.keeps and not drawn,
        forgets=options.streams and not is_graphless,
        promotes=options.states,
        for_layers=form.has_layers,
        carries_layouts=Keeps.CHANNELS_FIRST not in form.keeps,
    )
    plan = replace(plan, alone=is_graphless, warnings=warn_of_lost_graph(model, plan) if is_graphless else ())
    if Keeps.TABLES not in form.keeps:
        words = (f"{key}={tensor}" for key, tensor in plan.source.inputs.items())
        named = dict(zip(plan.signature.inputs.values(), words, strict=True))
        session.refuse(model.path, plan.graph, named, plan.signature.outputs.values(), options.format)
    if Keeps.CELLS in form.keeps:
        refuse(model.path, plan.recurrences)
    if Keeps.EQUAL_KEYS not in form.keeps:
        plan = _separate_keys(plan)
    if Keeps.KEYWORDS not in form.keeps:
        plan = _avoid_keywords(plan)
    if options.streams:
        plan = streaming.stream_assembled(plan) if is_graphless else _stream(plan, options)
    if options.decode is not None:
        plan = decoding.plan_decoder(plan, options)
    if drawn and (reasons := obstacles.undrawable(plan)):
        raise UnsupportedModelError(model.path, reasons)
    return plan


def _is_meant_alone(options: Options) -> bool:
    """Whether recurrences alone are what the user asks for."""
    return options.form.content is Content.RECURRENCES or options.recurrences_only


def _stream(plan: Plan, options: Options) -> Plan:
    """Plan the states of a graph as inputs and outputs, those of its recurrences or those in variables."""
    from cudnn_convert.plan import streaming, variable_states

    form, flag = options.form, "--states" if options.decode is None else "--decode"
    if any(state.promoted for state in plan.states):
        plan = variable_states.plan_variable_states(plan, options.format)
    else:
        plan = streaming.plan_stream(
            plan, stateless=Keeps.SIGNATURES in form.keeps, form=options.format, flag=flag
        )
    return replace(plan, flags=(*plan.flags, "--states")) if options.states else plan


def _separate_keys(plan: Plan) -> Plan:
    """Rename outputs that have the key of an input, as modules of TensorFlow Hub do with `default`."""
    inputs, outputs = plan.source.inputs, plan.source.outputs
    keys = {key: unique(f"{key}_output", {*inputs, *outputs}) for key in outputs if key in inputs}
    notes = [f"output {key} is {new}: an input has its key" for key, new in keys.items()]
    return _rename_keys(plan, {}, keys, notes)


def _avoid_keywords(plan: Plan) -> Plan:
    """Rename inputs whose keys cannot be parameters: TensorFlow loads a signature as a function of its keys.

    Source: tensorflow v2.21.0 core/function/polymorphism/function_type.py Parameter, which is that of
    `inspect`; python/eager/polymorphic_function/concrete_function.py ConcreteFunction.__call__, a method.
    """
    inputs, outputs = plan.source.inputs, plan.source.outputs
    reserved = [key for key in inputs if keyword.iskeyword(key) or key == "self"]
    keys = {key: unique(f"{key}_", {*inputs, *outputs}) for key in reserved}
    notes = [f"input {key} is {new}: Python reserves the word" for key, new in keys.items()]
    return _rename_keys(plan, keys, {}, notes)


def _rename_keys(
    plan: Plan, inputs: Mapping[str, str], outputs: Mapping[str, str], notes: Sequence[str]
) -> Plan:
    """Give inputs and outputs new keys, if there are some, in all signatures of a plan."""
    if not (inputs or outputs):
        return plan

    def rename(signature: Signature) -> Signature:
        return replace(
            signature,
            inputs={inputs.get(key, key): tensor for key, tensor in signature.inputs.items()},
            outputs={outputs.get(key, key): tensor for key, tensor in signature.outputs.items()},
        )

    return replace(
        plan,
        source=rename(plan.source),
        signature=rename(plan.signature),
        parts=tuple(replace(part, signature=rename(part.signature)) for part in plan.parts),
        notes=(*plan.notes, *notes),
    )


def _plan_alone(model: Model, options: Options, convention: Convention) -> Plan:
    """Plan a model's recurrences, each a signature of its own."""
    flags: dict[str, Any] = {"signature": options.signature, "weights": options.weights}
    if not needs_no_graph(model, options):
        from cudnn_convert.plan import recurrences_only

        return recurrences_only.plan_recurrences(ensure_graph(model, options), **flags, convention=convention)
    interface = interface_of(options)
    if options.recurrences_only and interface.layout is None:
        interface = replace(interface, layout="batch")  # which Keras leaves no choice of
    if (
        options.form.content is Content.RECURRENCES
    ):  # the user of the weights may need the states, so each recurrence has them
        interface = replace(interface, states=True)
    return plan_weights(model, describe_weights(options), interface, **flags, convention=convention)


def _refuse_keras_flags(model: Model, options: Options) -> None:
    if options.custom_objects and not applicable.applies("custom_objects", model):
        raise UsageError(f"--custom-objects: expected a Keras model, found {model.kind} {model.path}")


def _require_layers(model: Model, options: Options) -> None:
    if model.architecture is None:
        return
    from cudnn_convert.keras.config import validate

    if reason := validate.describe_unknown_model(model.architecture.config, options.custom_class_names):
        raise UnsupportedModelError(model.path, [reason])


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
