"""Adds nodes to a tf2onnx graph."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from tf2onnx.graph_builder import GraphBuilder
from tf2onnx.utils import make_name

from cudnn_convert.lower.onnx.lossy_casts import OWN

#: From this opset on, axes of every reduction are an input.
_AXES_AS_INPUTS: Final = 18


class Ops:
    """A `fused_nodes.NodeBuilder` in a tf2onnx graph."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.versioned = GraphBuilder(graph)  # for ops whose axes moved from attribute to input

    def __call__(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        (output,) = self.several(op, inputs, 1, **attributes)
        return output

    def several(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        name = make_name(f"{OWN}{op}")
        node = self.graph.make_node(op, list(inputs), attr=attributes, output_count=outputs, name=name)
        return list(node.output)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return str(self.graph.make_const(make_name("constant"), np.array(value, dtype)).output[0])

    def part(self, data: str, start: int, end: int, axis: int = 0) -> str:
        ends = {"data": data, "starts": [start], "ends": [end], "axes": [axis]}
        return str(self.versioned.make_slice(ends))

    def squeeze(self, data: str, axis: int) -> str:
        return str(self.versioned.make_squeeze({"data": data, "axes": [axis]}))

    def unsqueeze(self, data: str, axes: list[int]) -> str:
        return str(self.versioned.make_unsqueeze({"data": data, "axes": axes}))

    def reduce(self, op: str, data: str, axis: int) -> str:
        """Reduce over an axis, and drop the axis."""
        if self.graph.opset < _AXES_AS_INPUTS:
            return self(op, [data], axes=[axis], keepdims=0)
        return self(op, [data, self.constant([axis])], keepdims=0)

    def steps(self, x: str) -> int:
        return int((self.graph.get_shape(x) or [-1])[0])
