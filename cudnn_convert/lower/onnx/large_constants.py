"""Sets large constants aside while tf2onnx runs: it holds each some fifteen times.

They are inputs there, and become initializers of the model that it made.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf
from onnx import TensorProto
from tf2onnx import tf_utils

from cudnn_convert.graph.index import Index

#: The bytes from which on a constant is set aside. Those of shapes, which handlers read, are small.
_LARGE: Final = 2**26
#: What reads tables and matrices, which need not be constants for tf2onnx. Loops and branches lose an input.
_READERS: Final = frozenset({"Gather", "GatherV2", "MatMul", "BatchMatMul", "BatchMatMulV2"})


def set_aside(graph: Any) -> dict[str, TensorProto]:
    """Replace each large constant of a GraphDef by a placeholder in place; return them by tensor."""
    large = [node for node in graph.node if node.op == "Const" and _count_bytes(node) >= _LARGE]
    if not large:
        return {}
    constants, index = {}, Index(graph)
    for node in large:
        if not _is_multiplied(index, node.name):
            continue
        value = node.attr["value"].tensor
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


def _count_bytes(node: Any) -> int:
    return len(node.attr["value"].tensor.tensor_content)


def _is_multiplied(index: Index, name: str) -> bool:
    """Whether a constant is read as a table or a matrix alone."""
    return all(
        reader.op in _READERS or (reader.op == "Identity" and _is_multiplied(index, reader.name))
        for reader in index.consumers(name, 0)
    )


def put_back(model: Any, constants: dict[str, TensorProto]) -> None:
    """Make initializers of the inputs of these names in an ONNX model, in place; they are forgotten here."""
    inputs = [value for value in model.graph.input if value.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for name in [*constants]:
        model.graph.initializer.append(constants.pop(name))
