"""Finds statistics of the batch, and replaces each by the moving average.

In training mode a model normalises by mean and variance of the batch at hand, so that the answer to a row
depends on the others. Inference takes moving averages, which training keeps in variables.

`find_statistics` looks at shapes: a statistic of the batch is a mean or a sum over all axes of open size,
from which values for each row are computed again. Layer and instance normalisation keep the axis of the rows.

    mean = Mean(x[?,?,4], [0, 1])[4]; y = x - mean

`take_averages` replaces the statistics by variables, and drops the waits for the assignments that move them:

    before:  mean = Mean(x, [0, 1]); y = x - mean
    after:   mean/average = Identity(v); y = x - mean/average
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import tensorflow as tf

from cudnn_convert.graph import constant_folding, control_flow, node_defs, ops, stepwise
from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.index import INPUT, Index, NodeDef, claim, reference, split, tensor, walk
from cudnn_convert.graph.recurrent_state import root
from cudnn_convert.model import Array

#: tensorflow v2.21.0 core/ops/nn_ops.cc: x, scale, offset, mean, variance; y, batch_mean, batch_variance.
FUSED: Final = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_FUSED_AVERAGES: Final = {1: 3, 2: 4}
_REDUCTIONS: Final = frozenset({"Mean", "Sum"})


def trains(node: NodeDef) -> bool:
    """Return True if a node is fused batch normalisation in training mode, the op's default."""
    return node.op in FUSED and bool(node_defs.read_attribute(node, "is_training").b)


def _reduces_floats(node: NodeDef) -> bool:
    return node.op in _REDUCTIONS and tf.as_dtype(node.attr["T"].type).is_floating


def find_statistics(graph: Graph, outputs: Iterable[str], known: Collection[str] = ()) -> list[str]:
    """List the batch statistics `op:k` needed for values of rows in `outputs`.

    `known` are tensors that have moving averages; they count if rows come into them by reductions alone. In a
    graph whose recurrences have a fixed batch, a statistic is one over its axis. Of fused batch normalisation
    the node is listed, by its output `op:1`.
    """
    index = graph.index
    needed = index.ancestors((split(name)[0] for name in outputs), control=False)
    fused = [f"{node.name}:1" for node in graph.node if node.name in needed and trains(node)]
    likely = [node for node in graph.node if node.name in needed and _reduces_floats(node)]
    averaged = [
        name for name in known if (op := split(name)[0]) in needed and index.nodes[op].op not in FUSED
    ]
    if not likely and not averaged:
        return fused
    rows = _Rows(graph)
    averaged = [name for name in averaged if rows.may_be_statistic(name)]
    reduced = [f"{node.name}:0" for node in likely if rows.are_reduced(node)]
    candidates = dict.fromkeys([*averaged, *reduced])
    return [*fused, *_first(index, [name for name in candidates if rows.are_behind(name, needed)])]


def _first(index: Index, names: Sequence[str]) -> Iterator[str]:
    """Leave out statistics used only for another listed statistic.

    The sum of squares of a variance is such a statistic.
    """
    for name in names:
        others = {split(other)[0] for other in names if other != name}
        # A statistic whose every reader leads to another alone is seen through that.
        if not _ends_in(index, split(name)[0], others):
            yield name


def _ends_in(index: Index, op: str, others: Collection[str]) -> bool:
    def others_apart(name: str) -> list[str]:
        return [node.name for node in index.consumers(name) if node.name not in others]

    return all(map(index.is_read, walk([op], others_apart)))


