"""Recurrences of a source with a graph: live, dead, and in uncalled functions.

`hollow` replaces large constants by variables of their name and shape: a frozen graph has all weights in it,
and every step of a plan copies the graph. Such variables stay unread, as a checkpoint's do. Nodes of the
inlined graph are then described by their attributes, shapes and parameter tensors.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.errors import AmbiguousSourceError, CudnnConvertError, InvalidModelError
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.graph import Graph, extract_nodes
from cudnn_convert.graph.index import PARAMS, AnyGraph, Index, NodeDef, split
from cudnn_convert.graph.passes import inlining
from cudnn_convert.inspection import End, InspectedRecurrence, WeightTensor, weights_only
from cudnn_convert.inspection.weights_only import GraphRecurrence
from cudnn_convert.model import Array, CanonicalParameters, Convention, Mode, Model, Tensor
from cudnn_convert.recurrences import parameter_source, resolve, saved_functions, weight_copies
from cudnn_convert.recurrences.weight_copies import Facts

#: Smaller ones may be sizes, rates or axes, which a plan looks at.
_LARGE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class _Constant:
    """The value of a Const node."""

    node: NodeDef

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim.size for dim in self.node.attr["value"].tensor.tensor_shape.dim)

    @property
    def dtype(self) -> np.dtype[Any]:
        stored: np.dtype[Any] = np.dtype(tf.as_dtype(self.node.attr["dtype"].type).as_numpy_dtype)
        return stored

    def read(self) -> Array:
        return np.asarray(tf.make_ndarray(self.node.attr["value"].tensor))


def hollow(model: Model) -> Model:
    """Replace each large float constant of the model's graph by a variable."""
    graph: AnyGraph = model.graph
    constants: dict[str, Tensor] = {
        node.name: constant
        for node in graph.node
        if node.op == "Const"
        and (constant := _Constant(node)).dtype.kind == "f"
        and math.prod(constant.shape) > _LARGE
    }
    if not constants:
        return model
    node_of_placeholder = (
        node_defs.node(
            node.name,
            "VariableV2",
            node.input,  # what it waits for, all a constant can have
            dtype=tf.as_dtype(constants[node.name].dtype),
            shape=tf.TensorShape(constants[node.name].shape),
        )
        if node.name in constants
        else node
        for node in graph.node
    )
    return replace(
        model, graph=Graph(graph, node_of_placeholder).definition, variables={**model.variables, **constants}
    )


def describe_node(model: Model, index: Index, node: NodeDef, tensors: Any) -> GraphRecurrence:
    """Describe a cuDNN or block node.

    `tensors` are its imported inputs, None if unknown.
    """
    if not tensors:
        with tf.Graph().as_default():
            tensors = [tf.compat.v1.placeholder(tf.float32)] * len(index.data_inputs(node))
    origin = parameter_source.find_parameters(index, node)
    described = (_describe_tensor(model, index, name) for name in origin.leaves)
    leaves = tuple(leaf for leaf in described if leaf is not None)
    if node.op not in ops.CUDNN:
        return _block(node, tensors, leaves)
    facts = resolve.describe_node(node, tensors)
    blob = leaves[0] if leaves and not origin.computed else None
    known = GraphRecurrence(
        facts,
        time_major=resolve.is_time_major(node),
        lengths=node.op == "CudnnRNNV3" and not _are_full(index, node),
        dropout=resolve.dropout(node),
        blob=blob,
        matrices=leaves if origin.computed else (),
        keys=None if facts.projection else _keys(model, facts, origin, blob),
    )
    elements = int(np.prod(blob.shape)) if blob else tensors[PARAMS].shape.num_elements()
    return _with_sizes(known, elements)


