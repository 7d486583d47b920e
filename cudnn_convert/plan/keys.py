"""Renames input and output keys forbidden by a format."""

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cudnn_convert.formats import Keeps
from cudnn_convert.graph.index import unique
from cudnn_convert.model import Signature
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan


def fit_keys(plan: Plan, options: Options) -> Plan:
    """Rename keys forbidden by the format of `options`, with a note on each."""
    if Keeps.EQUAL_KEYS not in options.form.keeps:
        plan = _separate_keys(plan)
    return plan if Keeps.KEYWORDS in options.form.keeps else _avoid_keywords(plan)


def _separate_keys(plan: Plan) -> Plan:
    """Rename outputs with the key of an input, as `default` in TensorFlow Hub modules."""
    inputs, outputs = plan.source.inputs, plan.source.outputs
    keys = {key: unique(f"{key}_output", {*inputs, *outputs}) for key in outputs if key in inputs}
    notes = [f"output {key} is {new}: an input has its key" for key, new in keys.items()]
    return _rename(plan, {}, keys, notes)


def _avoid_keywords(plan: Plan) -> Plan:
    """Rename inputs with keys unfit as names of Python parameters.

    TensorFlow loads a signature as a function of its keys. Source: tensorflow v2.21.0
    core/function/polymorphism/function_type.py Parameter, which is that of `inspect`;
    python/eager/polymorphic_function/concrete_function.py ConcreteFunction.__call__, a method.
    """
    inputs, outputs = plan.source.inputs, plan.source.outputs
    reserved = [key for key in inputs if keyword.iskeyword(key) or key == "self"]
    keys = {key: unique(f"{key}_", {*inputs, *outputs}) for key in reserved}
    notes = [f"input {key} is {new}: Python reserves the word" for key, new in keys.items()]
    return _rename(plan, keys, {}, notes)


def _rename(plan: Plan, inputs: Mapping[str, str], outputs: Mapping[str, str], notes: Sequence[str]) -> Plan:
    """Give new keys, if any, to inputs and outputs in all signatures of a plan."""
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
