"""Makes and copies nodes, holds graphs, and asks TensorFlow for shapes and constant values.

A `Graph` is what passes take and return: nodes that do not change, shared with the graphs it was made from,
and cached lookups. A GraphDef is made of it only where TensorFlow needs one.

Constant folding computes a tensor that depends on no input. Only pure ops run, and only small subgraphs:
it is for predicates, dropout rates and shapes, not for weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2, node_def_pb2

from cudnn_convert.errors import InvalidModelError, first_line
from cudnn_convert.graph import ops, safe_ops
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
    tensor,
    walk,
)
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private

#: The device that every machine has under the same name.
ON_CPU: Final = "/device:CPU:0"
FLOATS: Final = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def node(name: str, op: str, inputs: Iterable[str] = (), **attributes: Any) -> NodeDef:
    """Make a NodeDef.

    An attribute is a dtype, a shape, a bool, an int, a string, an array or a list of dtypes.
    """
    result: NodeDef = node_def_pb2.NodeDef(name=name, op=op, input=list(inputs))
    for key, value in attributes.items():
        result.attr[key].CopyFrom(_attribute(value))
    return result


def _attribute(value: Any) -> AttrValue:
    attr: AttrValue = tf.compat.v1.AttrValue()
    match value:
        case tf.DType():
            attr.type = value.as_datatype_enum
        case tf.TensorShape():
            attr.shape.CopyFrom(value.as_proto())
        case bool():
            attr.b = value
        case int():
            attr.i = value
        case str():
            attr.s = value.encode()
        case list():
            attr.list.type.extend(dtype.as_datatype_enum for dtype in value)
        case np.ndarray():
            attr.tensor.CopyFrom(tf.make_tensor_proto(value))
        case _:
            raise TypeError(f"no attribute form for {type(value).__name__}")
    return attr


def constant(name: str, value: Array, *, control: Iterable[str] = ()) -> NodeDef:
    """A Const node."""
    return node(name, "Const", control, dtype=tf.as_dtype(value.dtype), value=value)


def string_constant(name: str, values: list[str], *, scalar: bool = False) -> NodeDef:
    """A Const of strings, `[len(values)]` or, for one value, a scalar."""
    strings = np.array(values[0] if scalar else values, dtype=object)
    return node(name, "Const", dtype=tf.string, value=strings)


def placeholder(name: str, dtype: tf.DType, shape: tf.TensorShape) -> NodeDef:
    """A Placeholder node."""
    return node(name, "Placeholder", dtype=dtype, shape=shape)


def identity(name: str, source: str, dtype: int, *, control: Iterable[str] = ()) -> NodeDef:
    """An Identity node; `dtype` is the enum's number, as NodeDefs hold it."""
    return node(name, "Identity", [source, *control], T=tf.as_dtype(dtype))


def copy_node(
    original: NodeDef, *, name: str | None = None, op: str | None = None, inputs: Iterable[str] | None = None
) -> NodeDef:
    """Copy a node, for changes; `name`, `op` and `inputs` replace the original's if given."""
    result: NodeDef = node_def_pb2.NodeDef()
    result.CopyFrom(original)
    result.name = original.name if name is None else name
    result.op = original.op if op is None else op
    if inputs is not None:
        result.ClearField("input")
        result.input.extend(inputs)
    return result


def with_inputs(node: NodeDef, inputs: Sequence[str]) -> NodeDef:
    """Return a copy of a node with `inputs`, or the node itself if equal."""
    return node if inputs == [*node.input] else copy_node(node, inputs=inputs)


def redirect(node: NodeDef, moved: Mapping[str, str]) -> NodeDef:
    """Replace each input `op:k` that is a key of `moved`, as `with_inputs` does."""
    return with_inputs(node, [moved.get(tensor(name), name) for name in node.input])


class Graph:
    """A graph that does not change once made, with lookups that are computed once.

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
        """Return `graph` if it is a Graph, else a Graph of the GraphDef."""
        return graph if isinstance(graph, Graph) else cls(graph)

    @cached_property
    def definition(self) -> GraphDef:
        """The graph as a GraphDef, which must not be changed."""
        return self._source if self._is_source else copy_graph(self)

    @cached_property
    def index(self) -> Index:
        """The graph's nodes by name, and their consumers."""
        return Index(self)

    @cached_property
    def shapes(self) -> tf.Graph:
        """The graph as imported by `import_checked`, for static shapes and dtypes."""
        return import_checked(self)

    @cached_property
    def first_iteration(self) -> tf.Graph:
        """The graph as `shapes` has it, with static shapes of the first iteration inside loops.

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


def extract_nodes(graph: AnyGraph, names: Iterable[str]) -> Graph:
    """Return the subgraph of `names` in graph order, without control inputs from outside it."""
    wanted = set(names)
    nodes = []
    for original in graph.node:
        if original.name in wanted:
            inputs = [name for name in original.input if not name.startswith("^") or name[1:] in wanted]
            nodes.append(with_inputs(original, inputs))
    return Graph(graph, nodes)


def prune(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Return the part of `graph` that the tensors `outputs` need; `graph` itself if all."""
    needed = graph.index.ancestors(split(name)[0] for name in outputs)
    return graph if len(needed) == len(graph.node) else extract_nodes(graph, needed)


