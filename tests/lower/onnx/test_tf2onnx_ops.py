"""Nodes that are added to a graph of tf2onnx, in the forms of two opsets, as ONNX Runtime runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto
from tf2onnx.graph import Graph

from cudnn_convert.lower.onnx.lossy_casts import OWN
from cudnn_convert.lower.onnx.tf2onnx_ops import Ops

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda ops: ops("Neg", ["x"]), -X),
        (lambda ops: ops("Mul", ["x", ops.constant([2.0], np.float32)]), 2 * X),
        (lambda ops: ops.part("x", 1, 3, axis=2), X[:, :, 1:3]),
        (lambda ops: ops.squeeze(ops.part("x", 0, 1), 0), X[0]),
        (lambda ops: ops.unsqueeze("x", [0, 2]), X[None, :, None]),
        (lambda ops: ops.over_axes("ReduceMax", "x", [1], keepdims=0), X.max(1)),
    ],
)
def test_a_node_computes_what_its_name_says(build: Any, expected: np.ndarray, opset: int) -> None:
    graph = Graph([], output_shapes={}, dtypes={}, target=None, opset=opset)
    graph.add_graph_input("x", TensorProto.FLOAT, [2, 3, 4])
    ops = Ops(graph)
    assert ops.steps("x") == 2
    name = build(ops)
    graph.set_dtype(name, TensorProto.FLOAT)
    graph.outputs.append(name)
    assert any(node.name.startswith(OWN) for node in graph.get_nodes()) == (build(ops).startswith(OWN))
    model = graph.make_model("").SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], expected)
