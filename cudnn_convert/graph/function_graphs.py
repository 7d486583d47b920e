"""A function of the library as a graph, and back.

A graph names a tensor `op:k`, a function `op:output:k`, by the name of the output in the op's definition.
Arguments become placeholders of their names.
Source: tensorflow v2.21.0 core/framework/function.proto (FunctionDef.node_def), core/framework/function.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, graph_pb2

from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import FunctionDef, NodeDef, split
from cudnn_convert.private import tf_private


def make_graph(function: FunctionDef, functions: Mapping[str, FunctionDef]) -> Graph:
    """Return the body of a function as a graph.

    `functions` is the library around it, by name.
    """
    places = _place_outputs(function.node_def, functions)
    flat = {name: f"{node}:{number}" for name, (node, number) in places.items()}
    nodes = [
        node_defs.placeholder(argument.name, tf.as_dtype(argument.type), read_shape(function, position))
        for position, argument in enumerate(function.signature.input_arg)
    ]
    for node in function.node_def:
        inputs = [name if name.startswith("^") else flat.get(name, name) for name in node.input]
        nodes.append(node_defs.copy_node(node, inputs=inputs))
    definition = graph_pb2.GraphDef()
    definition.library.function.extend(functions.values())
    return Graph(definition, nodes)


def with_body(function: FunctionDef, graph: Graph, functions: Mapping[str, FunctionDef]) -> FunctionDef:
    """Return a copy of a function with the nodes of a graph.

    The graph has the nodes of the function's `make_graph`, and more.
    """
    arguments = {argument.name for argument in function.signature.input_arg}
    nodes = [node for node in graph.node if node.name not in arguments]
    named = {position: name for name, position in _place_outputs(nodes, functions).items()}
    result: FunctionDef = function_pb2.FunctionDef()
    result.CopyFrom(function)
    result.ClearField("node_def")
    for node in nodes:
        inputs = [name if name.startswith("^") else named.get(split(name), name) for name in node.input]
        result.node_def.append(node_defs.copy_node(node, inputs=inputs))
    places = _place_outputs(function.node_def, functions)
    for key, source in list(function.ret.items()):
        if source in places:
            result.ret[key] = named[places[source]]
    return result


def _place_outputs(
    nodes: Iterable[NodeDef], functions: Mapping[str, FunctionDef]
) -> dict[str, tuple[str, int]]:
    """Map a function's tensor names `node:output:k` to nodes and output numbers."""
    return {
        f"{node.name}:{output}:{k}": (node.name, number)
        for node in nodes
        for number, (output, k) in enumerate(_list_outputs(node, functions))
    }


def _list_outputs(node: NodeDef, functions: Mapping[str, FunctionDef]) -> Iterator[tuple[str, int]]:
    """Yield each output of a node as `(name, number)`, numbered among outputs of equal name."""
    definition: Any = tf_private.find_op(node.op)
    if definition is None and node.op in functions:
        definition = functions[node.op].signature
    for argument in () if definition is None else definition.output_arg:
        if argument.type_list_attr:
            count = len(node.attr[argument.type_list_attr].list.type)
        else:
            count = node.attr[argument.number_attr].i if argument.number_attr else 1
        yield from ((argument.name, k) for k in range(count))


def read_shape(function: FunctionDef, position: int) -> tf.TensorShape:
    """Return the static shape of an argument, unknown unless stated by the function."""
    attributes: Any = function.arg_attr  # type: ignore[attr-defined]
    if position not in attributes or "_output_shapes" not in attributes[position].attr:
        return tf.TensorShape(None)
    listed = attributes[position].attr["_output_shapes"].list.shape
    return tf.TensorShape(listed[0]) if listed else tf.TensorShape(None)
