"""The graph taken and returned by passes: immutable nodes, lookups, and the imported form.

A pass copies the nodes that it changes, and shares all others with the graph before. `copy_graph` makes a
GraphDef where TensorFlow needs one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import node_defs, ops, safe_ops
from cudnn_convert.graph.index import (
    AnyGraph,
    AttrValue,
    FunctionDef,
    FunctionDefLibrary,
    GraphDef,
    Index,
    NodeDef,
    all_nodes,
    callees,
    claim,
    library,
    reachable_functions,
    split,
)
from cudnn_convert.graph.node_defs import FLOATS, ON_CPU, copy_node, identity, placeholder, with_inputs
from cudnn_convert.private import tf_private
from cudnn_convert.text import first_line


class Graph:
    """An immutable graph, with lookups computed only once.

    It is read as a GraphDef is. Its nodes and library are shared with other graphs.
    """

    def __init__(
        self,
        source: AnyGraph,
        nodes: Iterable[NodeDef] | None = None,
        functions: Iterable[FunctionDef] | None = None,
    ) -> None:
        """Take `nodes` and `functions` where given, the rest from `source`.

        With neither, `source` is a GraphDef, and `definition` is that one.
        """
        self.node: Sequence[NodeDef] = source.node if nodes is None else tuple(nodes)
        self.library: FunctionDefLibrary = source.library
        self.versions = source.versions
        if functions is not None:
            gradient = source.library.gradient
            self.library = function_pb2.FunctionDefLibrary(function=functions, gradient=gradient)
        self._is_source = nodes is None and functions is None
        self._source: Any = source

    @classmethod
    def of(cls, graph: AnyGraph) -> Graph:
        """Return a Graph unchanged, or make a Graph of a GraphDef."""
        return graph if isinstance(graph, Graph) else cls(graph)

    @cached_property
    def definition(self) -> GraphDef:
        """The graph as a GraphDef, for reading only."""
        return self._source if self._is_source else copy_graph(self)

    @cached_property
    def index(self) -> Index:
        """The graph's nodes by name, with consumers."""
        return Index(self)

    @cached_property
    def shapes(self) -> tf.Graph:
        """The graph as imported by `import_checked`, for static shapes and dtypes."""
        return import_checked(self)

    @cached_property
    def first_iteration(self) -> tf.Graph:
        """The graph as in `shapes`, with static shapes of the first iteration inside loops.

        TensorFlow imports a loop variable without a shape, because the next iteration may change it.
        """
        initial = dict[str, NodeDef]()
        for merge in self.node:
            for name in self.index.data_inputs(merge) if merge.op in ops.MERGES else ():
                enter = self.index.nodes[split(name)[0]]
                if enter.op in ops.ENTERS:  # Enter itself has a shape only if it is constant
                    initial[merge.name] = identity(merge.name, enter.input[0], merge.attr["T"].type)
        return import_checked(replace_nodes(self, initial)) if initial else self.shapes

    @cached_property
    def functions(self) -> dict[str, FunctionDef]:
        """The functions of the graph's library by name."""
        return library(self)


def copy_graph(graph: AnyGraph, target: GraphDef | None = None) -> GraphDef:
    """Copy a graph into a new GraphDef, or into the empty GraphDef `target`."""
    result: GraphDef = graph_pb2.GraphDef() if target is None else target
    result.node.extend(graph.node)
    result.library.CopyFrom(graph.library)
    result.versions.CopyFrom(graph.versions)
    return result


def replace_nodes(graph: AnyGraph, changes: Mapping[str, NodeDef], added: Iterable[NodeDef] = ()) -> Graph:
    """Return `graph` with the nodes named in `changes` replaced, and `added` appended."""
    added = [*added]
    if not changes and not added:
        return Graph.of(graph)
    return Graph(graph, [*(changes.get(item.name, item) for item in graph.node), *added])


def rewrite_nodes(graph: Graph, rewrite: Callable[[NodeDef, set[str]], Iterable[NodeDef]]) -> Graph:
    """Replace each node by the nodes from `rewrite`, if any.

    The last node has the replaced node's name, the others are appended. `rewrite` takes the node and the
    names that are taken, to which it adds those of its nodes.
    """
    changes, added, taken = dict[str, NodeDef](), list[NodeDef](), {node.name for node in graph.node}
    for node in graph.node:
        if nodes := [*rewrite(node, taken)]:
            *before, changes[node.name] = nodes
            added += before
    return replace_nodes(graph, changes, added)