def drop_uncalled_functions(graph: Graph) -> Graph:
    """Return `graph` without the functions that its nodes do not call, and without functions of gradients.

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
    kept = function_pb2.FunctionDefLibrary(
        function=[each for name, each in functions.items() if name in called]
    )
    result = Graph(graph, graph.node)
    result.library = kept
    return result


#: Attributes that name other nodes, or give shapes that TensorFlow trusts instead of inferring them.
_NOTES: Final = ("_class", "_output_shapes")


def strip_devices(graph: AnyGraph, target: GraphDef | None = None) -> GraphDef:
    """Return a copy without devices, colocation and noted output shapes.

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
    """Strip a graph's nodes as `strip_devices` does, not its functions; copy only changed nodes."""
    changes = {}
    for node in graph.node:
        if node.device not in ("", ON_CPU) or any(key in node.attr for key in _NOTES):
            changes[node.name] = copy_node(node)
            _strip_device(changes[node.name])
    return replace_nodes(graph, changes)


def floats_as(attributes: Iterable[AttrValue], dtype: tf.DType) -> None:
    """Change each float type and float constant in `attributes` to `dtype`, in place."""
    others, wanted = {kind.as_datatype_enum for kind in FLOATS if kind != dtype}, dtype.as_datatype_enum
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
    """Keep impure ops from running while TensorFlow imports `graph`; changes it in place.

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
            node(name, "PlaceholderWithDefault", source, dtype=dtype, shape=tf.TensorShape(None))
        )
        item.input[0] = name
    return graph


def _first_input(node_def: NodeDef) -> tf.DType | None:
    """Return the dtype of a node's first input, or None if it has none."""
    for argument in tf_private.find_op(node_def.op).input_arg:
        types = node_def.attr[argument.type_list_attr].list.type if argument.type_list_attr else ()
        many = len(types) if argument.type_list_attr else node_def.attr[argument.number_attr].i
        if not (argument.type_list_attr or argument.number_attr) or many:
            kind = argument.type or (types[0] if types else node_def.attr[argument.type_attr].type)
            return tf.as_dtype(kind)
    return None


def unknown(graph: AnyGraph) -> list[NodeDef]:
    """The nodes whose op TensorFlow does not know, such as those of another package."""
    functions = library(graph)
    return [item for item in graph.node if tf_private.find_op(item.op) is None and item.op not in functions]


def _replace_unknown_ops(graph: AnyGraph) -> Graph:
    """Replace ops unknown to TensorFlow by placeholders, if an attribute gives their dtype.

    The rest of the graph then has shapes and dtypes; whether such an op can stay is checked later.
    """
    stand_ins = {
        item.name: placeholder(item.name, tf.as_dtype(dtype), tf.TensorShape(None))
        for item in unknown(graph)
        if (dtype := item.attr["T"].type or item.attr["dtype"].type)
    }
    return replace_nodes(graph, stand_ins)


def import_checked(graph: AnyGraph) -> tf.Graph:
    """Import a graph from a file, which may have unknown ops; not to be run.

    Raises InvalidModelError where TensorFlow refuses it.
    """
    try:
        return import_graph(_replace_unknown_ops(graph))
    except (ValueError, TypeError, KeyError, tf.errors.OpError) as cause:
        actual = first_line(cause)
        raise InvalidModelError(
            "graph", expected=f"nodes that TensorFlow {tf.__version__} can import", found=actual
        ) from cause


_LIMIT: Final = 64
#: What hands on the value of its first input.
_PASSED: Final = ops.PASSAGES | {"ReadVariableOp"}
#: Elements of any tensor computed on the way: a file may declare shapes that fill memory.
_LARGEST: Final = 1 << 20


def fold_constant(
    index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})
) -> Array | None:
    """Compute tensor `op:k` if it is a small pure function of constants, else None.

    `given` maps ops, usually placeholders, to the scalars to take for them. What takes a tensor into a branch
    or a loop does not change it.
    """
    op, _ = split(tensor)
    needed = {*walk([op], lambda name: _list_folded_inputs(index, name, given))}
    folded = {index.nodes[name].op for name in needed - set(given)}
    if not 0 < len(needed) <= _LIMIT or folded - ops.FOLDABLE - _PASSED:
        return None
    passed = {f"{name}:1": name for name in needed if index.nodes[name].op in _PASSED}
    tensor = f"{op}:0" if tensor in passed else tensor
    nodes = [redirect(_make_foldable(index.nodes[name], given), passed) for name in sorted(needed)]
    try:
        graph = import_checked(extract_nodes(Graph(graph_pb2.GraphDef(), nodes), needed))
    except InvalidModelError:
        return None
    sizes = [
        output.shape.num_elements() for operation in graph.get_operations() for output in operation.outputs
    ]
    if any(size is None or size > _LARGEST for size in sizes):
        return None
    with open_session(graph) as session:
        try:
            return np.asarray(session.run(tensor))
        except tf.errors.OpError:
            return None


def _list_folded_inputs(index: Index, name: str, given: Mapping[str, float]) -> list[str]:
    """The ops that folding computes an op from: of a branch or a loop only what enters it."""
    inputs = [] if name in given else index.data_inputs(index.nodes[name])
    inputs = inputs[:1] if index.nodes[name].op in _PASSED else inputs
    return [source for source in (split(each)[0] for each in inputs) if source in index.nodes]


def _make_foldable(node: NodeDef, given: Mapping[str, float]) -> NodeDef:
    if node.name in given:
        return _replace_with_constant(node, given)
    if node.op not in _PASSED:
        return node
    return identity(node.name, node.input[0], node.attr["dtype" if node.op == "ReadVariableOp" else "T"].type)


def _replace_with_constant(node: NodeDef, given: Mapping[str, float]) -> NodeDef:
    dtype = tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype
    return constant(node.name, np.asarray(given[node.name], dtype))


def fold_scalar(index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})) -> Any:
    """Return a one-element constant as a Python value, or None; `given` as for `fold_constant`."""
    value = fold_constant(index, tensor, given)
    return value.reshape(()).item() if value is not None and value.size == 1 else None
