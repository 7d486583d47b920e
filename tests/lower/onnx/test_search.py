"""The nodes of a step in the body of a search's loop."""

from __future__ import annotations

from onnx import TensorProto, helper

from cudnn_convert.lower.onnx import search


def test_nodes_without_names_stay_so() -> None:
    """As Casts behind weights in float16: a runtime refuses two nodes of one name."""
    nodes = [
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["v"], ["other"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "other"], ["y"], name="sum"),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph(nodes, "step", [], [y])
    copies = [*search._nodes(graph, {"v": "fed"}, {"y": "next"})]
    assert [node.name for node in copies] == ["", "", "step/sum"]
    assert [(*node.input, *node.output) for node in copies] == [
        ("step/w", "step/wide"), ("fed", "step/other"), ("step/wide", "step/other", "next")
    ]  # fmt: skip
