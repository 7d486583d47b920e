"""Small constants of a graph: what is folded, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, unknown_attribute, v1, variable
from tensorflow.core.framework import graph_pb2

from cudnn_convert.graph import constant_folding, node_defs
from cudnn_convert.graph.index import Index


def test_what_no_import_takes_has_no_value() -> None:
    graph = unknown_attribute()
    assert constant_folding.fold_constant(Index(graph), "one/again:0") is None
    graph.node[1].attr["T"].type = tf.float32.as_datatype_enum
    assert constant_folding.fold_constant(Index(graph), "one/again:0") == 1


def folded(build: Callable[[], Any], **given: float) -> Any:
    with drawing() as graph:
        name = build().name
    return constant_folding.fold_constant(Index(graph.as_graph_def()), name, given)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda: tf.constant([1, 2, 3])[1], 2, id="slice"),
        pytest.param(lambda: 1.0 - tf.constant(0.25), 0.75, id="arithmetic"),
        pytest.param(lambda: tf.logical_not(tf.constant(True)), False, id="logic"),
        pytest.param(lambda: tf.shape(tf.zeros([3, 2])), [3, 2], id="shape"),
        pytest.param(lambda: tf.split(tf.range(4), 2)[1] * 0 + 1, None, id="op-outside-the-list"),
        pytest.param(lambda: placeholder("x", []), None, id="placeholder"),
        pytest.param(lambda: tf.shape(placeholder("x")), None, id="shape-of-an-input"),
        pytest.param(lambda: tf.identity(variable("w", [])), None, id="variable"),
        pytest.param(lambda: tf.random.uniform([]), None, id="random"),
        pytest.param(lambda: v1.placeholder_with_default(1.0, []), None, id="default"),
    ],
)
def test_pure_functions_of_constants_have_a_value(build: Callable[[], Any], expected: Any) -> None:
    found = folded(build)
    if expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, expected)


def chain(length: int) -> Any:
    x = tf.constant(0.0)
    for _ in range(length - 1):
        x = tf.identity(x)
    return x


@pytest.mark.parametrize(("length", "is_folded"), [(64, True), (65, False)])
def test_only_small_graphs_are_run(length: int, is_folded: bool) -> None:
    assert (folded(lambda: chain(length)) is not None) == is_folded


def test_an_op_that_fails_has_no_value() -> None:
    assert folded(lambda: tf.constant(1) // tf.constant(0)) is None


@pytest.mark.parametrize(("keep", "expected"), [(1.0, 0.0), (0.5, 0.5)])
def test_given_values_stand_for_placeholders(keep: float, expected: float) -> None:
    assert folded(lambda: 1.0 - placeholder("keep", []), keep=keep) == pytest.approx(expected)


def test_given_values_take_the_placeholders_dtype() -> None:
    assert folded(lambda: tf.logical_not(placeholder("train", [], tf.bool)), train=1).item() is False


def test_a_scalar_is_a_python_value_of_one_element() -> None:
    with drawing() as graph:
        tf.constant([[True]], name="one")
        tf.constant([1, 2], name="two")
    index = Index(graph.as_graph_def())
    assert constant_folding.fold_scalar(index, "one:0") is True
    assert constant_folding.fold_scalar(index, "two:0") is None


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "bool", "int32", "int64", "int8"]
)
def test_a_constant_is_read_without_an_import(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = np.array([[0, 1, 1], [1, 0, 1]], tf.as_dtype(dtype).as_numpy_dtype)
    index = Index(graph_pb2.GraphDef(node=[node_defs.constant("one", value)]))
    monkeypatch.setattr(constant_folding, "import_checked", None)
    np.testing.assert_array_equal(constant_folding.fold_constant(index, "one:0"), value, strict=True)


def test_a_constant_without_its_numbers_has_no_value() -> None:
    node = node_defs.constant("short", np.arange(4, dtype=np.int32))
    node.attr["value"].tensor.tensor_shape.dim[0].size = 5
    assert constant_folding.fold_constant(Index(graph_pb2.GraphDef(node=[node])), "short:0") is None


def ones(dims: list[int]) -> Any:
    return graph_pb2.GraphDef(
        node=[
            node_defs.constant("dims", np.array(dims, np.int32)),
            node_defs.constant("one", np.array(1, np.int32)),
            node_defs.constant("axis", np.array(0, np.int32)),
            node_defs.node("ones", "Fill", ["dims", "one"], T=tf.int32, index_type=tf.int32),
            node_defs.node("sum", "Sum", ["ones", "axis"], T=tf.int32, Tidx=tf.int32),
        ]
    )


def test_constants_that_would_fill_memory_are_not_computed() -> None:
    assert constant_folding.fold_scalar(Index(ones([1 << 20])), "sum:0") == 1 << 20
    assert constant_folding.fold_scalar(Index(ones([(1 << 20) + 1])), "sum:0") is None
    assert constant_folding.fold_scalar(Index(ones([1 << 30])), "sum:0") is None
