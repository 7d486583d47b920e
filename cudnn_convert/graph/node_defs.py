"""Makes, copies and reads nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import node_def_pb2

from cudnn_convert.graph.index import AttrValue, NodeDef, tensor
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


def read_attribute(node: NodeDef, name: str) -> Any:
    """Return an attribute, or the default, stripped by SavedModels."""
    if name in node.attr:
        return node.attr[name]
    definition = tf_private.find_op(node.op)
    return next(attribute.default_value for attribute in definition.attr if attribute.name == name)


def constant(name: str, value: Array, *, control: Iterable[str] = ()) -> NodeDef:
    """Make a Const node."""
    return node(name, "Const", control, dtype=tf.as_dtype(value.dtype), value=value)


def string_constant(name: str, values: list[str], *, scalar: bool = False) -> NodeDef:
    """Make a Const of strings: `[len(values)]`, or with `scalar` the first as a scalar."""
    return constant(name, np.array(values[0] if scalar else values, dtype=object))


def placeholder(name: str, dtype: tf.DType, shape: tf.TensorShape, *, default: str | None = None) -> NodeDef:
    """Make a Placeholder node, or a PlaceholderWithDefault for the tensor `default`."""
    op, inputs = ("Placeholder", []) if default is None else ("PlaceholderWithDefault", [default])
    return node(name, op, inputs, dtype=dtype, shape=shape)


def identity(name: str, source: str, dtype: int, *, control: Iterable[str] = ()) -> NodeDef:
    """Make an Identity node; `dtype` is the enum's number, as in NodeDefs."""
    return node(name, "Identity", [source, *control], T=tf.as_dtype(dtype))


def gather(name: str, values: str, indices: str, axis: str, kind: tf.DType = tf.int32) -> NodeDef:
    """Make a GatherV2 node; `kind` is the type of the values."""
    return node(name, "GatherV2", [values, indices, axis], Tparams=kind, Tindices=tf.int32, Taxis=tf.int32)


def swap_batch(name: str, source: str, dtype: tf.DType) -> list[NodeDef]:
    """Make nodes exchanging the first two axes of a rank-3 tensor, the last called `name`."""
    axes = constant(f"{name}/axes", np.array([1, 0, 2], np.int32))
    return [axes, node(name, "Transpose", [source, axes.name], T=dtype, Tperm=tf.int32)]


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
    """Replace each input `op:k` listed in `moved`, as `with_inputs` does."""
    return with_inputs(node, [moved.get(tensor(name), name) for name in node.input])
