"""Adds nodes to a tf2onnx graph."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tf2onnx.utils import make_name

from cudnn_convert.lower.onnx.fused_nodes import NodeBuilder
from cudnn_convert.lower.onnx.lossy_casts import OWN


class Ops(NodeBuilder):
    """A builder of nodes in a tf2onnx graph."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.opset = graph.opset

    def several(self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        name = make_name(f"{OWN}{op}")
        node = self.graph.make_node(op, list(inputs), attr=attributes, output_count=outputs, name=name)
        return list(node.output)

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        return str(self.graph.make_const(make_name("constant"), np.array(value, dtype)).output[0])

    def steps(self, x: str) -> int:
        return int((self.graph.get_shape(x) or [-1])[0])
