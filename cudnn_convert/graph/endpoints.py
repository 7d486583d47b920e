"""What a program can call in a SavedModel of TensorFlow 2, and what of it is cuDNN's.

`called` calls every such function once in one graph.

The objects that a function captures become variables without values, of the shapes that the file gives them:
enough to see what shapes its cuDNN nodes have and from which variables their parameters come.
Source: tensorflow v2.21.0 core/protobuf/saved_object_graph.proto (SavedConcreteFunction.bound_inputs: the
last arguments of the function, by the objects they are).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.graph import build, flat
from cudnn_convert.graph.index import CUDNN_OPS, Index, split
from cudnn_convert.model import Signature

GRADIENTS: Final = frozenset({"CudnnRNNBackprop", "CudnnRNNBackpropV2", "CudnnRNNBackpropV3"})


def needing_gpu(meta: Any) -> list[str]:
    """The concrete functions of a MetaGraph in which a cuDNN node is reached, but for steps of training."""
    graph = meta.graph_def
    reaching = flat.reaching(graph, CUDNN_OPS) - flat.reaching(graph, GRADIENTS)
    return sorted(reaching & {*meta.object_graph_def.concrete_functions})


def training(graph: Any, signatures: Mapping[str, Signature]) -> list[str]:
    """The signatures that reach the gradient of a cuDNN node: no CPU form of it is made."""
    steps, index = flat.reaching(graph, GRADIENTS), Index(graph)
    found = []
    for key, signature in signatures.items():
        ops = index.ancestors(split(name)[0] for name in signature.outputs.values())
        called = {name for op in ops for name in flat.functions(index.nodes[op])}
        found += [key] if called & steps else []
    return found


def called(meta: Any) -> Any:
    """A GraphDef that calls each concrete function of a MetaGraph that needs a GPU."""
    library = {function.signature.name: function for function in meta.graph_def.library.function}
    made = graph_pb2.GraphDef(versions=meta.graph_def.versions, library=meta.graph_def.library)
    objects: dict[int, Any] = {}
    for place, name in enumerate(needing_gpu(meta)):
        bound = meta.object_graph_def.concrete_functions[name].bound_inputs
        for held in bound:
            node = meta.object_graph_def.nodes[held]
            if node.WhichOneof("kind") == "variable" and held not in objects:
                objects[held] = _variable(f"object_{held}", node.variable)
        captured = [objects[held].name if held in objects else None for held in bound]
        made.node.extend(call(f"call_{place}", library[name], captured))
    made.node.extend(objects.values())
    return made


def call(name: str, function: Any, captured: Sequence[str | None]) -> Iterator[Any]:
    """The nodes that call a function of a library: `captured` for its last arguments, placeholders
    `<name>/<argument>` for the others and where that is None; then the call, `name`.
    """
    arguments = function.signature.input_arg
    given = [*[None] * (len(arguments) - len(captured)), *captured]
    inputs = []
    for place, (argument, held) in enumerate(zip(arguments, given, strict=True)):
        inputs.append(held or f"{name}/{argument.name}")
        if held is None:
            yield build.placeholder(inputs[-1], tf.as_dtype(argument.type), _shape(function, place))
    made = build.node(
        name,
        "StatefulPartitionedCall",
        inputs,
        Tin=[tf.as_dtype(argument.type) for argument in arguments],
        Tout=[tf.as_dtype(argument.type) for argument in function.signature.output_arg],
    )
    made.attr["f"].func.name = function.signature.name
    yield made


def _variable(name: str, held: Any) -> Any:
    dtype, shape = tf.as_dtype(held.dtype), tf.TensorShape(held.shape)
    return build.node(name, "VarHandleOp", dtype=dtype, shape=shape, shared_name=name, container="")


def _shape(function: Any, place: int) -> tf.TensorShape:
    """The static shape of an argument, where the function says it."""
    if place not in function.arg_attr:
        return tf.TensorShape(None)
    listed = function.arg_attr[place].attr["_output_shapes"].list.shape
    return tf.TensorShape(listed[0]) if listed else tf.TensorShape(None)
