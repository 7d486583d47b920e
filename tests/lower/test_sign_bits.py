"""Comparisons that stand for a test of a sign bit answer as it did; other uses of bits stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from cudnn_convert.graph import node_defs
from cudnn_convert.lower.onnx import convert
from cudnn_convert.lower.sign_bits import replace_sign_bits
from cudnn_convert.lower.tflite import lower_tflite
from cudnn_convert.model import Signature

v1 = tf.compat.v1
TINY = np.finfo(np.float32).smallest_subnormal
X = np.array([[-0.0, 0.0, -1.5, 2.0], [np.inf, -np.inf, TINY, -TINY]], np.float32)


def negative(x: Any, whole: tf.DType = tf.int32, mask: int | None = None) -> Any:
    mask = whole.min if mask is None else mask
    return tf.bitcast(x, whole) & tf.constant(mask, whole) < 0


def drawn(test: Any, dtype: str = "float32") -> tf.Graph:
    with tf.Graph().as_default() as graph:
        tf.identity(test(v1.placeholder(dtype, [None, None], "x")), "y")
    return graph


def answer(graph: Any, x: Any) -> Any:
    with tf.Graph().as_default() as imported, v1.Session(graph=imported) as session:
        tf.import_graph_def(graph, name="")
        return session.run("y:0", {"x:0": x})


@pytest.mark.parametrize(
    ("dtype", "whole"), [("float32", tf.int32), ("half", tf.int16), ("double", tf.int64)]
)
def test_each_float_is_as_negative_as_its_bit_says(dtype: str, whole: Any) -> None:
    source = drawn(lambda x: negative(x, whole), dtype).as_graph_def()
    replaced = replace_sign_bits(node_defs.Graph(source)).definition
    assert {node.name: node.op for node in replaced.node}["Less"] == "LogicalOr"
    x = X.astype(np.dtype(dtype))
    np.testing.assert_array_equal(answer(replaced, x), np.signbit(x))
    np.testing.assert_array_equal(answer(source, x), np.signbit(x))


@pytest.mark.parametrize(
    "test",
    [
        lambda x: negative(x, mask=1),
        lambda x: tf.bitcast(x, tf.int32) & tf.int32.min < -1,
        lambda x: tf.bitcast(tf.bitcast(x, tf.uint32), tf.int32) & tf.int32.min < 0,
        lambda x: tf.bitcast(x, tf.uint32) & np.uint32(0) < 0,
        lambda x: tf.bitcast(x, tf.int32) < 0,
        lambda x: tf.bitcast(x[..., None] * [1.0, 1.0], tf.int64) & tf.int64.min < 0,
    ],
    ids=["mask", "bound", "whole", "unsigned", "no_mask", "wider"],
)
def test_other_bits_stay(test: Any) -> None:
    graph = node_defs.Graph(drawn(test).as_graph_def())
    assert replace_sign_bits(graph).node == graph.node


def best(x: Any) -> Any:
    """As argmax of Keras 3: of two zeros the positive one."""
    is_negative_zero = tf.equal(x, 0.0) & negative(x)
    return tf.argmax(tf.where(is_negative_zero, -np.finfo(np.float32).tiny, x), -1, output_type=tf.int32)


def test_argmax_of_keras_in_both_formats() -> None:
    source = drawn(best).as_graph_def()
    model = convert.lower(source, Signature({"x": "x:0"}, {"y": "y:0"}), [], opset=17).model
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    lite = lower_tflite(source, [], {}, ends=["x:0", "y:0"]).graph
    x = X[:1, :3]
    assert answer(source, x).tolist() == [1]
    np.testing.assert_array_equal(session.run(["y"], {"x": x})[0], [1])
    np.testing.assert_array_equal(answer(lite, x), [1])
