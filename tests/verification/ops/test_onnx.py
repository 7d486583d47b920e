"""A model of ONNX whose tensors are fed, and asked for, by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cudnn_convert.verification.ops.models import StoredCuts
from cudnn_convert.verification.ops.onnx import OnnxTensorFile

X = np.float32([[1.0, -2.0]])


@pytest.fixture
def model(tmp_path: Path) -> OnnxTensorFile:
    """`y = relu(-x) + shape(-x)`."""
    nodes = [
        helper.make_node("Neg", ["x"], ["neg:0"]),
        helper.make_node("Relu", ["neg:0"], ["relu:0"]),
        helper.make_node("Shape", ["neg:0"], ["shape:0"]),
        helper.make_node("Cast", ["shape:0"], ["sizes"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["relu:0", "sizes"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2])] for name in "xy"]
    graph = helper.make_graph(nodes, "graph", *ends)
    file = tmp_path / "model.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, str(file))
    return OnnxTensorFile(file)


def test_any_tensor_is_given_where_others_are_fed(model: OnnxTensorFile) -> None:
    assert model.tensors == ["neg:0", "relu:0", "shape:0", "sizes", "y"]
    assert [*map(model.list_namesakes, ("neg:0", "y"))] == [["neg:0"], []]
    assert model.leaves("y", {"neg:0"}) == ({"neg:0"}, False)
    assert model.leaves("shape:0", {"neg:0"}) == (frozenset(), False)
    cuts = {"neg:0": np.float32([[3.0, -4.0]])}
    relu, y = model.open(["relu:0", "y"], cuts).run(["relu:0", "y"], {"x": X}, cuts)
    assert relu.tolist() == [[3, 0]]
    assert y.tolist() == [[4, 2]]


def test_cuts_stay_in_the_file(model: OnnxTensorFile) -> None:
    assert model.read_cuts() is None
    cuts = StoredCuts({"neg:0": "n:0"}, {})
    model.write_cuts(cuts)
    again = OnnxTensorFile(model._file)
    assert again.read_cuts() == cuts
    assert again.tensors == model.tensors
