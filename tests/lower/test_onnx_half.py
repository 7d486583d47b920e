"""Matrices stored as half: which, what reads them, and what half cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx import reduced_precision
from cudnn_convert.lower.onnx.finish import Finished
from cudnn_convert.model import Array

RNG = np.random.default_rng(5)
W, R = RNG.normal(size=(2, 72, 6)).astype("f4"), RNG.normal(size=(2, 72, 18)).astype("f4")
B = RNG.normal(size=(2, 144)).astype("f4") * 100
TABLE, SMALL = RNG.normal(size=(43, 6)).astype("f4"), RNG.normal(size=(17, 15)).astype("f4")
LARGE = RNG.normal(size=(16, 16)).astype("f4")
VECTOR, IDS = RNG.normal(size=300).astype("f4"), np.arange(300).reshape(20, 15)


def made() -> Finished:
    """An LSTM over the rows of a table, beside constants of other kinds; W and half of R come in parts."""
    table = {
        "table": TABLE,
        "W": W,
        "R": R,
        "B": B,
        "small": SMALL,
        "large": LARGE,
        "vector": VECTOR,
        "ids": IDS,
    }
    constants = [numpy_helper.from_array(value, name) for name, value in table.items()]
    for constant in constants:
        if constant.name in ("W", "R"):
            constant.ClearField("raw_data")
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["rows"]),
        helper.make_node("LSTM", ["rows", "W", "R", "B"], ["y"], hidden_size=18, direction="bidirectional"),
        *(
            helper.make_node("ReduceSum", [name], [f"sum_{name}"], keepdims=0)
            for name in ("small", "large", "vector", "ids")
        ),
        helper.make_node("Neg", ["vector"], ["large_half"]),
        helper.make_node("Sum", ["large"] * 4, ["fourfold"]),
        helper.make_node("LSTM", ["rows", "W", "R"], ["plain"], hidden_size=18, direction="bidirectional"),
    ]
    outputs = [helper.make_tensor_value_info("y", 1, ["t", 2, "b", 18])]
    outputs += [helper.make_tensor_value_info(f"sum_{name}", 1, []) for name in ("small", "large", "vector")]
    outputs += [helper.make_tensor_value_info("sum_ids", 7, [])]
    outputs += [helper.make_tensor_value_info("large_half", 1, [300])]
    outputs += [helper.make_tensor_value_info("fourfold", 1, [16, 16])]
    outputs += [helper.make_tensor_value_info("plain", 1, ["t", 2, "b", 18])]
    x = helper.make_tensor_value_info("x", 7, ["t", "b"])
    graph = helper.make_graph(nodes, "main", [x], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Finished(model, {"W": lambda: iter([W[:1], W[1:]]), "R": lambda: iter([R[0], R[1]])})


def test_matrices_alone_are_stored_as_half() -> None:
    model = reduced_precision.to_float16(made()).whole()
    stored = {one.name: (one.data_type, [*one.dims]) for one in model.graph.initializer}
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    assert stored == {
        "table_half": (half, [43, 6]),
        "W_half": (half, [2, 72, 6]),
        "R_half": (half, [2, 72, 18]),
        "B": (single, [2, 144]),
        "small": (single, [17, 15]),
        "large_half_": (half, [16, 16]),
        "vector": (single, [300]),
        "ids": (onnx.TensorProto.INT64, [20, 15]),
    }
    onnx.checker.check_model(model, full_check=True)


def test_what_is_computed_is_single_of_rounded_weights() -> None:
    x = RNG.integers(0, 43, (5, 3))
    exact = made()
    rounded = {name: (lambda value=value: iter([rounding(value)])) for name, value in (("W", W), ("R", R))}
    expected = Finished(exact.model, rounded).whole()
    for constant in expected.graph.initializer:
        if constant.name in ("table", "large"):
            values = rounding(numpy_helper.to_array(constant))
            constant.CopyFrom(numpy_helper.from_array(values, constant.name))
    for one, other in zip(run(reduced_precision.to_float16(exact).whole(), x), run(expected, x), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(run(exact.whole(), x)[0], run(expected, x)[0])


def rounding(values: Array) -> Array:
    return values.astype("f2").astype("f4")


def run(model: Any, x: Array) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def test_the_model_that_is_given_stays_as_it_is() -> None:
    given = made()
    before = given.model.SerializeToString(deterministic=True), set(given.weights)
    reduced_precision.to_float16(given)
    assert (given.model.SerializeToString(deterministic=True), set(given.weights)) == before


@pytest.mark.parametrize(
    ("value", "fits"), [(65504.0, True), (-65504.0, True), (65520.0, False), (-1e9, False)]
)
@pytest.mark.filterwarnings("error")
def test_what_half_cannot_hold_is_refused(value: float, fits: bool) -> None:
    given = made()

    def parts() -> Iterator[Array]:
        yield np.where(W[1, 2, 3] == W, np.float32(value), W)

    weights = reduced_precision.to_float16(Finished(given.model, {**given.weights, "W": parts}))
    if fits:
        assert np.isfinite(numpy_helper.to_array(weights.whole().graph.initializer[1])).all()
        return
    with pytest.raises(UnsupportedModelError) as caught:
        weights.whole()
    what = f"expected numbers up to 65504, as half holds them, found {value:g}; leave out --weights-dtype"
    assert str(caught.value) == f"onnx: W: {what}"


def test_infinities_of_the_source_stay() -> None:
    given = made()
    odd = np.where(W[1, 2, 3] == W, np.float32(np.inf), np.where(W[0, 1, 1] == W, np.float32(np.nan), W))
    model = reduced_precision.to_float16(
        Finished(given.model, {**given.weights, "W": lambda: iter([odd])})
    ).whole()
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[1]), odd.astype("f2"))
