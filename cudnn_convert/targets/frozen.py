"""Writes a frozen graph: a binary GraphDef with the tensor names of the source.

Its provenance is an attribute of the first node: TensorFlow allows attributes whose names begin with an
underscore on any node, and ignores them (tensorflow v2.21.0 core/framework/node_def_util.cc ValidateNodeDef).
"""

from dataclasses import replace
from pathlib import Path

from cudnn_convert.formats import FROZEN_KEY
from cudnn_convert.graph import session
from cudnn_convert.graph.graph import Graph, copy_graph, drop_uncalled_functions
from cudnn_convert.graph.index import AnyGraph
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.targets.saved_model import lower_plan


def prepare(plan: Plan, options: Options) -> Plan:
    """Add notes on tensors of the signature renamed from the source."""
    source, signature = plan.source, plan.signature
    ends = (("input", source.inputs, signature.inputs), ("output", source.outputs, signature.outputs))
    notes = (
        f"{kind} {key}: {name} of the source is called {names[key]} in the frozen graph"
        for kind, old, names in ends
        for key, name in old.items()
        if names[key] != name
    )
    return replace(plan, notes=(*plan.notes, *notes))


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write a plan's CPU graph, with variables as constants, to the file `path`."""
    lowered = lower_plan(plan, options)
    # An input that nothing reads any more, such as lengths that are all full, is still fed by its name.
    ends = [*plan.signature.tensors, *(name for part in plan.all_parts for name in part.signature.tensors)]
    frozen = session.freeze_variables(lowered.graph, [*dict.fromkeys(ends)], variables=lowered.variables)
    write(path, frozen, provenance=provenance)
    return ()


def write(path: Path, graph: AnyGraph, *, provenance: str) -> None:
    """Write `graph` to `path` with deterministic bytes."""
    result = copy_graph(drop_uncalled_functions(Graph.of(graph)))
    for node in result.node:  # one that was converted before has its own
        if FROZEN_KEY in node.attr:
            del node.attr[FROZEN_KEY]
    result.node[0].attr[FROZEN_KEY].s = provenance.encode()
    path.write_bytes(result.SerializeToString(deterministic=True))
