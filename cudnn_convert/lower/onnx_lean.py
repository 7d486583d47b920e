"""ONNX graphs that are asked for no more than is read: beside a recurrence of one step a node costs much.

tf2onnx has no such pass, and its own must come first: they know no Shape that gives a part (v1.17.0
tf2onnx/optimizer/transpose_optimizer.py _shape_handler).
Source: onnx v1.18 docs/Operators.md Shape-15 (`start`, `end`), Slice-13, LSTM-14 (all outputs are optional).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import onnx

from cudnn_convert.lower.onnx_order import graphs, ordered
from cudnn_convert.lower.onnx_stack import FUSED

_OPSET_OF_PARTS: Final = 15


def lean(graph: Any, opset: int) -> None:
    """Change a GraphProto, and all that are nested in it, in place; `opset` is that of ONNX's own ops.

    A Slice of a Shape becomes a Shape of that part, and a fused node gives no final states that nobody reads.
    """
    for one in graphs(graph):
        if opset >= _OPSET_OF_PARTS:
            for node, shape, (start, end) in _parts(one):
                node.op_type, node.input[:] = "Shape", shape.input
                node.attribute.extend(
                    onnx.helper.make_attribute(*pair) for pair in (("start", start), ("end", end))
                )
        read = {name for _, reads in ordered(one) for name in reads} | {value.name for value in one.output}
        for node in one.node:
            if node.op_type in FUSED and not node.domain:
                while node.output and node.output[-1] not in read:
                    node.output.pop()


def _parts(graph: Any) -> Iterator[tuple[Any, Any, tuple[int, int]]]:
    """Each Slice of a whole Shape that takes neighbours, with that Shape, from where and to where."""
    shapes = {node.output[0]: node for node in graph.node if node.op_type == "Shape" and not node.attribute}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "Slice" or node.input[0] not in shapes:
            continue
        told = [constants.get(name) for name in node.input[1:]]
        if any(tensor is None for tensor in told):
            continue
        start, end, *others = (onnx.numpy_helper.to_array(tensor).tolist() for tensor in told)
        # Along the one axis that a shape has, one by one, and counted from its start.
        if others in ([], [[0]], [[0], [1]]) and 0 <= start[0] < end[0]:
            yield node, shapes[node.input[0]], (start[0], end[0])
