"""Names of axes: the places of batch and time in inputs and outputs, by shape.

TensorFlow's shape inference is asked with sizes that no others are: an axis of an output that has the size
of the batch is the batch. Two inputs share a time where the graph refuses different ones, as an encoder and
a decoder do not. The graph that fits is asked twice, with other sizes. Names are given only where each
recurrence finds its steps, or its rows, in inputs; a name that is wrong would be worse than none.

`state_widths` gives inputs of open width the width that a recurrence's weights bind.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import control_flow, node_defs, ops, time_axis
from cudnn_convert.graph.graph import Graph, import_checked, prune, replace_nodes
from cudnn_convert.graph.index import INPUT, split, walk
from cudnn_convert.graph.passes import inference
from cudnn_convert.graph.time_axis import BATCH, OTHER, TIME
from cudnn_convert.model import Recurrence
from cudnn_convert.plan import Plan, RecurrencesPlan
from cudnn_convert.values import Axis

#: The sizes of axes, None where one is open.
Shape = tuple[int | None, ...]
#: Two sizes for each role: no first one divides another, or is a usual size. The first times are primes, the
#: second ones are multiples of 60: halves that are doubled again have one of two sizes alone.
_BATCHES: Final = (2 * 7 * 11 * 13, 2 * 7 * 11 * 17)
_OTHERS: Final = (2 * 3 * 5 * 7 * 13, 2 * 3 * 5 * 7 * 17)
_TIMES: Final = ((1051, 1061, 1063, 1069), (1080, 1140, 1200, 1260))
_CALLED: Final = time_axis.AxisSizes(frozenset(_TIMES[0]), _BATCHES[0])
#: The second size of each first one.
_SECOND: Final = {**dict(zip(*_TIMES, strict=True)), **dict([_BATCHES, _OTHERS])}
#: Ways to call the axes that are tried; a graph of which none fits gets no names.
_TRIES: Final = 8
#: Inputs with a time whose groups are tried: four have 15.
_MOST: Final = 4


def name_axes(plan: Plan) -> dict[str, tuple[Axis, ...]]:
    """Return the axes of each input and output of a plan, by key.

    An axis is a name, a size, or None. Tensors of which not even the rank is known are left out, and so is a
    key that an input and an output of other axes share. Empty for a plan without a graph or recurrences.
    """
    if isinstance(plan, RecurrencesPlan) or not plan.recurrences:
        return {}
    nodes = plan.graph.index.nodes
    recurrences = {each.node: each.time_major for each in plan.recurrences if each.node in nodes}
    starts = {state.start for state in plan.streaming.states} if plan.streaming else set()
    ends = [*plan.signature.inputs.items(), *plan.signature.outputs.items()]
    inputs = {name: (1,) if name in starts else () for name in plan.signature.inputs.values()}
    axes = _name_tensors(plan.graph, inputs, [name for _, name in ends], recurrences) if recurrences else None
    if axes is None:
        return {}
    by_key: dict[str, set[tuple[Axis, ...] | None]] = {key: set() for key, _ in ends}
    for key, name in ends:
        by_key[key].add(axes.get(name))
    alone = {key: named.pop() for key, named in by_key.items() if len(named) == 1}
    return {key: named for key, named in alone.items() if named is not None}


def _name_tensors(
    graph: Graph, inputs: Mapping[str, Sequence[int]], ends: Sequence[str], recurrences: Mapping[str, bool]
) -> dict[str, tuple[Axis, ...]] | None:
    known = {name: graph.shapes.get_tensor_by_name(name) for name in inputs}
    shapes = {name: value.shape for name, value in known.items()}
    # As a whole it has the shapes of all ends; a condition such as that of one step may contradict sizes.
    for whole in chain([graph], _fix_conditions(graph, ends)):
        if not recurrences.keys() <= {node.name for node in whole.node}:
            continue  # the other side of a condition has one of them
        infer = partial(_infer, whole, known)
        fitted = time_axis.fit_roles(shapes, inputs, recurrences, infer, _CALLED, tries=_TRIES)
        if fitted is not None and fitted.sure:
            break
    else:
        return None
    if sum(TIME in given for given in fitted.roles.values()) > _MOST:
        return None
    second = time_axis.with_sizes(whole, known, _choose_second(shapes, fitted.seen))
    if second is None:
        return None
    names, tied = _list_names(fitted.sure), _find_tied(graph, recurrences)
    named = {}
    for name in ends:
        pair = [each.get_tensor_by_name(name).shape for each in (fitted.seen, second)]
        if any(shape.rank is None for shape in pair):
            continue
        stated = graph.shapes.get_tensor_by_name(name).shape
        axes = [None] * pair[0].rank if stated.rank is None else stated.as_list()
        if len({len(axes), *(shape.rank for shape in pair)}) > 1:
            continue  # the rank is a number that is fed
        columns = zip(axes, *(shape.as_list() for shape in pair), strict=True)
        known_names = names if split(name)[0] in tied else {}
        named[name] = tuple(_name(size, tuple(sizes), known_names) for size, *sizes in columns)
    return named


def _find_tied(graph: Graph, recurrences: Iterable[str]) -> set[str]:
    """Return the nodes linked to a recurrence by data, directly or through further nodes.

    Links lead to what a node reads and to what reads it. An input beside these nodes has a batch and a time
    of its own.
    """
    index = graph.index

    def neighbours(name: str) -> list[str]:
        node = index.nodes[name]
        around = [split(source)[0] for source in index.data_inputs(node)]
        around += [reader.name for reader in index.consumers(name)]
        return [other for other in around if index.nodes[other].op != "Const"]

    return {*walk(recurrences, neighbours)}


def _infer(graph: Graph, known: Mapping[str, tf.Tensor], roles: time_axis.Roles) -> tf.Graph | None:
    """Infer the graph at the first set of sizes, with as many times as fit.

    None where the graph takes not even one time. Where there are too many inputs to try, they have one time.
    """
    timed = [name for name, given in roles.items() if TIME in given]

    def ask(numbers: Sequence[int]) -> tf.Graph | None:
        number = dict(zip(timed, numbers, strict=True))
        shapes = {}
        for name, value in known.items():
            sizes = {TIME: _TIMES[0][number.get(name, 0)], BATCH: _BATCHES[0], OTHER: _OTHERS[0]}
            shapes[name] = time_axis.size_axes(value.shape, roles[name], sizes)
        return time_axis.with_sizes(graph, known, shapes)

    alike = [0] * len(timed)
    if len(timed) > _MOST:
        return ask(alike)
    # Most graphs take different times; one that takes not even the same has other roles.
    finest, *others = sorted(_partitions(len(timed)), key=max, reverse=True) if timed else [alike]
    seen = ask(finest)
    if seen is not None or not others:
        return seen
    same = ask(alike)
    if same is None:
        return None
    between = (ask(numbers) for numbers in others if numbers != alike)
    return next((each for each in between if each is not None), same)


def _choose_second(shapes: Mapping[str, tf.TensorShape], first: tf.Graph) -> dict[str, list[int]]:
    """Return the shape of each input in the second set of sizes.

    The shape in the graph with the first set decides.
    """
    known = {name: first.get_tensor_by_name(name).shape.as_list() for name in shapes}
    return {
        name: [
            _SECOND[size] if stated is None else stated
            for stated, size in zip(shapes[name].as_list(), sizes, strict=True)
        ]
        for name, sizes in known.items()
    }


def _partitions(count: int) -> Iterator[list[int]]:
    """Yield each way to group `count` items, as a list of group numbers."""
    if count == 1:
        yield [0]
        return
    for first in _partitions(count - 1):
        yield from ([*first, group] for group in range(max(first) + 2))


def _list_names(sure: Collection[int]) -> dict[tuple[int, int], str]:
    """Return the names of axes of sure roles, by the sizes in both sets."""
    names = {_BATCHES: "batch"} if BATCH in sure else {}
    if TIME in sure:
        for number, sizes in enumerate(zip(*_TIMES, strict=True)):
            names[sizes] = f"time_{number + 1}" if number else "time"
    return names


def _name(stated: int | None, sizes: tuple[int | None, ...], names: Mapping[Any, str]) -> Axis:
    """Return the size of an axis if equal in both sets, else the name."""
    if stated is not None:
        return stated
    return sizes[0] if sizes[0] == sizes[1] else names.get(sizes)


def _fix_conditions(graph: Graph, ends: Sequence[str]) -> Iterator[Graph]:
    """Yield the graph of `ends` with all conditions false, then with all true."""
    frames = control_flow.frames(graph.index)
    switches = (node for node in graph.node if node.op in ops.SWITCHES and not frames.get(node.name))
    conditions = {split(node.input[1])[0] for node in switches}
    for side in (False, True) if conditions else ():
        fixed = {name: node_defs.constant(name, np.array(side)) for name in conditions}
        yield prune(inference.drop_dead_branches(replace_nodes(graph, fixed)), ends)


def state_widths(graph: Graph, inputs: Iterable[str], recurrences: Iterable[Recurrence]) -> Graph:
    """State the open width of a recurrence's input, as bound by the recurrence's weights."""
    inputs, nodes = [*inputs], graph.index.nodes
    recurrences = [each for each in recurrences if each.node in nodes]
    for recurrence in recurrences:
        width, widths = recurrence.sizes.input_size, read_widths(graph.shapes, recurrences)
        if widths[recurrence.node] is not None:
            continue
        needed = graph.index.ancestors([recurrence.node])
        for name, shape in _list_shapes(graph, (name for name in inputs if split(name)[0] in needed), width):
            known = infer_widths(graph, name, shape, recurrences)
            if known is not None and known[recurrence.node] == width:
                graph = with_shapes(graph, {split(name)[0]: shape})
                break
    return graph


def _list_shapes(graph: Graph, inputs: Iterable[str], width: int) -> Iterator[tuple[str, Shape]]:
    """Yield each input with a single open axis set to `width`, last axes first."""
    for name in inputs:
        shape = graph.shapes.get_tensor_by_name(name).shape
        sizes = shape.as_list() if shape.rank else []
        for axis in reversed(range(len(sizes))):
            if sizes[axis] is None:
                yield name, (*sizes[:axis], width, *sizes[axis + 1 :])


def infer_widths(
    graph: Graph, name: str, shape: Shape, recurrences: Iterable[Recurrence]
) -> dict[str, int | None] | None:
    """Return the width of each recurrence's input if the placeholder tensor `name` had `shape`.

    None where the graph does not accept the shape.
    """
    try:
        return read_widths(import_checked(with_shapes(graph, {split(name)[0]: shape})), recurrences)
    except InvalidModelError:
        return None


def read_widths(seen: tf.Graph, recurrences: Iterable[Recurrence]) -> dict[str, int | None]:
    """Return the width of each recurrence's input.

    None where shape inference does not know the width.
    """
    shapes = {each.node: seen.get_operation_by_name(each.node).inputs[INPUT].shape for each in recurrences}
    return {node: known[-1] if known.rank else None for node, known in shapes.items()}


def with_shapes(graph: Graph, shapes: Mapping[str, Sequence[int | None] | None]) -> Graph:
    """Return the graph with placeholders of known shapes."""
    changes = {}
    for name, shape in shapes.items():
        if name not in graph.index.nodes or graph.index.nodes[name].op not in ops.ALL_PLACEHOLDERS:
            continue  # a state, which is no input of the source
        dtype = tf.as_dtype(graph.index.nodes[name].attr["dtype"].type)
        changes[name] = node_defs.placeholder(name, dtype, tf.TensorShape(shape))
    return replace_nodes(graph, changes)
