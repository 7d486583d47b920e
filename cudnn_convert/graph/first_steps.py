"""Finds the ops responsible for a tensor's dependence on steps after the first.

A state that is computed from the first step of an input, or from its number of rows, can be had from the
first chunk of a sequence. `find_later_steps` lists the ops because of which it cannot.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from cudnn_convert.graph import ops, stepwise, time_axis
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import split
from cudnn_convert.graph.stepwise import StepAxes
from cudnn_convert.graph.time_axis import BATCH, Mixing


def find_later_steps(
    graph: Graph, times: Mapping[str, int], rows: Mapping[str, int], outputs: Sequence[str]
) -> list[Mixing]:
    """List the ops taking later steps of inputs on the way to the tensors `outputs`.

    `times` has the axis of the steps in each input `op:k` that has steps, `rows` the axis of its rows.
    """
    ends = [split(name)[0] for name in outputs]
    needed = graph.index.ancestors(ends, control=False)
    inputs = {name: axis for name, axis in times.items() if split(name)[0] in needed}
    if not inputs:
        return []
    prime = time_axis.choose_prime(graph.shapes)
    known = {name: graph.shapes.get_tensor_by_name(name) for name in inputs}
    shapes: dict[str, list[int | None]] = {
        name: [
            size or {axis: prime, rows.get(name): time_axis.SIZES[BATCH]}.get(k)
            for k, size in enumerate(known[name].shape.as_list())
        ]
        for name, axis in inputs.items()
    }
    seen = time_axis.with_sizes(graph, known, shapes)
    if seen is None:
        return [Mixing(ends[0], "sizes that do not fit")]
    return _walk(seen, StepAxes(prime), {*inputs}, list(time_axis.in_order(seen, needed)))


def _walk(
    seen: tf.Graph, steps: StepAxes, with_steps: set[str], in_order: Sequence[tf.Operation]
) -> list[Mixing]:
    """Follow the tensors `with_steps` through the ops, up to ops taking the first step alone."""
    later: list[Mixing] = []
    for op in in_order:
        if not any(value.name in with_steps for value in op.inputs) or op.type in stepwise.SHAPES:
            continue
        if stepwise.takes_first_step(steps, op):
            continue
        if op.type in ops.RECURRENCES:
            what = "a recurrence over the steps"
        elif op.type in ops.ENTERS or op.type.startswith("TensorArray"):
            what = time_axis.LOOP
        else:
            what = stepwise.judge_op(steps, op)
        kept = [value.name for value in op.outputs if steps.axes(value) or value.shape.rank is None]
        if what or len(kept) < len(op.outputs):
            later.append(Mixing(op.name, what or "other steps than the first"))
        with_steps |= {value.name for value in op.outputs}
    return later
