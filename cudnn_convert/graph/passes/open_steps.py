"""Opens the fixed number of steps of a graph, in shapes of inputs and ops.

    before:  x = Placeholder[100, ?, 22]; z = Reshape(y, [-1, 100, 9])
    after:   x = Placeholder[?, ?, 22];   z = Reshape(y, [-1, Shape(x)[0], 9])

A number that equals the fixed one may have another meaning, such as units. TensorFlow's shape inference
decides: steps and rows get primes for their sizes, and each number is read as steps and as itself. A reading
stays if all ops take it and every Reshape keeps its elements in order: it splits an axis of steps or joins it
with its neighbours, never both.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import control_flow, node_defs, ops, stepwise, time_axis
from cudnn_convert.graph.graph import Graph, import_checked, prune, replace_nodes
from cudnn_convert.graph.index import NodeDef, split, tensor, unique, walk
from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.time_axis import Mixing
from cudnn_convert.model import Array

#: The operand that is a shape, by op.
_SHAPED: Final = {"Reshape": 1, "Fill": 0, "Tile": 1, "BroadcastTo": 1}
#: Take a part of a tensor, by numbers along its axes.
_SLICES: Final = frozenset({"StridedSlice", "Slice"})
#: Make a shape of others: the inputs that have its sizes.
_SIZES: Final[Mapping[str, slice]] = {
    **dict.fromkeys(("Pack", "Mul", "ConcatV2"), slice(None)),
    **dict.fromkeys(("Identity", "Cast", "ExpandDims", "Squeeze", "Reshape", "StridedSlice"), slice(0, 1)),
    "Prod": slice(0, 1),
    "Concat": slice(1, None),
}
#: Numbers of one op of which every set is read as steps, and readings of a graph that are tried.
_MOST_NUMBERS: Final = 6
_MOST_READINGS: Final = 64
#: A size of its own for rows: a prime above those that `time_axis` gives to steps.
_ROWS: Final = 1061


@dataclass(frozen=True, slots=True)
class OpenStepsGraph:
    """A graph with an open number of steps.

    `shapes` are the outputs of the ops whose numbers were read, where steps have the size `count`.
    """

    graph: Graph
    shapes: Mapping[str, tuple[int | None, ...]]


@dataclass(frozen=True, slots=True)
class _Number:
    """An element of a Const, perhaps `times` the number of steps."""

    const: str
    position: int
    times: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """A graph with the numbers read so far, in two forms.

    `sized` has a prime for the steps, and `opened` leaves their number open.
    """

    sized: Graph
    opened: Graph
    shapes: Mapping[str, tuple[int | None, ...]]


def open_steps(
    graph: Graph,
    inputs: Mapping[str, int],
    steps: int,
    *,
    count: int,
    needed: Collection[str],
    known: Mapping[str, tuple[int | None, ...]],
) -> tuple[list[OpenStepsGraph], Mixing | None]:
    """Open the number of steps, now `steps`, in the axes of the tensors `inputs`.

    `count` is a prime that divides no size of the graph; `needed` are the ops to look at, `known` the shapes
    of some that another graph with the same ops has. Gives a graph for each way to read the numbers, and
    where there is none the first op that takes the fixed number alone.
    """
    frames = control_flow.frames(graph.index)
    order = [op.name for op in time_axis.in_order(graph.shapes, needed) if op.name in needed]
    numbered = [name for name in order if not frames.get(name) and _holds_numbers(graph, name, steps)]
    opener = _AxisOpener(graph, inputs, steps, count)
    todo: list[tuple[_Reading, int]] = [(opener.begin(graph), 0)]
    graphs: list[OpenStepsGraph] = []
    obstacle: Mixing | None = None
    for _ in range(_MOST_READINGS):
        if not todo:
            break
        reading, done = todo.pop()
        if done < len(numbered):
            name = numbered[done]
            readings = [*opener.read(reading, name, known.get(name))]
            todo += [(each, done + 1) for each in readings]
            before = order[: order.index(name) + 1]
            refused = "" if readings else _find_refused(reading.sized, before) or name
        else:
            refused = _find_refused(reading.sized, order)
            graphs += [] if refused else [OpenStepsGraph(reading.opened, reading.shapes)]
        if refused and obstacle is None:
            obstacle = Mixing(refused, graph.index.nodes[refused].op)
    return graphs, None if graphs else obstacle


class _AxisOpener:
    """A reader of the numbers of ops, op by op."""

    def __init__(self, graph: Graph, inputs: Mapping[str, int], steps: int, count: int) -> None:
        self._inputs, self._steps, self._count = inputs, steps, count
        self._source, self._axis = next(iter(inputs.items()))
        value = graph.shapes.get_tensor_by_name(self._source)
        self._rank, self._dtype = value.shape.rank, value.dtype

    def begin(self, graph: Graph) -> _Reading:
        """Return the graph with open inputs, before a number is read."""
        sized, opened = {}, {}
        for node in graph.node:
            name = f"{node.name}:0"
            if node.op not in ops.ALL_PLACEHOLDERS:
                continue
            value = graph.shapes.get_tensor_by_name(name)
            if value.shape.rank is None:
                continue
            sizes = value.shape.as_list()
            rows = _ROWS if sizes.count(None) == 1 else None
            shape = [rows if size is None else size for size in sizes]
            if name in self._inputs:
                axis = self._inputs[name]
                shape[axis], sizes[axis] = self._count, None
                opened[node.name] = node_defs.copy_node(node)
                opened[node.name].attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
            sized[node.name] = node_defs.placeholder(node.name, value.dtype, tf.TensorShape(shape))
        return _Reading(replace_nodes(graph, sized), replace_nodes(graph, opened), {})

    def read(self, reading: _Reading, name: str, known: tuple[int | None, ...] | None) -> Iterator[_Reading]:
        """Yield the readings of an op's numbers accepted by the op."""
        node = reading.sized.index.nodes[name]
        if node.op not in _SHAPED:
            sources = [split(each)[0] for each in reading.sized.index.data_inputs(node)]
            seen = _import(reading.sized, sources)
            changed = [] if seen is None else _open_range(reading.sized, node, seen, self._count, self._steps)
            if changed:
                sized, opened = (
                    replace_nodes(each, {name: changed[0]}, changed[1:])
                    for each in (reading.sized, reading.opened)
                )
                reading = _Reading(sized, opened, reading.shapes)
            if seen is not None:
                yield reading
            return
        numbers = [*self._list_numbers(reading.sized, node)][:_MOST_NUMBERS]
        if not numbers:
            yield reading
            return
        given: set[tuple[int | None, ...]] = set()
        for size in range(len(numbers) + 1):
            for chosen in combinations(numbers, size):
                sized = self._replace(reading.sized, name, chosen, self._write_size)
                seen = _import(sized, [name])
                if seen is None:
                    continue
                op = seen.get_operation_by_name(name)
                sizes = (*op.outputs[0].shape.as_list(),) if op.outputs[0].shape.rank is not None else ()
                is_other = sizes in given or (known is not None and None not in sizes and known != sizes)
                if is_other or (op.type == "Reshape" and not _keeps_order(op, self._count)):
                    continue
                given |= {sizes} if None not in sizes else set()
                opened = self._replace(reading.opened, name, chosen, self._write_count)
                yield _Reading(sized, opened, {**reading.shapes, name: sizes})

    def _list_numbers(self, graph: Graph, node: NodeDef) -> Iterator[_Number]:
        """Yield the numbers in an op's shape operand, perhaps counts of steps.

        For a Reshape these are products of the number of steps too.
        """
        for const in _list_consts(graph, node):
            values = tf.make_ndarray(graph.index.nodes[const].attr["value"].tensor)
            if values.dtype.kind not in "iu":
                continue
            for position, value in enumerate(values.ravel().tolist()):
                is_product = (
                    node.op == "Reshape" and self._steps > 1 and value > 0 and value % self._steps == 0
                )
                if is_product or value == self._steps:
                    yield _Number(const, position, value // self._steps)

    def _replace(
        self,
        graph: Graph,
        name: str,
        numbers: Sequence[_Number],
        write: Callable[[str, NodeDef, Mapping[int, int]], list[NodeDef]],
    ) -> Graph:
        """Return the graph with an op's shape replaced by a copy, `numbers` counting steps."""
        if not numbers:
            return graph
        node = node_defs.copy_node(graph.index.nodes[name])
        added: dict[str, str] = {}
        nodes: list[NodeDef] = []

        def copy(reference: str) -> str:
            source = graph.index.nodes[split(reference)[0]]
            chosen = {each.position: each.times for each in numbers if each.const == source.name}
            inputs = [*source.input]
            if not chosen:
                for k in _positions(source):
                    inputs[k] = copy(inputs[k])
                if inputs == [*source.input]:
                    return reference
            if source.name not in added:
                added[source.name] = unique(f"{name}/open_steps/{source.name}", graph.index.nodes)
                kept = node_defs.copy_node(source, name=added[source.name], inputs=inputs)
                nodes.extend(write(added[source.name], source, chosen) if chosen else [kept])
            return added[source.name]

        node.input[_SHAPED[node.op]] = copy(node.input[_SHAPED[node.op]])
        return replace_nodes(graph, {name: node}, nodes)

    def _write_size(self, name: str, const: NodeDef, times: Mapping[int, int]) -> list[NodeDef]:
        """Make a Const with the prime for the steps."""
        values = tf.make_ndarray(const.attr["value"].tensor).copy()
        for position, factor in times.items():
            values.flat[position] = factor * self._count
        return [node_defs.constant(name, values)]

    def _write_count(self, name: str, const: NodeDef, times: Mapping[int, int]) -> list[NodeDef]:
        """Make nodes for a Const's value with the number of steps of the first input."""
        values = tf.make_ndarray(const.attr["value"].tensor)
        axis = self._axis

        def count(x: Any) -> Any:
            steps = tf.shape(x, out_type=tf.as_dtype(values.dtype))[axis]
            counts = {
                k: steps * np.array(each, values.dtype) if each > 1 else steps for k, each in times.items()
            }
            sizes = [counts.get(k, size) for k, size in enumerate(values.ravel())]
            return tf.stack(sizes) if values.ndim else sizes[0]

        spec = tf.TensorSpec([None] * self._rank, self._dtype)
        *nodes, last = inlining.call(inlining.trace_function(count, spec), name, [self._source])
        return [*nodes, node_defs.identity(name, last.input[0], last.attr["T"].list.type[0])]


def _holds_numbers(graph: Graph, name: str, steps: int) -> bool:
    """Return True if an op takes a shape, or bounds near the number of steps.

    The bounds of a part count where `steps` or `steps - 1` is among them.
    """
    node = graph.index.nodes[name]
    if node.op not in _SLICES:
        return node.op in _SHAPED or node.op == "EnsureShape"
    consts = [graph.index.nodes[split(each)[0]] for each in graph.index.data_inputs(node)[1:3]]
    values = [tf.make_ndarray(each.attr["value"].tensor) for each in consts if each.op == "Const"]
    return any(np.isin([steps - 1, steps], value).any() for value in values)


def _open_range(graph: Graph, node: NodeDef, seen: tf.Graph, count: int, steps: int) -> list[NodeDef]:
    """Return a copy of an op with the number of steps left open.

    Its attribute or operands hold the number of steps along an axis of them. `seen` has its operands. The op
    first, then the nodes that it takes; empty where nothing is to change.
    """
    x, *given = (seen.get_tensor_by_name(tensor(name)) for name in graph.index.data_inputs(node))
    operands = [tf.get_static_value(value) for value in given]
    if x.shape.rank is None or count not in x.shape.as_list() or any(value is None for value in operands):
        return []
    axis = x.shape.as_list().index(count)
    changed, values = node_defs.copy_node(node), [value.copy() for value in operands]
    if node.op == "EnsureShape":
        dims = changed.attr["shape"].shape.dim
        if dims and dims[axis].size == steps:
            dims[axis].size = -1
        return [changed]
    if node.op == "Slice":
        begins, sizes = values
        if begins[axis] == 0 and sizes[axis] == steps:
            sizes[axis] = -1
        return _with_operands(graph, changed, values)
    begins, ends, strides = values
    k = stepwise.find_range(node, axis, x.shape.rank, len(begins))
    if k is not None and strides[k] == 1:
        is_one = bool(node.attr["shrink_axis_mask"].i >> k & 1)
        if ends[k] == steps and not is_one:
            changed.attr["end_mask"].i |= 1 << k
        if begins[k] == steps - 1 > 0:
            begins[k], ends[k] = -1, 0
    return _with_operands(graph, changed, values)


def _with_operands(graph: Graph, node: NodeDef, values: Sequence[Array]) -> list[NodeDef]:
    """Return a copy of an op with constants after the first operand, and the constants."""
    consts = [
        node_defs.constant(unique(f"{node.name}/open_steps/{k}", graph.index.nodes), value)
        for k, value in enumerate(values)
    ]
    inputs = [node.input[0], *(const.name for const in consts), *node.input[1 + len(values) :]]
    return [node_defs.copy_node(node, inputs=inputs), *consts]


def _list_consts(graph: Graph, node: NodeDef) -> list[str]:
    """List the Consts in the making of an op's shape operand."""
    nodes = graph.index.nodes

    def above(name: str) -> list[str]:
        return [split(nodes[name].input[k])[0] for k in _positions(nodes[name])]

    start = split(node.input[_SHAPED[node.op]])[0]
    return [name for name in walk([start], above) if nodes[name].op == "Const"]


def _positions(node: NodeDef) -> range:
    """Return the positions of the inputs with sizes, for a node making a shape."""
    count = sum(not name.startswith("^") for name in node.input)
    last = count - 1 if node.op == "ConcatV2" else count
    return range(count)[_SIZES.get(node.op, slice(0))][:last]


def _keeps_order(op: Any, count: int) -> bool:
    """Return True if a Reshape only splits, or only joins, the axes of steps.

    It joins them with their neighbours. True where a size is not known.
    """
    shapes = [value.shape for value in (op.inputs[0], op.outputs[0])]
    if not all(shape.is_fully_defined() for shape in shapes):
        return True
    before, after = ([size for size in shape.as_list() if size != 1] for shape in shapes)
    while before and after:
        joined, split_up = [before.pop(0)], [after.pop(0)]
        while math.prod(joined) != math.prod(split_up):
            shorter, rest = (joined, before) if math.prod(joined) < math.prod(split_up) else (split_up, after)
            if not rest:
                return False
            shorter.append(rest.pop(0))
        has_steps = any(size % count == 0 for size in joined)
        if has_steps and len(joined) > 1 and len(split_up) > 1:
            return False
    return True


def _import(graph: Graph, names: Sequence[str]) -> tf.Graph | None:
    """Import the part of a graph needed by the ops `names`.

    Returns None where TensorFlow refuses their sizes.
    """
    try:
        return import_checked(prune(graph, [f"{name}:0" for name in names]))
    except InvalidModelError:
        return None


def _find_refused(graph: Graph, order: Sequence[str]) -> str:
    """Return the first op with sizes refused by TensorFlow, or else an empty name.

    In `order` ops come after those that they read.
    """
    if _import(graph, order) is not None:
        return ""
    counts = range(1, len(order))  # of first ops that may be refused; all together are
    refused = bisect_left(counts, True, key=lambda count: _import(graph, order[:count]) is None)
    return order[refused]
