"""Fixes the sizes of a plan's inputs, for `--lowering fused`.

A microcontroller reserves the memory of every tensor before the first call, so its file has no open size.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import tensorflow as tf

from cudnn_convert.errors import Reason, UnsupportedModelError, UsageError
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.index import split
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan, axes
from cudnn_convert.values import Axis

#: Rows of a call where the source leaves their number open.
ROWS: Final = 1
_BATCH, _TIME = "batch", "time"


def fix_sizes(plan: Plan, options: Options) -> Plan:
    """Return a plan whose inputs have no open size, if `options` ask for a fused lowering.

    Open rows become `ROWS`, open steps those of `--steps`. Raises UsageError for `--steps` without an open
    axis of steps, UnsupportedModelError where a size stays open.
    """
    if options.lowering != "fused" or plan.whole is None:
        return plan
    named, shapes, is_timed = axes.name_axes(plan), dict[str, list[int]](), False
    reasons = []
    for key, name in plan.signature.inputs.items():
        stated = plan.graph.shapes.get_tensor_by_name(name).shape
        known: list[Axis] = [] if stated.rank is None else [*named.get(key, stated.as_list())]
        is_timed |= any(map(_is_time, known))
        sizes = [_choose_size(axis, options) for axis in known]
        if stated.rank is None or None in sizes:
            reasons.append(_ask_for_sizes(key, name, known, options))
        else:
            shapes[split(name)[0]] = [size for size in sizes if size is not None]
    if reasons:
        raise UnsupportedModelError(plan.model.path, reasons)
    if options.steps is not None and not is_timed:
        expected = "expected an input with an open number of steps"
        raise UsageError(f"--steps {options.steps}: {expected}, found sizes that the source fixes; leave it out")
    described = ", ".join(
        f"{key} {shapes[split(name)[0]]}" for key, name in plan.signature.inputs.items()
    )
    graph, whole = (_with_shapes(each, shapes) for each in (plan.graph, plan.whole))
    return replace(plan, graph=graph, whole=whole, notes=(*plan.notes, f"sizes are fixed: {described}"))


def _is_time(axis: Axis) -> bool:
    return isinstance(axis, str) and axis.startswith(_TIME)


def _choose_size(axis: Axis, options: Options) -> int | None:
    """Return the size of an axis, None where nothing fixes it."""
    if axis == _BATCH:
        return ROWS
    if _is_time(axis):
        return options.steps
    return axis if isinstance(axis, int) else None


def _ask_for_sizes(key: str, name: str, known: Sequence[Axis], options: Options) -> Reason:
    open_axes = [axis for axis in known if _choose_size(axis, options) is None]
    if open_axes and all(map(_is_time, open_axes)):
        cure = "give the number of steps with --steps"
    else:
        cure = f"give all sizes with --inputs, as in --inputs {key}={name}[1,50,10]"
    actual = str([axis or "?" for axis in known]).replace("'", "") if known else "any shape"
    return Reason(f"{key}: --lowering fused: expected an input of fixed sizes, found {actual}; {cure}")


def _with_shapes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Return the graph with placeholders of known shapes."""
    changes = {}
    for name, shape in shapes.items():
        dtype = tf.as_dtype(graph.index.nodes[name].attr["dtype"].type)
        changes[name] = node_defs.placeholder(name, dtype, tf.TensorShape(shape))
    return replace_nodes(graph, changes)