class _Rows:
    """The axis of the rows, as known from the static shapes of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._index, self._shapes = graph.index, graph.first_iteration
        nodes = [node for node in graph.node if node.op in ops.CUDNN]
        inputs = [(node, self._shapes.get_operation_by_name(node.name).inputs[INPUT].shape) for node in nodes]
        batches = {shape[_batch_axis(node)] for node, shape in inputs if shape.rank}
        #: The size of the batch, None where it is open.
        self._batch: int | None = batches.pop() if len(batches) == 1 else None

    def are_reduced(self, node: NodeDef) -> bool:
        """Return True if a reduction covers all axes of rows."""
        op = self._shapes.get_operation_by_name(node.name)
        before, after = op.inputs[0].shape, op.outputs[0].shape
        axes = self._list_reduced(node)
        if axes is None:
            return False
        if self._batch is None:
            return after.is_fully_defined() and any(before[axis] is None for axis in axes)
        rows = self._find_axes(before)
        return self._batch > 1 and bool(rows) and rows <= axes and node.name in self._fed

    def _list_reduced(self, node: NodeDef) -> set[int] | None:
        """Return the axes of a reduction, None if unknown."""
        op = self._shapes.get_operation_by_name(node.name)
        before, after = op.inputs[0].shape, op.outputs[0].shape
        axes = constant_folding.fold_constant(self._index, tensor(node.input[1]))
        if before.rank is None or (axes is None and after.rank != 0):
            return None
        # tensorflow v1.15.0 python/ops/math_ops.py `_ReductionDims`: range(0, rank(x)).
        listed = range(before.rank) if axes is None else axes.ravel()
        return {int(axis) % before.rank for axis in listed if before.rank}

    def _find_axes(self, shape: tf.TensorShape) -> set[int]:
        """Find the axes with the size of the batch, fixed or open."""
        return {axis for axis, size in enumerate(shape) if size == self._batch}

    def may_be_statistic(self, name: str) -> bool:
        """Return True if rows come into a tensor by reductions alone.

        Another axis may have the size of the batch: it is enough that one of that size is reduced.
        """
        reductions: set[str] = set()

        def above(op: str) -> list[str]:
            node = self._index.nodes[op]
            if node.op in _REDUCTIONS and self._may_be_reduced(node):  # a count of rows is of integers
                reductions.update([op] if _reduces_floats(node) else [])
                return []
            reads = (split(read)[0] for read in self._index.data_inputs(node))
            return [read for read in reads if _takes_values(node, read)]

        is_single = any(self._is_given(op) for op in walk([split(name)[0]], above))
        return bool(reductions) and not is_single

    def _may_be_reduced(self, node: NodeDef) -> bool:
        """Return True if a reduction covers an axis of rows, as far as shapes tell."""
        axes = self._list_reduced(node)
        shape = self._shapes.get_operation_by_name(node.name).inputs[0].shape
        rows = self._find_axes(shape) if axes is not None else None
        return axes is None or not rows or not axes.isdisjoint(rows)

    def _is_given(self, op: str) -> bool:
        """Return True if an op gives possible rows from outside the graph."""
        is_source = self._index.nodes[op].op in ops.ALL_PLACEHOLDERS | ops.STREAMS
        return is_source and any(output.shape.rank != 0 for output in self._outputs(op))

    @cached_property
    def _fed(self) -> set[str]:
        """The ops with values dependent on rows or on state."""
        nodes = self._index.nodes
        states = {root(self._index, name) for name, node in nodes.items() if node.op in ops.WRITES}
        starts = [name for name in nodes if name in states or self._is_given(name)]

        def readers(op: str) -> list[str]:
            return [node.name for node in self._index.consumers(op) if _takes_values(node, op)]

        return set(walk(starts, readers))

    def are_behind(self, name: str, needed: Collection[str]) -> bool:
        """Return True if values of rows depend on a tensor free of rows."""

        def readers(op: str) -> Iterator[str]:
            for node in self._index.consumers(op):
                if node.name in needed and _takes_values(node, op) and self._gives_numbers(node.name):
                    yield node.name

        return any(
            any(self._has_rows(output.shape) for output in self._outputs(op))
            for op in walk([split(name)[0]], readers)
        )

    def _gives_numbers(self, op: str) -> bool:
        kinds = {output.dtype.base_dtype for output in self._outputs(op)}
        return any(kind.is_floating or kind.is_bool for kind in kinds)

    def _outputs(self, op: str) -> Sequence[tf.Tensor]:
        return list(self._shapes.get_operation_by_name(op).outputs)

    def _has_rows(self, shape: tf.TensorShape) -> bool:
        if self._batch is None or shape.rank is None:
            return not shape.is_fully_defined()
        return self._batch in shape.as_list() or None in shape.as_list()


def _batch_axis(node: NodeDef) -> int:
    """Return the axis of the rows of a recurrence's input.

    Source: tensorflow v2.21.0 core/ops/cudnn_rnn_ops.cc.
    """
    return int("time_major" not in node.attr or node.attr["time_major"].b)


def _takes_values(node: NodeDef, op: str) -> bool:
    """Return True if a node's values depend on the values of an input op."""
    if node.op in ops.SWITCHES | {"Print"}:  # the others choose a side, or are only written to a log
        return split(node.input[0])[0] == op
    return node.op not in stepwise.SHAPES and node.op != "LoopCond"


def take_averages(
    graph: Graph, statistics: Mapping[str, str], read_shape: Callable[[NodeDef], tuple[int, ...]]
) -> Graph:
    """Replace each tensor by the variable with the moving average.

    `statistics` has the variable of each tensor `op:k`, `read_shape` the shape of a variable's value. A
    statistic in a loop of which not even the rank is known is left.
    """
    return _AverageReader(graph, read_shape).make(statistics)