def expand_nodes(graph: Graph, expanded: Mapping[str, Iterable[NodeDef]]) -> Graph:
    """Return `graph` with several nodes in the place of each node named in `expanded`.

    Returns `graph` itself where `expanded` is empty.
    """
    if not expanded:
        return graph
    return Graph(graph, [new for node in graph.node for new in expanded.get(node.name, [node])])


def extract_nodes(graph: AnyGraph, names: Iterable[str]) -> Graph:
    """Return the subgraph of `names` in graph order.

    Control inputs from outside it are left out.
    """
    wanted = set(names)
    nodes = []
    for original in graph.node:
        if original.name in wanted:
            inputs = [name for name in original.input if not name.startswith("^") or name[1:] in wanted]
            nodes.append(with_inputs(original, inputs))
    return Graph(graph, nodes)


def prune(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Return the part of `graph` needed by the tensors `outputs`; `graph` itself if all."""
    needed = graph.index.ancestors(split(name)[0] for name in outputs)
    return graph if len(needed) == len(graph.node) else extract_nodes(graph, needed)


def drop_uncalled_functions(graph: Graph) -> Graph:
    """Return `graph` with only the functions called by nodes; gradient functions are removed.

    TensorFlow may call a function in the place of another that says the same of itself
    (v2.21.0 core/grappler/optimizers/implementation_selector.cc): such ones stay.
    """
    functions = graph.functions
    twins = {
        name: each.attr[safe_ops.TWINS].s for name, each in functions.items() if safe_ops.TWINS in each.attr
    }
    called: set[str] = set()
    names = {name for node in graph.node for name in callees(node)}
    while more := reachable_functions(functions, names) - called:
        called |= more
        alike = {twins[name] for name in called if name in twins}
        names = {name for name, same in twins.items() if same in alike}
    if len(called) == len(functions) and not graph.library.gradient:
        return graph
    kept = [each for name, each in functions.items() if name in called]
    result = Graph(graph, graph.node)
    result.library = function_pb2.FunctionDefLibrary(function=kept)
    return result


#: Attributes that name other nodes, or give shapes that TensorFlow trusts instead of inferring them.
_NOTES: Final = ("_class", "_output_shapes")


def strip_devices(graph: AnyGraph, target: GraphDef | None = None) -> GraphDef:
    """Return a copy stripped of devices, colocation and noted output shapes.

    They name machines and nodes that may not exist here. `ON_CPU` stays. `target` is as for `copy_graph`.
    """
    result = copy_graph(graph, target)
    for inner in all_nodes(result):
        _strip_device(inner)
    return result


def _strip_device(inner: NodeDef) -> None:
    inner.device = ON_CPU if inner.device == ON_CPU else ""
    for key in _NOTES:
        inner.attr.pop(key, None)


def share_without_devices(graph: AnyGraph) -> Graph:
    """Strip the nodes of a graph as `strip_devices` does; copy only changed nodes.

    The graph's functions stay as they are.
    """
    changes = {}
    for node in graph.node:
        if node.device not in ("", ON_CPU) or any(key in node.attr for key in _NOTES):
            changes[node.name] = copy_node(node)
            _strip_device(changes[node.name])
    return replace_nodes(graph, changes)


def graph_floats_as(graph: GraphDef, dtype: tf.DType, kinds: Collection[tf.DType] = FLOATS) -> None:
    """Change each float type of `kinds` to `dtype`, in functions too, in place."""
    others = {kind.as_datatype_enum for kind in kinds}
    for function in graph.library.function:
        for argument in (*function.signature.input_arg, *function.signature.output_arg):
            argument.type = dtype.as_datatype_enum if argument.type in others else argument.type
    floats_as((value for node in all_nodes(graph) for value in node.attr.values()), dtype, kinds)


def floats_as(attributes: Iterable[AttrValue], dtype: tf.DType, kinds: Collection[tf.DType] = FLOATS) -> None:
    """Change each float type and float constant of `kinds` in `attributes` to `dtype`, in place."""
    others, wanted = {kind.as_datatype_enum for kind in kinds if kind != dtype}, dtype.as_datatype_enum
    for value in attributes:
        if value.type in others:  # to set it where it is not set would unset what is
            value.type = wanted
        for k, kind in enumerate(value.list.type):
            value.list.type[k] = wanted if kind in others else kind
        if value.tensor.dtype in others:
            array = tf.make_ndarray(value.tensor).astype(dtype.as_numpy_dtype)
            value.tensor.CopyFrom(tf.make_tensor_proto(array))


def import_graph(graph: AnyGraph) -> tf.Graph:
    """Import a graph into TensorFlow, for static shapes and dtypes.

    Raises ValueError on unknown ops.
    """
    scratch = tf.Graph()
    with scratch.as_default():
        tf.import_graph_def(_disable_evaluation(strip_devices(graph)), name="")
    return scratch


def open_session(graph: tf.Graph, config: Any = None, *, on_cpu: bool = True) -> Any:
    """Open a Session of TensorFlow 1 over a graph, with the CPU alone where `on_cpu`.

    A GPU computes float32 with 10 bits of mantissa (TF32), and runs what a CPU has no kernel for.
    """
    config = config or tf.compat.v1.ConfigProto()
    if on_cpu:
        config.device_count["GPU"] = 0
    return tf.compat.v1.Session(graph=graph, config=config)


def _disable_evaluation(graph: GraphDef) -> GraphDef:
    """Change `graph` in place to keep impure ops from running during TensorFlow's import.

    Their first inputs become defaults of placeholders, which TensorFlow does not take for constants.
    """
    taken = {item.name for item in graph.node}
    for item in list(safe_ops.ops_run_by_import(graph.node)):
        if (dtype := _first_input(item)) is None:
            expected = "nodes that hold or take their values"
            raise InvalidModelError(item.name, expected=expected, found=f"{item.op}, which reads them")
        name = claim(f"{item.name}/unevaluated", taken)
        source = [item.input[0]]
        graph.node.append(
            node_defs.node(name, "PlaceholderWithDefault", source, dtype=dtype, shape=tf.TensorShape(None))
        )
        item.input[0] = name
    return graph


def _first_input(node_def: NodeDef) -> tf.DType | None:
    """Return the dtype of a node's first input.

    Returns None for a node without inputs.
    """
    for argument in tf_private.find_op(node_def.op).input_arg:
        types = node_def.attr[argument.type_list_attr].list.type if argument.type_list_attr else ()
        many = len(types) if argument.type_list_attr else node_def.attr[argument.number_attr].i
        if not (argument.type_list_attr or argument.number_attr) or many:
            kind = argument.type or (types[0] if types else node_def.attr[argument.type_attr].type)
            return tf.as_dtype(kind)
    return None


def unknown(graph: AnyGraph) -> list[NodeDef]:
    """Return the nodes with ops unknown to TensorFlow, such as ops of another package."""
    functions = library(graph)
    return [item for item in graph.node if tf_private.find_op(item.op) is None and item.op not in functions]


def _replace_unknown_ops(graph: AnyGraph) -> Graph:
    """Replace ops unknown to TensorFlow by placeholders, if an attribute gives the dtype.

    The rest of the graph then has shapes and dtypes; whether such an op can stay is checked later.
    """
    stand_ins = {
        item.name: placeholder(item.name, tf.as_dtype(dtype), tf.TensorShape(None))
        for item in unknown(graph)
        if (dtype := item.attr["T"].type or item.attr["dtype"].type)
    }
    return replace_nodes(graph, stand_ins)


def import_checked(graph: AnyGraph) -> tf.Graph:
    """Import a graph from a file, with unknown ops allowed.

    A graph with such ops is not to be run. Raises InvalidModelError where TensorFlow refuses it.
    """
    try:
        return import_graph(_replace_unknown_ops(graph))
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as cause:
        actual = first_line(cause)
        raise InvalidModelError(
            "graph", expected=f"nodes that TensorFlow {tf.__version__} can import", found=actual
        ) from cause
