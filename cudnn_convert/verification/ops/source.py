"""The source's graph, with all tensors readable, where any tensor can be fed.

Each tensor that the artifact has under its name gets a default: its readers read that, which is its value
unless it is fed. One session thus runs the whole, and every region by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.graph import control_flow, node_defs, ops, session
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.index import Index, split, tensor, unique, walk
from cudnn_convert.graph.session import checkpoint_key
from cudnn_convert.model import Array
from cudnn_convert.plan import Plan
from cudnn_convert.verification import effort, graph_judge
from cudnn_convert.verification.ids import SHAPES
from cudnn_convert.verification.judges import Draw
from cudnn_convert.verification.ops.duplicates import find_duplicates
from cudnn_convert.verification.ops.graphs import CHOICES, TensorGraph

#: Give sizes, which no value changes.
_SIZES: Final = frozenset("Shape ShapeN Size".split())
#: What integers may be varied for: other ops make sizes, places and counts of them.
_FREE: Final = frozenset(
    "Const Identity Cast Add AddV2 Sub Mul Neg Abs Sign Maximum Minimum Greater GreaterEqual Less "
    "LessEqual Equal NotEqual Select SelectV2 LogicalAnd LogicalOr LogicalNot All Any Sum Max Min Mean Prod "
    "TopKV2 TopK ArgMax ArgMin AddN Square SquaredDifference ClipByValue ExpandDims Squeeze Transpose Pack "
    "ConcatV2 Relu FloorDiv FloorMod Mod BitwiseAnd BitwiseOr BitwiseXor Unique UniqueV2 Round Rint Floor "
    "Ceil Cumsum Switch Merge".split()
)
#: Ops that compare their inputs with one another.
COMPARISONS: Final = frozenset(
    "Greater GreaterEqual Less LessEqual Equal NotEqual Maximum Minimum ClipByValue".split()
)
#: Comparisons that decide, which are to be seen both ways.
GATES: Final = COMPARISONS - {"Maximum", "Minimum", "ClipByValue"}
_LOOPS: Final = ops.NEXT_ITERATIONS | {"While", "StatelessWhile"}
#: Ops that make a choice of an integer.
_DECIDING: Final = GATES | {"Case", "StatelessCase"}
_FINITENESS: Final = frozenset({"IsInf", "IsNan", "IsFinite"})
_REDUCTIONS: Final = frozenset("Sum Mean Max Min Prod All Any ArgMax ArgMin EuclideanNorm".split())
_BLOCK_LSTMS: Final = ops.BLOCK_LSTMS | ops.BLOCK_CELLS
#: Ops that a region may hide behind others: those of `CHOICES` and products of matrices.
_HIDDEN: Final = CHOICES | {"MatMul", "BatchMatMul", "BatchMatMulV2", "Conv2D", "Einsum"}
_LIMITED: Final = tf.compat.v1.RunOptions(timeout_in_ms=effort.SOURCE_MILLISECONDS)
_TABLES: Final = frozenset({"Gather", "GatherV2", "ResourceGather"})
#: Ops between an index and the table that picks by it.
_SHAPING: Final = frozenset("Cast Reshape ExpandDims Squeeze Transpose".split())
#: Give no float below zero.
_POSITIVE: Final = frozenset("Abs Relu Relu6 Square Exp Sigmoid Softmax Softplus Sqrt Rsqrt L2Loss".split())
#: Give only what they are given.
_PICKING: Final = _SHAPING - {"Cast"} | {
    "Identity",
    "MaxPool",
    "Max",
    "Min",
    "GatherV2",
    "Slice",
    "StridedSlice",
}
#: Move values, and how many of their inputs those are; all of others.
_MOVING: Final = frozenset({"ConcatV2", "ReverseV2", "Transpose", "Reshape", "Squeeze", "ExpandDims", "Pack"})
_READ: Final = {"ReverseV2": 1, "Transpose": 1, "Reshape": 1, "ExpandDims": 1}


@dataclass(frozen=True, slots=True)
class Region:
    """The source's nodes behind a tensor, with ops, and the tensors read by the nodes."""

    sink: str
    nodes: frozenset[str]
    kinds: tuple[str, ...]
    leaves: frozenset[str]


