"""Names of axes: where the batch and time lie in inputs and outputs, as shapes tell.

TensorFlow's shape inference is asked with sizes that no others are: an axis of an output that has the size
of the batch is the batch. Two inputs share a time where the graph refuses different ones, as an encoder and
a decoder do not. Each answer is asked for twice, with other sizes. Names are given only where each
recurrence finds its steps, or its rows, in inputs; a name that is wrong would be worse than none.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from cudnn_convert.graph import control_flow, node_defs, ops, time_axis
from cudnn_convert.graph.index import split
from cudnn_convert.graph.passes import inference
from cudnn_convert.graph.time_axis import BATCH, OTHER, TIME
from cudnn_convert.model import Axis
from cudnn_convert.plan import Plan

#: Two sizes for each role: none divides another, nor a usual size. Times have primes.
_BATCHES: Final = (2 * 7 * 11 * 13, 2 * 7 * 11 * 17)
_OTHERS: Final = (2 * 3 * 5 * 7 * 13, 2 * 3 * 5 * 7 * 17)
_TIMES: Final = ((1051, 1061, 1063, 1069), (1087, 1091, 1093, 1097))
#: Ways to call the axes that are tried; a graph of which none fits gets no names.
_TRIES: Final = 8
#: Inputs with a time whose groups are tried: four have 15.
_MOST: Final = 4


def name_axes(plan: Plan) -> dict[str, tuple[Axis, ...]]:
    """The axes of each input and output of a plan, by key: a name, a size, or None.

    Without those of which not even the rank is known. Empty for a plan without a graph or recurrences.
    """
    if plan.graph is None or not plan.recurrences or plan.singles:
        return {}
    nodes = plan.graph.index.nodes
    recurrences = {each.node: each.time_major for each in plan.recurrences if each.node in nodes}
    starts = {state.start for state in plan.streaming.states} if plan.streaming else set()
    ends = {**plan.signature.inputs, **plan.signature.outputs}
    inputs = {name: (1,) if name in starts else () for name in plan.signature.inputs.values()}
    axes = _name_tensors(plan.graph, inputs, [*ends.values()], recurrences) if recurrences else None
    return {} if axes is None else {key: axes[name] for key, name in ends.items() if name in axes}


def _name_tensors(
    graph: node_defs.Graph,
    inputs: Mapping[str, Sequence[int]],
    ends: Sequence[str],
    recurrences: Mapping[str, bool],
) -> dict[str, tuple[Axis, ...]] | None:
    # As a whole it has the shapes of all ends; a condition such as that of one step may contradict sizes.
    graphs = chain([graph], _fix_conditions(graph, ends))
    fits = ((each, time_axis.fit_roles(each, inputs, recurrences, tries=_TRIES)) for each in graphs)
    fitting = next(((each, fitted) for each, fitted in fits if fitted is not None and fitted.sure), None)
    if fitting is None:
        return None
    whole, fitted = fitting
    known = {name: whole.shapes.get_tensor_by_name(name).shape.as_list() for name in inputs}
    fit = _find_times(whole, known, fitted.roles)
    if fit is None:
        return None
    times, first = fit
    second = time_axis.with_sizes(whole, _choose_shapes(known, fitted.roles, times, 1))
    if second is None:
        return None
    names = _list_names(fitted.sure)
    named = {}
    for name in ends:
        shapes = [each.get_tensor_by_name(name).shape for each in (first, second)]
        if any(shape.rank is None for shape in shapes):
            continue
        stated = graph.shapes.get_tensor_by_name(name).shape
        axes = [None] * shapes[0].rank if stated.rank is None else stated.as_list()
        columns = zip(axes, *(shape.as_list() for shape in shapes), strict=True)
        named[name] = tuple(_name(size, tuple(pair), names) for size, *pair in columns)
    return named


def _find_times(
    graph: node_defs.Graph, known: Mapping[str, Sequence[int | None]], roles: time_axis.Roles
) -> tuple[dict[str, int], Any] | None:
    """The number of the time of each input that has one: as many times as the graph takes, 0 for the first.

    Beside it the graph with the first set of sizes, as TensorFlow infers its shapes. None where there are too
    many inputs to try, or no way fits.
    """
    timed = [name for name, given in roles.items() if TIME in given]
    if len(timed) > _MOST:
        return None
    ways = sorted(_partitions(len(timed)), key=max, reverse=True) if timed else [[]]
    for numbers in ways:
        times = dict(zip(timed, numbers, strict=True))
        seen = time_axis.with_sizes(graph, _choose_shapes(known, roles, times, 0))
        if seen is not None:
            return times, seen
    return None


def _partitions(count: int) -> Iterator[list[int]]:
    """Each way to put so many items into groups, as the number of each one's group."""
    if count == 1:
        yield [0]
        return
    for first in _partitions(count - 1):
        yield from ([*first, group] for group in range(max(first) + 2))


def _choose_shapes(
    known: Mapping[str, Sequence[int | None]], roles: time_axis.Roles, times: Mapping[str, int], which: int
) -> dict[str, list[int]]:
    """The shape of each input in the first or the second of two sets of sizes."""
    return {
        name: [
            {TIME: _TIMES[which][times.get(name, 0)], BATCH: _BATCHES[which], OTHER: _OTHERS[which]}[role]
            if size is None
            else size
            for size, role in zip(shape, roles[name], strict=True)
        ]
        for name, shape in known.items()
    }


def _list_names(sure: Collection[int]) -> dict[tuple[int, int], str]:
    """The names of axes by their size in both sets, of those roles that are sure."""
    names = {_BATCHES: "batch"} if BATCH in sure else {}
    if TIME in sure:
        for number, sizes in enumerate(zip(*_TIMES, strict=True)):
            names[sizes] = f"time_{number + 1}" if number else "time"
    return names


def _name(stated: int | None, sizes: tuple[int | None, ...], names: Mapping[Any, str]) -> Axis:
    """The size of an axis that is the same in both sets, else its name."""
    if stated is not None:
        return stated
    return sizes[0] if sizes[0] == sizes[1] else names.get(sizes)


def _fix_conditions(graph: node_defs.Graph, ends: Sequence[str]) -> Iterator[node_defs.Graph]:
    """The graph of `ends` with its conditions fixed: all to one side, all to the other."""
    frames = control_flow.frames(graph.index)
    switches = (node for node in graph.node if node.op in ops.SWITCHES and not frames.get(node.name))
    conditions = {split(node.input[1])[0] for node in switches}
    for side in (False, True) if conditions else ():
        fixed = {name: node_defs.constant(name, np.array(side)) for name in conditions}
        yield node_defs.prune(inference.drop_dead_branches(node_defs.replace_nodes(graph, fixed)), ends)