def _with_sizes(known: GraphRecurrence, elements: int | None) -> GraphRecurrence:
    """Fill in sizes from canonical keys, or from the length of the parameters."""
    facts, keys = known.facts, known.keys
    if keys is not None:
        sized = replace(facts, layers=keys.layers, units=keys.units, input_size=keys.input_size)
        return replace(known, facts=sized)
    if facts.sizes is None or elements is None:
        return known
    solved = weight_copies.solve_sizes(elements, facts.sizes, facts.input_mode)
    if solved is None:
        return known
    sized = replace(facts, input_size=solved.input_size)
    return replace(known, facts=sized, skip_input=solved.skip_input)


def _keys(
    model: Model, facts: Facts, origin: parameter_source.ParameterRoot, blob: WeightTensor | None
) -> CanonicalParameters | None:
    """Return the canonical set of a node, matched as in `recurrences.weight_copies`."""
    if origin.computed:
        return None
    matches = weight_copies.match_by_scope(
        model, origin.op, facts.mode, facts.directions, projection=facts.projection
    )
    if matches is None and blob is None:
        try:
            return weight_copies.match_by_sizes(model, facts, origin.op, has_blob=False)
        except AmbiguousSourceError:  # the refusal says so
            return None
    return matches


def _describe_tensor(model: Model, index: Index, name: str) -> WeightTensor | None:
    """Describe a variable or constant by metadata alone, or return None for another op.

    It is not read.
    """
    if name in model.variables:
        tensor = model.variables[name]
        return WeightTensor(name, tuple(tensor.shape), tensor.dtype.name)
    node = index.nodes[name]
    if node.op != "Const":
        return None
    return WeightTensor(name, _Constant(node).shape, tf.as_dtype(node.attr["dtype"].type).name)


def _are_full(index: Index, node: NodeDef) -> bool:
    try:
        return resolve.lengths_are_trivial(index, node)
    except KeyError:  # a node of a function on its own
        return False


def _block(node: NodeDef, tensors: Any, leaves: tuple[WeightTensor, ...]) -> GraphRecurrence:
    """Describe a BlockLSTM or LSTMBlockCell by the kernel `[inputs + units, 4*units]`.

    Source: tensorflow v2.21.0 core/ops/rnn_ops.cc. The cell computes one step, `[batch, inputs]`.
    """
    whole = node.op.startswith("BlockLSTM")
    kernel = tensors[4 if whole else 3].shape
    rows, columns = kernel.as_list() if kernel.rank == 2 else (None, None)
    units = None if columns is None else columns // 4
    inputs = None if rows is None or units is None else rows - units
    dtype = np.dtype(tf.as_dtype(node.attr["T"].type).as_numpy_dtype)
    return GraphRecurrence(Facts(node.name, Mode.LSTM, 1, 1, units, dtype, inputs), matrices=leaves)


