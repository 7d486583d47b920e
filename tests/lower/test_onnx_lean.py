"""What an ONNX graph is not asked for any more, beside what ONNX Runtime makes of the graph as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from cudnn_convert.lower.onnx.finish import trim_unread


def leaned(text: str, opset: int = 15) -> tuple[Any, Any]:
    """A model of the graph that `text` is, and what becomes of it."""
    models = []
    for change in (False, True):
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
        if change:
            trim_unread(model.graph, opset)
        onnx.checker.check_model(model, full_check=True)
        models.append(model)
    return models[0], models[1]


def alike(before: Any, after: Any, feeds: dict[str, Any]) -> None:
    found, expected = (
        onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, feeds
        )
        for model in (after, before)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def ops(graph: Any) -> list[str]:
    return [node.op_type for node in graph.node]


def part(constants: str, *, inputs: str, shape: str = "Shape(x)") -> str:
    return f"""
    agraph (float[A, B, C] x) => (int64[n] y) <{constants}>
    {{
        shape = {shape}
        y = Slice(shape, {inputs})
    }}
    """


ENDS = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {9223372036854775807}"


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("zero, one", [2]),
        ("one, two, zero", [3]),
        ("one, far, zero", [3, 4]),
        ("zero, two, zero, one", [2, 3]),
    ],
)
def test_a_part_of_a_shape_is_asked_for_at_once(inputs: str, expected: list[int]) -> None:
    before, after = leaned(part(ENDS, inputs=inputs))
    assert ops(before.graph) == ["Shape", "Slice"]
    assert ops(after.graph) == ["Shape", "Shape"]
    assert after.graph.node[1].input == ["x"]
    feeds = {"x": np.zeros((2, 3, 4), np.float32)}
    alike(before, after, feeds)
    run = onnxruntime.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])
    assert run.run(None, feeds)[0].tolist() == expected


def test_a_part_of_a_shape_in_a_branch_is_asked_for_at_once() -> None:
    before, after = leaned(f"""
        agraph (float[A, B] x, bool flag) => (int64[n] y)
        {{
            y = If (flag) <
                then_branch = t () => (int64[n] t) <{ENDS}> {{ s = Shape(x) t = Slice(s, zero, one) }},
                else_branch = e () => (int64[m] e) {{ e = Shape(x) }}
            >
        }}
        """)
    for flag in (True, False):
        alike(before, after, {"x": np.zeros((2, 3), np.float32), "flag": np.array(flag)})
    branches = {found.name: ops(found.g) for found in after.graph.node[0].attribute}
    assert branches == {"then_branch": ["Shape", "Shape"], "else_branch": ["Shape"]}


@pytest.mark.parametrize(
    ("constants", "inputs", "shape", "opset"),
    [
        (ENDS, "zero, one", "Shape(x)", 14),
        ("int64[1] a = {-1}, int64[1] b = {3}", "a, b", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {-1}", "a, b", "Shape(x)", 15),
        ("int64[1] a = {1}, int64[1] b = {1}", "a, b", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {3}, int64[1] c = {2}", "a, b, a, c", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {3}, int64[1] c = {-1}", "a, b, c", "Shape(x)", 15),
        ("int64[1] a = {0}, int64[1] b = {1}", "a, b", "Shape <start = 1> (x)", 15),
        ("int64[1] a = {1}", "a, shape", "Shape <start = 2> (x)", 15),
    ],
)
def test_what_is_no_plain_part_of_a_shape_stays(constants: str, inputs: str, shape: str, opset: int) -> None:
    before, after = leaned(part(constants, inputs=inputs, shape=shape), opset)
    assert after == before


def test_a_part_whose_ends_are_computed_stays() -> None:
    before, after = leaned(
        "agraph (float[A, B] x, int64[1] a, int64[1] b) => (int64[n] y) { s = Shape(x) y = Slice(s, a, b) }"
    )
    assert after == before


def test_a_part_of_what_is_no_shape_stays() -> None:
    before, after = leaned(
        f"agraph (int64[A] x) => (int64[n] y) <{ENDS}> {{ s = Identity(x) y = Slice(s, zero, one) }}"
    )
    assert after == before


def recurrence(reads: str) -> str:
    """An LSTM of 3 inputs and 2 units, whose outputs are y, h and c."""
    return f"""
    agraph (float[T, N, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (float[a, b, c, d] out)
    {{
        y, h, c = LSTM <hidden_size = 2> (x, w, r)
        {reads}
    }}
    """


NESTED = """
    flag = Constant <value = bool {1}> ()
    one = If (flag) <
        then_branch = t () => (float[p, q, s] t) { t = Tanh(h) },
        else_branch = e () => (float[p, q, s] e) { e = Sigmoid(h) }
    >
    axes = Constant <value = int64[1] {0}> ()
    out = Unsqueeze(one, axes)
"""


@pytest.mark.parametrize(
    ("reads", "left"),
    [
        ("out = Identity(y)", ["y"]),
        ("unread = Tanh(c) out = Identity(y)", ["y"]),
        ("axes = Constant <value = int64[1] {0}> () out = Unsqueeze(h, axes)", ["y", "h"]),
        ("axes = Constant <value = int64[1] {0}> () out = Unsqueeze(c, axes)", ["y", "h", "c"]),
        (NESTED, ["y", "h"]),
    ],
)
def test_states_that_nobody_reads_are_not_given(reads: str, left: list[str]) -> None:
    before = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15]>\n{recurrence(reads)}')
    after = onnx.ModelProto()
    after.CopyFrom(before)
    trim_unread(after.graph, 15)
    assert next(node.output for node in after.graph.node if node.op_type == "LSTM") == left
    if "unread" in reads:
        return  # what it stood on is gone, and it goes itself where nodes are put in order
    random = np.random.default_rng(1)
    shapes = {"x": (4, 2, 3), "w": (1, 8, 3), "r": (1, 8, 2)}
    alike(before, after, {key: random.normal(size=shape).astype("f") for key, shape in shapes.items()})


def test_a_node_of_another_domain_keeps_its_outputs() -> None:
    text = recurrence("out = Identity(y)").replace("LSTM", "other.LSTM")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 15, "other" : 1]>\n{text}')
    trim_unread(model.graph, 15)
    assert next(node.output for node in model.graph.node if node.op_type == "LSTM") == ["y", "h", "c"]
