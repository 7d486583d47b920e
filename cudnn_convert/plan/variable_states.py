"""Names the states in a model's variables, once turned into inputs and outputs.

The states of plain layers with `stateful=True` are variables that each call reads and then writes. For
`--states` the pass `state_io` has made them inputs and outputs; here they get the names that the states of
cuDNN recurrences have, and an output with what a sequence begins with, where that is not zeros.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cudnn_convert.formats import FORMATS, Keeps
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import split, unique
from cudnn_convert.graph.passes.state_io import Carried
from cudnn_convert.model import Signature
from cudnn_convert.plan import Plan
from cudnn_convert.plan.requests import BEGUN, NEXT, claim_key
from cudnn_convert.values import VariableState

#: A state of a layer of Keras: as `keras/trace.py` names it, or as tf_keras does.
_TRACED: Final = re.compile(r"(.+)/state_(h|c|\d+)")
_VARIABLE: Final = re.compile(r"(.+)/Variable(?:_\d+)?")
_ASSIGNMENT: Final = re.compile(r"(.+)/AssignVariableOp(?:_(\d+))?")


def plan_variable_states(plan: Plan, form: str) -> Plan:
    """Name the states in variables of `plan`, for an artifact of the format `form`.

    A state is `NAME_h` or `NAME_c` for a layer NAME, else called as its variable; what it is after a call is
    `..._next`.
    """
    carried = [state for state in plan.states if state.promoted]
    starts, ends = ({getattr(state, of) for state in carried} for of in ("start", "end"))
    taken = {key for key, name in plan.signature.inputs.items() if name not in starts}
    taken |= {key for key, name in plan.signature.outputs.items() if name not in ends}
    states = []
    for state, (name, kind) in zip(carried, _name(carried), strict=True):
        key = claim_key(name, (NEXT, BEGUN), taken, set())
        value = plan.model.variables[state.state.key].read()
        begin = f"{key}{BEGUN}" if np.any(value) else ""
        states.append(VariableState(state.state.variable, kind, key, key + NEXT, value, begin))
    nodes = [*plan.graph.index.nodes, *plan.whole.index.nodes]
    constants = {
        state.begin_key: node_defs.constant(unique(state.begin_key, nodes), state.value)
        for state in states
        if state.begin_key
    }
    old = {name: key for key, name in plan.signature.inputs.items()}
    pairs = [(old[str(state.start)], own) for state, own in zip(carried, states, strict=True)]
    keys = {before: own.key for before, own in pairs}
    keys |= {before + NEXT: own.next_key for before, own in pairs}
    variables = {own.begin_key: f"{own.variable}:0" for own in states if own.begin_key}
    begins = {key: f"{node.name}:0" for key, node in constants.items()}
    named = replace(
        plan,
        whole=Graph(plan.whole, [*plan.whole.node, *constants.values()]),
        graph=Graph(plan.graph, [*plan.graph.node, *constants.values()]),
        source=_rename(plan.source, keys, variables),
        signature=_rename(plan.signature, keys, begins),
        parts=tuple(replace(part, signature=_rename(part.signature, keys, begins)) for part in plan.parts),
        variable_states=tuple(states),
    )
    return replace(named, notes=(*plan.notes, _describe(named, form)))


def _name(carried: Sequence[Carried]) -> list[tuple[str, str]]:
    """Return the name of each state, and the kind `h` or `c` for Keras layers."""
    names = []
    for state in carried:
        name = state.state.variable
        traced = _TRACED.fullmatch(name)
        layer, which = traced.groups() if traced else _find_place(state, carried)
        kind = which if which in ("h", "c") else ""
        names.append((re.sub(r"\W", "_", f"{layer}/{which}" if which else name), kind))
    return names


def _find_place(state: Carried, carried: Sequence[Carried]) -> tuple[str, str]:
    """Return the layer and place of a state held by tf_keras in `LAYER/Variable`.

    The order of assignments tells which of the layer's states it is. Empty for other variables. Source:
    tf_keras v2.21.0 src/layers/rnn/base_rnn.py RNN.call, which assigns `states` in their order, and lstm.py,
    whose hidden state is the first.
    """
    match = _VARIABLE.fullmatch(state.state.variable)
    if match is None:
        return "", ""
    writes = {}
    for other in carried:
        if other.state.variable.rpartition("/")[0] == match[1]:
            called = _ASSIGNMENT.fullmatch(other.state.writes[0].op)
            if called is None or not f"/{called[1]}".endswith(f"/{match[1]}"):
                return "", ""
            writes[other.state.variable] = int(called[2] or 0)
    which = sorted(writes.values()).index(writes[state.state.variable])
    return match[1], "hc"[which] if len(writes) <= len("hc") else str(which)


def _rename(signature: Signature, keys: Mapping[str, str], more: dict[str, str]) -> Signature:
    """Return a signature with changed keys, and with `more` outputs."""
    return Signature(
        {keys.get(key, key): name for key, name in signature.inputs.items()},
        {keys.get(key, key): name for key, name in signature.outputs.items()} | more,
    )


def _describe(plan: Plan, form: str) -> str:
    """Return the note on states as inputs and outputs."""
    taken = plan.signature.inputs
    names = [state.key for state in plan.variable_states]
    if Keeps.TENSOR_NAMES in FORMATS[form].keeps:
        names = [split(taken[name])[0] for name in names]
    begins = [state.begin_key for state in plan.variable_states if state.begin_key]
    begin = f"the outputs {', '.join(begins)}" if begins else "zeros"
    others = ", zeros for the others" if 0 < len(begins) < len(plan.variable_states) else ""
    return (
        f"states: the model takes {', '.join(names)} and gives what each is after the call as ...{NEXT}; "
        f"begin a sequence with {begin}{others}"
    )