class InspectedGraph:
    """The inlined graph of a model, with the part imported for recurrences and signatures."""

    def __init__(self, model: Model, more: Sequence[str] = ()) -> None:
        """Inline and import the graph.

        `more` are tensors that `end` may be asked for besides the signatures'.
        """
        self.model = model
        ends = [name for signature in model.signatures.values() for name in signature.tensors]
        graph: AnyGraph = model.graph
        keep = [*ends, *model.initializers] if ends else [node.name for node in graph.node]
        self.graph = _flat(graph, keep)
        self.index = Index(self.graph)
        self.nodes = [
            *parameter_source.recurrences(self.index),
            *parameter_source.cpu_recurrences(self.index),
        ]
        self._keys = weights_only.canonical_tensors(model)
        needed = [*(node.name for node in self.nodes), *(split(name)[0] for name in [*ends, *more])]
        self._seen = _import_needed(self.graph, self.index, needed)

    def end(self, tensor: str) -> End:
        """Return the dtype and shape of a tensor."""
        try:
            assert self._seen is not None
            tensor_of_end = self._seen.shapes.get_tensor_by_name(tensor)
        except (AssertionError, KeyError, ValueError):
            return End(tensor, None, None)
        shape = None if tensor_of_end.shape.rank is None else tuple(tensor_of_end.shape.as_list())
        return End(tensor, tensor_of_end.dtype.name, shape)

    def recurrences(
        self, live: Mapping[str, bool], checked: Collection[str], convention: Convention
    ) -> Iterator[InspectedRecurrence]:
        """Describe each node once, with nodes of uncalled functions last.

        A node counts once even if called several times. `live` by node; `checked` are the nodes whose copies
        of weights are known to agree.
        """
        groups: dict[tuple[str, str], list[Any]] = {}
        for node in self.nodes:
            groups.setdefault(inlining.origin(node) or ("", node.name), []).append(node)
        for (function, _), group in groups.items():
            needed = [live[node.name] for node in group if node.name in live]
            node = next((node for node in group if live.get(node.name)), group[0])
            tensors = None if self._seen is None else resolve.read_inputs(self._seen, node)
            described = _try_describe(self.model, self.index, node, tensors)
            if described is not None:
                keys = described.matrices or (
                    self._keys.get(described.keys.scope, ()) if described.keys else ()
                )
                agree = "" if node.name in checked else self._compare(described, convention)
                raw = (described.blob,) if described.blob else ()
                is_live = True if any(needed) else False if len(needed) == len(group) else None
                shown = replace(described.describe(node), function=function or None, live=is_live)
                yield replace(
                    shown, raw=raw, canonical=keys, copies=weights_only.describe_copies(raw, keys, agree)
                )
        yield from _find_uncalled(self.model, groups)

    def _compare(self, node: GraphRecurrence, convention: Convention) -> str | None:
        blob = self.model.variables.get(node.blob.name) if node.blob else None
        if node.keys is None or blob is None or node.sizes is None:
            return None
        return weights_only.describe_difference(node.keys, blob, node.sizes, node.facts.dtype, convention)


def _try_describe(model: Model, index: Index, node: NodeDef, tensors: Any) -> GraphRecurrence | None:
    """Describe a node, or return None for invalid attributes.

    A refusal reports them.
    """
    try:
        return describe_node(model, index, node, tensors)
    except (CudnnConvertError, ValueError):
        return None


def _find_uncalled(model: Model, known: Collection[tuple[str, str]]) -> Iterator[InspectedRecurrence]:
    """Yield the cuDNN nodes of uncalled functions, found by a call of each function."""
    graph: Any = model.graph
    called = {name for name, _ in known}
    functions = [
        function
        for function in graph.library.function
        if function.signature.name not in called and any(node.op in ops.CUDNN for node in function.node_def)
    ]
    definition = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
    for number, function in enumerate(functions):
        definition.node.extend(saved_functions.call(f"call_{number}", function, ()))
    names = [f"call_{number}" for number in range(len(functions))]
    try:
        flattened = inlining.inline_functions(definition, names, origins=True) if names else definition
        flat = Graph.of(flattened)
        nodes = [(node, resolve.read_inputs(flat, node)) for node in parameter_source.recurrences(flat.index)]
    except InvalidModelError:
        return
    wanted = {function.signature.name for function in functions}
    for node, tensors in nodes:
        function, name = inlining.origin(node) or ("", "")
        described = _try_describe(model, flat.index, node, tensors)
        if function in wanted and described is not None:
            shown = described.describe(node)
            yield replace(shown, name=f"{function}/{name}", function=function, live=False)


def _flat(graph: AnyGraph, keep: Sequence[str]) -> Any:
    """Return the inlined graph, or the graph as given if unreadable by TensorFlow."""
    try:
        return inlining.flatten(graph, keep, origins=True)
    except InvalidModelError:
        return graph


def _import_needed(graph: AnyGraph, index: Index, ops: Sequence[str]) -> Graph | None:
    """Import the nodes for `ops`, or return None for ops unknown to TensorFlow."""
    needed = extract_nodes(graph, index.ancestors(ops))
    try:
        _ = needed.shapes
    except InvalidModelError:
        return None
    return needed
