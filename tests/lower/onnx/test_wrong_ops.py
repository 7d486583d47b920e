"""Ops that ONNX Runtime would compute otherwise, and the same ops where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.lower.onnx.wrong_ops import find_wrong

raw, v1 = tf.raw_ops, tf.compat.v1
IMAGE = np.ones((1, 4, 4, 2), np.float32)
SIZES = {"ksize": [1, 2, 2, 1], "padding": "SAME"}


def stitch(*indices: Any) -> Any:
    data = [np.ones(np.shape(each), np.float32) for each in indices]
    return raw.DynamicStitch(indices=[*indices], data=data)


def quantize(**options: Any) -> Any:
    return raw.QuantizeAndDequantizeV2(input=[0.5], input_min=-1.0, input_max=1.0, **options)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: raw.StringLower(input=["A"]), "in a locale of the system"),
        (lambda: raw.Exp(x=tf.constant(1j, tf.complex64)), "complex numbers"),
        (lambda: raw.Real(input=tf.constant(1j, tf.complex64)), None),
        (lambda: raw.Atan(x=tf.constant(1.0, tf.float64)), "doubles, for which ONNX Runtime has no kernel"),
        (lambda: raw.Atan(x=1.0), None),
        (lambda: raw.Equal(x="a", y="b"), "text"),
        (lambda: raw.Equal(x=1, y=2), None),
        (lambda: raw.AsString(input=1.5), "another text"),
        (lambda: raw.AsString(input=15, width=4), "another text"),
        (lambda: raw.AsString(input=15), None),
        (lambda: stitch([0, 1], [1]), "indices that may come twice"),
        (lambda: stitch([0, 1], [2]), None),
        (lambda: quantize(range_given=False), "with other ties or bounds"),
        (lambda: quantize(range_given=True, round_mode="HALF_UP"), "with other ties or bounds"),
        (lambda: quantize(range_given=True), None),
        (lambda: raw.AvgPool(value=IMAGE, strides=[1, 3, 3, 1], **SIZES), "windows that lie apart"),
        (lambda: raw.AvgPool(value=IMAGE, strides=[1, 2, 2, 1], **SIZES), None),
        (lambda: raw.MaxPool(input=IMAGE, strides=[1, 1, 1, 2], ksize=[1, 1, 1, 2], padding="SAME"),
         "over channels"),
        (lambda: raw.MaxPool(input=IMAGE, strides=[1, 2, 2, 1], **SIZES), None),
    ],
)  # fmt: skip
def test_an_op_is_refused_for_what_is_wrong_with_it(build: Any, why: str | None) -> None:
    with tf.Graph().as_default() as graph:
        name = build().op.name
    assert find_wrong(graph.as_graph_def()) == ({} if why is None else {name: why})