class _AverageReader:
    """A maker of nodes reading averages in the place of statistics."""

    def __init__(self, graph: Graph, read_shape: Callable[[NodeDef], tuple[int, ...]]) -> None:
        self._graph, self._index, self._read_shape = graph, graph.index, read_shape
        self._frames = control_flow.frames(graph.index)
        self._branched = control_flow.inside(graph.index)
        self._taken = set(graph.index.nodes)
        self._added: list[NodeDef] = []
        self._changed: dict[str, NodeDef] = {}
        self._moved: dict[str, str] = {}

    def make(self, statistics: Mapping[str, str]) -> Graph:
        for name, variable in statistics.items():
            op, k = split(name)
            if trains(self._index.nodes[op]):
                self._make_fused(op, k, variable)
            elif (shape := self._find_shape(name, variable)) is not None:
                self._moved[name] = self._read(name, variable, shape)
        updates = _list_updates(self._index, {*statistics.values()})
        moved = {name: reference(f"{new}:0") for name, new in self._moved.items()}
        nodes = []
        for node in replace_nodes(self._graph, self._changed).node:
            inputs = [name for name in node.input if not (name.startswith("^") and name[1:] in updates)]
            nodes.append(node_defs.redirect(node_defs.with_inputs(node, inputs), moved))
        return Graph(self._graph, [*nodes, *self._added])

    def _make_fused(self, op: str, k: int, variable: str) -> None:
        node = self._changed.setdefault(op, node_defs.copy_node(self._index.nodes[op]))
        node.attr["is_training"].b = False
        node.input[_FUSED_AVERAGES[k]] = self._read(f"{op}:{k}", variable, None)

    def _find_shape(self, name: str, variable: str) -> tf.TensorShape | None:
        """Return the shape of a statistic, or else of the variable.

        The variable's counts where the statistic's rank is unknown and it keeps no axes, or where the ranks
        agree.
        """
        shape = self._graph.first_iteration.get_tensor_by_name(name).shape
        if shape.is_fully_defined():
            return shape
        kept = tf.TensorShape(self._read_shape(self._index.nodes[variable]))
        node = self._index.nodes[split(name)[0]]
        keeps_axes = node.op not in _REDUCTIONS or node.attr["keep_dims"].b
        fits = shape.rank == kept.rank or (shape.rank is None and not keeps_axes)
        return kept if fits else None

    def _read(self, name: str, variable: str, shape: tf.TensorShape | None) -> str:
        """Read a variable in the place of the tensor `name`; return the op.

        The value has the shape and type of the tensor.
        """
        op, _ = split(name)
        node = self._index.nodes[variable]
        kind = tf.as_dtype(node.attr["dtype"].type)
        if node.op == "VarHandleOp":
            source = self._add(op, "average", "ReadVariableOp", [variable], dtype=kind)
        else:
            source = self._add(op, "average", "Identity", [variable], T=kind)
        if shape is not None and shape != tf.TensorShape(self._read_shape(node)):
            source = self._reshape(op, source, shape, kind)
        wanted = self._graph.shapes.get_tensor_by_name(name).dtype
        if wanted != kind:
            source = self._add(op, "average_cast", "Cast", [source], SrcT=kind, DstT=wanted)
        for frame in self._frames.get(op, ()):
            entered = claim(f"{op}/average_enter", self._taken)
            self._added.append(control_flow.enter(self._index, entered, source, frame, wanted))
            source = entered
        if op in self._branched:  # in its branch because it waits for what is there
            wait = f"^{split(self._index.nodes[op].input[0])[0]}"
            source = self._add(op, "average_here", "Identity", [source, wait], T=wanted)
        return source

    def _reshape(self, op: str, source: str, shape: tf.TensorShape, kind: tf.DType) -> str:
        sizes = claim(f"{op}/average_shape", self._taken)
        value: Array = tf.constant(shape.as_list(), tf.int32).numpy()
        self._added.append(node_defs.constant(sizes, value))
        return self._add(op, "average_reshaped", "Reshape", [source, sizes], T=kind, Tshape=tf.int32)

    def _add(self, op: str, what: str, kind: str, inputs: Sequence[str], **attributes: object) -> str:
        name = claim(f"{op}/{what}", self._taken)
        self._added.append(node_defs.node(name, kind, inputs, **attributes))
        return name


def _list_updates(index: Index, variables: Collection[str]) -> set[str]:
    """List the assignments of variables, and the nodes only grouping assignments."""
    writes = (node for node in index.nodes.values() if node.op in ops.WRITES)
    updates = {node.name for node in writes if root(index, node.name) in variables}
    grew = True
    while grew:
        groups = {
            node.name
            for name in updates
            for node in index.readers(name)
            if node.op == "NoOp" and all(split(source)[0] in updates for source in node.input)
        }
        grew = not groups <= updates
        updates |= groups
    return updates
