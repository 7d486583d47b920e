"""Constructors and static facts of GraphDefs, and constant folding.

A `Graph` is a GraphDef with its index and shapes, each derived once. A pass takes one and returns one, the
same where nothing changes.

Constant folding: the value of a tensor that depends on no input, or None.

Only pure ops run, and only small subgraphs: this serves predicates, dropout rates and shapes, not weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from cudnn_convert.errors import InvalidModelError, first_line
from cudnn_convert.graph import ops, safe_ops
from cudnn_convert.graph.index import Index, NodeDef, all_nodes, library, split, unique
from cudnn_convert.model import Array
from cudnn_convert.private import tf_private

#: The device that is on every machine, and has the same name on each.
ON_CPU: Final = "/device:CPU:0"
FLOATS: Final = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def node(name: str, op: str, inputs: Iterable[str] = (), **attributes: Any) -> Any:
    """A NodeDef; an attribute is a dtype, a shape, a bool, an int, a string, an array or a list of dtypes."""
    result = node_def_pb2.NodeDef(name=name, op=op, input=list(inputs))
    for key, value in attributes.items():
        result.attr[key].CopyFrom(_attribute(value))
    return result


def _attribute(value: Any) -> Any:
    attr = tf.compat.v1.AttrValue()
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


def constant(name: str, value: Array, *, control: Iterable[str] = ()) -> Any:
    """A Const node."""
    return node(name, "Const", control, dtype=tf.as_dtype(value.dtype), value=value)


def string_constant(name: str, values: list[str], *, scalar: bool = False) -> Any:
    """A Const of strings, `[len(values)]` or, for one value, a scalar."""
    strings = np.array(values[0] if scalar else values, dtype=object)
    return node(name, "Const", dtype=tf.string, value=strings)


def placeholder(name: str, dtype: tf.DType, shape: tf.TensorShape) -> Any:
    """A Placeholder node."""
    return node(name, "Placeholder", dtype=dtype, shape=shape)


def identity(name: str, source: str, dtype: int, *, control: Iterable[str] = ()) -> Any:
    """An Identity node; `dtype` is the enum's number, as NodeDefs hold it."""
    return node(name, "Identity", [source, *control], T=tf.as_dtype(dtype))


def copy_node(
    original: NodeDef, *, name: str | None = None, op: str | None = None, inputs: Iterable[str] | None = None
) -> NodeDef:
    """A copy of a node, with another name, op or other inputs."""
    copy = deepcopy(original)
    copy.name, copy.op = name or original.name, op or original.op
    if inputs is not None:
        copy.input[:] = inputs
    return copy


def with_nodes(graph: Any, nodes: Iterable[Any]) -> Any:
    """A GraphDef with `nodes` and the versions and function library of `graph`."""
    result = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
    result.node.extend(nodes)
    return result