class FedSource:
    """An open source; `stand_ins` maps feedable tensors to placeholders.

    `memory` are its variables that go in and out.
    """

    def __init__(
        self,
        running: Any,
        graph: TensorGraph,
        stand_ins: Mapping[str, str],
        memory: graph_judge.Memory,
        ends: Mapping[str, str],
    ) -> None:
        self.graph, self._running, self._stand_ins = graph, running, stand_ins
        self._memory, self._ends = memory, ends
        self._calls: dict[Any, Callable[..., Any]] = {}
        self._read_by: dict[str, dict[str, list[str]]] = {}

    def run(
        self,
        wanted: Sequence[str],
        feed: Mapping[str, Array],
        cuts: Mapping[str, Array],
        *,
        limited: bool = False,
    ) -> list[Array]:
        """Compute tensors from given values of inputs and cuts.

        `limited`: for 20 seconds at most. Loops of functions may go round for ever on values of no run.
        """
        variables = {name: self.graph.constant(name) for name in wanted if self._is_variable(name)}
        if variables:  # their tensors are handles
            names = [name for name in wanted if name not in variables]
            values = variables | dict(zip(names, self.run(names, feed, cuts, limited=limited), strict=True))
            return [np.asarray(values[name]) for name in wanted]
        if not wanted:
            return []
        starts = {name: value for name, value in feed.items() if name in self._memory.starts}
        if starts:
            self._memory.set(starts)
        known = self.graph.index.nodes.keys()
        fed = {name: value for name, value in feed.items() if name not in starts and split(name)[0] in known}
        fed |= {self._stand_ins[name]: value for name, value in cuts.items()}
        key = (tuple(wanted), tuple(fed))
        if key not in self._calls:
            self._calls[key] = self._running.make_callable([*wanted], [*fed], accept_options=True)
        answers = self._calls[key](*fed.values(), options=_LIMITED if limited else None)
        return [np.asarray(value) for value in answers]

    def _is_variable(self, root: str) -> bool:
        return root not in self.graph.fed and self.graph.node(root).op in ops.VARIABLES

    def root(self, name: str) -> str:
        """Return the root of an output's tensor.

        For what a variable holds next, it is what is written to the variable.
        """
        return self.graph.root(self._ends.get(name, name))

    def record(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Return the values of all feedable tensors on a feed."""
        names = [*self._stand_ins]
        return dict(zip(names, self.run(names, feed, {}), strict=True))

    def region(self, sink: str, cuts: Collection[str]) -> Region:
        """Return the region between a tensor and the nearest cuts and inputs."""
        graph, leaves = self.graph, set[str]()

        def onward(name: str) -> Iterator[str]:
            node = graph.index.nodes[name]
            for read in (*graph.index.data_inputs(node), *graph.list_predicates(node)):
                root = graph.root(read)
                if root in cuts or root in graph.fed:
                    leaves.update([] if node.op in SHAPES else [root])
                else:
                    yield split(root)[0]

        nodes = frozenset(walk([split(sink)[0]], onward))
        kinds = tuple(str(graph.index.nodes[name].op) for name in nodes)
        return Region(sink, nodes, kinds, frozenset(leaves))

    def is_recurrent(self, region: Region) -> bool:
        """Return True if a region has a recurrence."""
        return not (_BLOCK_LSTMS.isdisjoint(region.kinds) and region.nodes.isdisjoint(self.graph.given))

    def moves_recurrence(self, root: str) -> bool:
        """Return True if a tensor only has recurrence outputs, moved to new places."""
        seen, todo, is_found = set[str](), [root], False
        while todo:
            name = self.graph.root(todo.pop())
            if name in seen or self.graph.is_constant(name):
                continue
            seen.add(name)
            if split(name)[0] in self.graph.given:
                is_found = True
                continue
            if name in self.graph.fed or self.graph.node(name).op not in _MOVING:
                return False
            todo += self.graph.index.data_inputs(self.graph.node(name))[: _READ.get(self.graph.node(name).op)]
        return is_found

    def is_bound(self, region: Region) -> bool:
        """Return True if a region gets the values of a run alone.

        What goes round amplifies what is fed, and may go round for ever; fused LSTMs of TensorFlow 1 take
        small numbers for zero.
        """
        return not (_LOOPS | _BLOCK_LSTMS).isdisjoint(region.kinds)

    def hides(self, region: Region) -> bool:
        """Return True if a region has matrix products or choices beside a recurrence."""
        nodes = [self.graph.index.nodes[name] for name in region.nodes]
        return any(each.op in _HIDDEN for node in nodes for each in (node, *self.graph.list_inner(node)))

    def chooses(self, region: Region) -> bool:
        """Return True if a region has a branch, or picks between values."""
        return not CHOICES.isdisjoint(region.kinds)

    def list_gates(self) -> list[str]:
        """Return the comparisons made once, each to be seen both ways."""
        nodes = self.graph.index.nodes
        return [f"{name}:0" for name in sorted(self.graph.certain) if nodes[name].op in GATES]

    def list_sizes(self, gate: str) -> list[int]:
        """Return the whole numbers possibly compared with a size by a gate."""
        region = self.region(gate, ())
        if SHAPES.isdisjoint(region.kinds):
            return []
        return [int(each) for each in self._list_compared(region)[0] if each >= 1 and each == int(each)]

    def is_free(self, region: Region, leaf: str) -> bool:
        """Return True if integers from a leaf may be any, because only numbers follow.

        What is compared with them is a bool. Sizes of tensors are never any.
        """
        if self._is_size(leaf):
            return False
        index, seen, todo = self.graph.index, set[str](), [leaf]
        while todo:
            name = todo.pop()
            for node in self._readers(region).get(name, ()):
                if node in seen or index.nodes[node].op in _DECIDING | SHAPES:
                    continue
                if index.nodes[node].op not in _FREE:
                    return False
                seen.add(node)
                todo += [f"{node}:{k}" for k in range(2)]
        return True

    def is_positive(self, leaf: str) -> bool:
        """Return True if all values of a leaf are at least zero for any feed."""
        name = leaf
        while split(name)[0] in self.graph.index.nodes and name not in self.graph.fed:
            node = self.graph.node(name)
            if node.op not in _PICKING:
                return node.op in _POSITIVE
            name = self.graph.root(self.graph.index.data_inputs(node)[0])
        return False

    def _is_size(self, leaf: str) -> bool:
        """Return True if a tensor is made of sizes of tensors, and of constants."""
        kinds, seen, todo = set[str](), set[str](), [leaf]
        while todo:
            name = self.graph.root(todo.pop())
            if name in self.graph.fed or split(name)[0] in self.graph.given:
                return False
            node = self.graph.node(name)
            kinds.add(node.op)
            if name not in seen and node.op not in SHAPES:
                seen.add(name)
                todo += self.graph.index.data_inputs(node)
        return not kinds.isdisjoint(_SIZES) and kinds.isdisjoint(ops.VARIABLES | ops.ALL_PLACEHOLDERS)

    def _readers(self, region: Region) -> dict[str, list[str]]:
        """Return the nodes of a region by root read."""
        if region.sink not in self._read_by:
            readers: dict[str, list[str]] = {}
            for node in region.nodes:
                for name in self.graph.index.data_inputs(self.graph.index.nodes[node]):
                    readers.setdefault(self.graph.root(name), []).append(node)
            self._read_by[region.sink] = readers
        return self._read_by[region.sink]

    def list_constants(self, region: Region) -> list[float]:
        """Return the constants beside values in a region, with compared constants first."""
        first, others = self._list_compared(region)
        return [*first, *(each for each in others if each not in first)][: effort.MOST_CONSTANTS]

    def _list_compared(self, region: Region) -> tuple[dict[float, None], dict[float, None]]:
        """Return the constants compared in a region, and the remaining constants."""
        first, others = dict[float, None](), dict[float, None]()
        for name in sorted(region.nodes):
            node = self.graph.index.nodes[name]
            for read in self.graph.index.data_inputs(node):
                root = self.graph.root(read)
                if self.graph.is_constant(root):
                    kept = first if node.op in COMPARISONS else others
                    kept.update(dict.fromkeys(self._list_small(self.graph.node(root))))
            first.update(dict.fromkeys(_find_step(node)))
            for inner in self.graph.list_inner(node):  # that compares what it is handed
                first.update(dict.fromkeys(self._list_small(inner)))
        return first, others

    def tests_finiteness(self, region: Region) -> bool:
        """Return True if a region tests for infinities or NaN."""
        return not _FINITENESS.isdisjoint(region.kinds)

    def reduces(self, region: Region) -> bool:
        """Return True if a region reduces a possibly empty axis to a value."""
        return not _REDUCTIONS.isdisjoint(region.kinds)

    def _list_small(self, node: Any) -> list[float]:
        """Return the values of a small constant; long constants are ignored."""
        if node.op != "Const" or len(value := self._small(node).ravel()) > effort.MOST_LIMIT_VALUES:
            return []
        return [float(each) for each in value if np.isfinite(each)]

    def _small(self, node: Any) -> Array:
        """Return the values of a small constant of numbers, else an empty array."""
        shape = [size.size for size in node.attr["value"].tensor.tensor_shape.dim]
        if node.op == "Const" and np.prod(shape) <= effort.MOST_CONSTANTS:
            value = np.asarray(tf.make_ndarray(node.attr["value"].tensor))
            if value.dtype.kind in "fiu":
                return value
        return np.zeros(0)

    def rows(self, region: Region) -> dict[str, int]:
        """Return the number of rows of each table, by the leaf used as index."""
        rows: dict[str, int] = {}
        for name in region.nodes:
            node = self.graph.index.nodes[name]
            if node.op not in _TABLES:
                continue
            table, at, *axis = self.graph.index.data_inputs(node)
            if axis and np.any(self._small(self.graph.node(self.graph.root(axis[0]))) != 0):
                continue
            root = self.graph.root(at)
            while root not in region.leaves and self.graph.node(root).op in _SHAPING:
                root = self.graph.root(self.graph.index.data_inputs(self.graph.node(root))[0])
            shape = self._shape(self.graph.root(table))
            if root in region.leaves and shape:
                rows[root] = min(rows.get(root, shape[0]), shape[0])
        return rows

    def _shape(self, root: str) -> list[int]:
        node = self.graph.node(root)
        if node.op == "Const":
            return [int(size.size) for size in node.attr["value"].tensor.tensor_shape.dim]
        return [int(size.size) for size in node.attr["shape"].shape.dim] if node.op in ops.VARIABLES else []

    @cached_property
    def order(self) -> dict[str, int]:
        """The number of each node, larger than the numbers of the node's inputs outside loops."""
        return {node.name: number for number, node in enumerate(self.graph.index.sort())}


def _find_step(node: Any) -> list[float]:
    """Return the distance between the rounded numbers of a fake quantization."""
    if node.op != "FakeQuantWithMinMaxArgs":
        return []
    given = {name: node.attr[name] for name in ("min", "max", "num_bits") if name in node.attr}
    low, high = given["min"].f if "min" in given else -6.0, given["max"].f if "max" in given else 6.0
    return [(high - low) / (2 ** (given["num_bits"].i if "num_bits" in given else 8) - 1)]


@contextmanager
def open_source(plan: Plan, wanted: Collection[str], *, trust: bool) -> Iterator[FedSource]:
    """Open the source of a plan, where tensors in `wanted` may be fed.

    Only those that one run computes once may be fed. Raises UnsupportedModelError where running it would run
    more than arithmetic.
    """
    definition, functions = graph_judge.build_graph(plan, np.float64, [], Draw(), trust=trust)
    for node in definition.node:
        if node.op == "Assert":  # refuses values, and gives none
            node.CopyFrom(node_defs.node(node.name, "NoOp", [name for name in node.input if name[0] == "^"]))
    written = _find_written(plan, Index(definition))
    ends = [written.get(name, name) for name in plan.signature.tensors]
    ends += [write.op for state in plan.states for write in state.state.writes]
    pruned = prune(Graph(definition), [*ends, *plan.initializers])
    duplicates = find_duplicates(Index(pruned))
    graph = TensorGraph(
        pruned,
        frozenset(map(tensor, plan.signature.inputs.values())),
        {own.node: () for own in plan.recurrences},
        lambda node: plan.model.variables[checkpoint_key(node)].read(),
        roots={**duplicates},
    )
    kinds = _find_types(graph, plan, wanted)
    stand_ins = {root: unique(f"fed/{number}", graph.index.nodes) for number, root in enumerate(kinds)}
    opened = _add_defaults(graph, kinds, stand_ins, duplicates)
    with session.session(
        opened, plan.model.variables, initializers=plan.initializers, assets=plan.model.assets, optimize=False
    ) as running:
        memory = graph_judge.Memory(running, plan)
        fed = {root: f"{name}:0" for root, name in stand_ins.items()}
        yield FedSource(running, graph, fed, memory, written)
    del functions  # TensorFlow's registry holds them weakly: they must outlive the session


def _find_written(plan: Plan, index: Index) -> dict[str, str]:
    """Map the name of a variable's next value to the tensor written to the variable."""
    written = {}
    for state in plan.states:
        writes = [index.nodes[write.op] for write in state.state.writes if write.op in index.nodes]
        if state.end is not None and len(writes) == 1 and writes[0].op in ops.OVERWRITES:
            written[state.end] = tensor(writes[0].input[1])
    return written


def _find_types(graph: TensorGraph, plan: Plan, wanted: Collection[str]) -> dict[str, tf.DType]:
    """Return the roots of feedable tensors with types.

    The tensors are computed once, and are no handles.
    """
    shapes = Graph.of(plan.whole).shapes
    kinds: dict[str, tf.DType] = {}
    for name in sorted(wanted):
        known = graph.index.nodes.keys() & {split(name)[0]} & graph.certain
        root = graph.root(name) if known else ""
        if not root or root in graph.fed or graph.is_constant(root) or split(root)[0] not in graph.certain:
            continue
        if split(root)[1] >= len(shapes.get_operation_by_name(split(root)[0]).outputs):
            continue  # an update gives nothing
        kind = shapes.get_tensor_by_name(root).dtype
        if kind == kind.base_dtype and kind not in (tf.resource, tf.variant):
            kinds[root] = kind
    return kinds


def _add_defaults(
    graph: TensorGraph,
    kinds: Mapping[str, tf.DType],
    stand_ins: Mapping[str, str],
    duplicates: Mapping[str, str],
) -> Any:
    """Return the graph with a default for some roots, read by the roots' readers.

    The readers of duplicates read the default too. What reads from within a loop reads what entered it. What
    reads from within a branch reads its Switch: a side that is not taken has no value, and its Merge takes
    the other's.
    """
    around = control_flow.frames(graph.index)
    nodes = []
    for node in graph.graph.node:
        inputs = [
            stand_ins.get(duplicates.get(tensor(read), tensor(read)), read)
            if not read.startswith("^") and not around.get(split(read)[0])
            else read
            for read in node.input
        ]
        nodes.append(node_defs.with_inputs(node, inputs))
    for root, kind in kinds.items():
        shape = tf.TensorShape(None)
        nodes.append(
            node_defs.node(stand_ins[root], "PlaceholderWithDefault", [root], dtype=kind, shape=shape)
        )
    return Graph(graph.graph, nodes)
