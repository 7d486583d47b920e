"""Hides large constants from tf2onnx, to save copies in many steps.

tf2onnx converts them as inputs of the graph. Afterwards they become initializers of the ONNX model.
"""

from __future__ import annotations

import math
from typing import Any, Final

import tensorflow as tf
from onnx import TensorProto
from tf2onnx import tf_utils

from cudnn_convert.graph.index import Index

#: The size in bytes of a large constant. Handlers of tf2onnx read constants such as shapes, which are small.
_LARGE: Final = 2**26
#: Ops for which tf2onnx takes a table or a matrix from an input. It loses inputs of loops and branches.
_READERS: Final = frozenset({"Gather", "GatherV2", "MatMul", "BatchMatMul", "BatchMatMulV2"})


def set_aside(graph: Any) -> dict[str, TensorProto]:
    """Replace large constants of a GraphDef by placeholders in place; return the constants by tensor."""
    large = [node for node in graph.node if node.op == "Const" and _count_bytes(node) >= _LARGE]
    if not large:
        return {}
    constants, index = {}, Index(graph)
    for node in large:
        value = node.attr["value"].tensor
        if not (value.tensor_content and _is_multiplied(index, node.name)):
            continue
        sizes = [size.size for size in value.tensor_shape.dim]
        constants[f"{node.name}:0"] = TensorProto(
            name=f"{node.name}:0",
            data_type=tf_utils.map_tf_dtype(tf.as_dtype(value.dtype)),
            dims=sizes,
            raw_data=value.tensor_content,
        )
        del node.attr["value"]
        node.op = "Placeholder"
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(sizes).as_proto())
    return constants


def _count_bytes(constant: Any) -> int:
    """Return the size of a constant in bytes, by the shape.

    To read the content of a protocol buffer copies it.
    """
    value = constant.attr["value"].tensor
    sizes = [int(size.size) for size in value.tensor_shape.dim]
    return math.prod(sizes) * int(tf.as_dtype(value.dtype).size)


def _is_multiplied(index: Index, name: str) -> bool:
    """Return True if each reader takes a constant as a table or a matrix."""
    return all(
        reader.op in _READERS or (reader.op == "Identity" and _is_multiplied(index, reader.name))
        for reader in index.consumers(name, 0)
    )


def put_back(model: Any, constants: dict[str, TensorProto]) -> None:
    """Turn a model's inputs named in `constants` into initializers, in place; empty `constants`."""
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for name in [*constants]:
        model.graph.initializer.append(constants.pop(name))