def replace_nodes(graph: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of `graph` in which each node named in `changes` is replaced in its place."""
    return with_nodes(graph, (changes.get(item.name, item) for item in graph.node))


def extract_nodes(graph: Any, names: Iterable[str]) -> Any:
    """The subgraph of `names`, in the graph's own order; control inputs from elsewhere are dropped."""
    wanted = set(names)
    nodes = []
    for original in graph.node:
        if original.name in wanted:
            inputs = [name for name in original.input if not name.startswith("^") or name[1:] in wanted]
            nodes.append(copy_node(original, inputs=inputs))
    return with_nodes(graph, nodes)


@dataclass(frozen=True, eq=False)
class Graph:
    """A GraphDef that nothing changes any more, and what is derived from it, once."""

    definition: Any

    @cached_property
    def index(self) -> Index:
        """Its nodes by name, and what reads them."""
        return Index(self.definition)

    @cached_property
    def shapes(self) -> tf.Graph:
        """`import_checked` of it."""
        return import_checked(self.definition)

    @cached_property
    def library(self) -> dict[str, Any]:
        """Its functions by name."""
        return library(self.definition)


def prune(graph: Graph, outputs: Iterable[str]) -> Graph:
    """`graph` down to what the tensors `outputs` need; itself where that is all of it."""
    needed = graph.index.ancestors(split(name)[0] for name in outputs)
    is_whole = len(needed) == len(graph.definition.node)
    return graph if is_whole else Graph(extract_nodes(graph.definition, needed))


def strip_devices(graph: Any) -> Any:
    """A copy without devices and colocation, which name machines and nodes that need not exist here.

    `ON_CPU` stays.
    """
    result = deepcopy(graph)
    for inner in all_nodes(result):
        inner.device = ON_CPU if inner.device == ON_CPU else ""
        inner.attr.pop("_class", None)
        inner.attr.pop("_output_shapes", None)  # TensorFlow infers them itself, and trusts these
    return result


def floats_as(attributes: Iterable[Any], dtype: tf.DType) -> None:
    """Changes attributes of nodes in place: each float type and constant becomes `dtype`."""
    others, wanted = {kind.as_datatype_enum for kind in FLOATS if kind != dtype}, dtype.as_datatype_enum
    for value in attributes:
        if value.type in others:  # to set it where it is not set would unset what is
            value.type = wanted
        for k, kind in enumerate(value.list.type):
            value.list.type[k] = wanted if kind in others else kind
        if value.tensor.dtype in others:
            array = tf.make_ndarray(value.tensor).astype(dtype.as_numpy_dtype)
            value.tensor.CopyFrom(tf.make_tensor_proto(array))


def import_graph(graph: Any) -> tf.Graph:
    """The graph as TensorFlow sees it, for static shapes and dtypes; raises ValueError on unknown ops."""
    scratch = tf.Graph()
    with scratch.as_default():
        tf.import_graph_def(_disable_evaluation(strip_devices(graph)), name="")
    return scratch


def _disable_evaluation(graph: Any) -> Any:
    """`graph`, changed in place: what is not arithmetic does not run while it is imported.

    Its constants become the defaults of placeholders, which TensorFlow takes for no constants.
    """
    taken = {item.name for item in graph.node}
    for item in list(safe_ops.ops_run_by_import(graph.node)):
        if (dtype := _first_input(item)) is None:
            expected = "nodes that hold or take their values"
            raise InvalidModelError(item.name, expected=expected, found=f"{item.op}, which reads them")
        name = unique(f"{item.name}/unevaluated", taken)
        taken.add(name)
        source = [item.input[0]]
        graph.node.append(
            node(name, "PlaceholderWithDefault", source, dtype=dtype, shape=tf.TensorShape(None))
        )
        item.input[0] = name
    return graph


def _first_input(node_def: Any) -> tf.DType | None:
    """The type of a node's first input, None where it has none."""
    for argument in tf_private.find_op(node_def.op).input_arg:
        types = node_def.attr[argument.type_list_attr].list.type if argument.type_list_attr else ()
        many = len(types) if argument.type_list_attr else node_def.attr[argument.number_attr].i
        if not (argument.type_list_attr or argument.number_attr) or many:
            kind = argument.type or (types[0] if types else node_def.attr[argument.type_attr].type)
            return tf.as_dtype(kind)
    return None


def unknown(graph: Any) -> list[Any]:
    """The nodes whose op TensorFlow does not know, such as those of another package."""
    functions = library(graph)
    return [item for item in graph.node if tf_private.find_op(item.op) is None and item.op not in functions]


def _replace_unknown_ops(graph: Any) -> Any:
    """`graph` with placeholders for ops that TensorFlow does not know, as far as their types are told.

    What else stands in the graph has its shapes and types then; whether such an op can stay is asked later.
    """
    stand_ins = {
        unknown_node.name: placeholder(unknown_node.name, tf.as_dtype(dtype), tf.TensorShape(None))
        for unknown_node in unknown(graph)
        if (dtype := unknown_node.attr["T"].type or unknown_node.attr["dtype"].type)
    }
    return replace_nodes(graph, stand_ins) if stand_ins else graph


def import_checked(graph: Any) -> tf.Graph:
    """`import_graph` for a graph that comes from a file, of which ops may be unknown; not to be run.

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
#: Elements of a tensor on the way to a value: what a file calls a shape may be made to fill memory.
_LARGEST: Final = 1 << 20


def fold_constant(
    index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})
) -> Array | None:
    """The value of `tensor` (`op:k`), or None where it is not a small pure function of constants.

    `given` are scalars to take for the ops it names, placeholders most likely.
    """
    op, _ = split(tensor)
    needed = index.ancestors([op], control=False, stop=given)
    folded = {index.nodes[name].op for name in needed - set(given)}
    if not 0 < len(needed) <= _LIMIT or folded - ops.FOLDABLE:
        return None
    nodes = [
        _replace_with_constant(index.nodes[name], given) if name in given else index.nodes[name]
        for name in sorted(needed)
    ]
    try:
        graph = import_checked(extract_nodes(with_nodes(graph_pb2.GraphDef(), nodes), needed))
    except InvalidModelError:
        return None
    sizes = [
        output.shape.num_elements() for operation in graph.get_operations() for output in operation.outputs
    ]
    if any(size is None or size > _LARGEST for size in sizes):
        return None
    with tf.compat.v1.Session(graph=graph) as session:
        try:
            return np.asarray(session.run(tensor))
        except tf.errors.OpError:
            return None


def _replace_with_constant(node: Any, given: Mapping[str, float]) -> Any:
    dtype = tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype
    return constant(node.name, np.asarray(given[node.name], dtype))


def fold_scalar(index: Index, tensor: str, given: Mapping[str, float] = MappingProxyType({})) -> Any:
    """The Python value of a one-element constant, or None; `given` as for `value`."""
    value = fold_constant(index, tensor, given)
    return value.reshape(()).item() if value is not None and value.size == 1 else None
