"""Every function of a SavedModel of TensorFlow 2 that a program can call, called once in one graph.

The objects that a function captures become variables without values, of the shapes that the file gives them:
enough to see what shapes its cuDNN nodes have and from which variables their parameters come.
Source: tensorflow v2.21.0 core/protobuf/saved_object_graph.proto (SavedConcreteFunction.bound_inputs: the
last arguments of the function, by the objects they are).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from cudnn_convert.graph import build, flat


def called(meta: Any) -> Any:
    """A GraphDef that calls each concrete function of a MetaGraph in which a cuDNN node is reached."""
    wanted = flat.with_cudnn(meta.graph_def)
    library = {function.signature.name: function for function in meta.graph_def.library.function}
    made = graph_pb2.GraphDef(versions=meta.graph_def.versions, library=meta.graph_def.library)
    objects: dict[int, Any] = {}
    concrete = meta.object_graph_def.concrete_functions
    for place, name in enumerate(sorted(concrete)):
        if name in wanted:
            nodes = _call(f"call_{place}", library[name], concrete[name].bound_inputs, meta, objects)
            made.node.extend(nodes)
    made.node.extend(objects.values())
    return made


def _call(name: str, function: Any, bound: Any, meta: Any, objects: dict[int, Any]) -> Iterator[Any]:
    arguments = function.signature.input_arg
    free = len(arguments) - len(bound)
    inputs = []
    for place, argument in enumerate(arguments):
        held = bound[place - free] if place >= free else None
        kind = meta.object_graph_def.nodes[held].WhichOneof("kind") if held is not None else None
        if held is not None and kind == "variable":
            if held not in objects:
                objects[held] = _variable(f"object_{held}", meta.object_graph_def.nodes[held].variable)
            inputs.append(f"object_{held}")
        else:
            inputs.append(f"{name}/argument_{place}")
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
