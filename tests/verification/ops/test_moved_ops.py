"""Which ops an artifact may compute in another way."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from support.graphs import drawing, placeholder

from cudnn_convert.verification.ops.graphs import TensorGraph
from cudnn_convert.verification.ops.moved_ops import list_moved, read_list, simplify

KERNEL = np.ones((1, 1, 3, 2), np.float32)


def test_images_channels_first_and_what_few_cpus_have_are_moved() -> None:
    with drawing() as graph:
        first, last = placeholder("first", (2, 3, 4, 4)), placeholder("last", (2, 4, 4, 3))
        tf.raw_ops.BiasAdd(value=first, bias=np.ones(3, np.float32), data_format="NCHW", name="bias")
        tf.nn.conv2d(last, KERNEL, 1, "SAME", name="plain")
        tf.raw_ops.DepthwiseConv2dNative(
            input=last, filter=KERNEL, strides=[1, 1, 2, 1], padding="SAME", name="unequal"
        )
        tf.raw_ops.DepthwiseConv2dNative(
            input=last, filter=KERNEL, strides=[1, 2, 2, 1], padding="SAME", name="equal"
        )
        tf.raw_ops.Rint(x=tf.cast(last, tf.float16), name="half")
        tf.raw_ops.Rint(x=last, name="single")
    compared = TensorGraph(graph.as_graph_def(), frozenset({"first:0", "last:0"}), {}, lambda node: node)
    assert list_moved(compared) == ["bias", "unequal", "half"]
    assert read_list(compared.node("unequal:0"), "dilations") == [1, 1, 1, 1]


def test_an_order_of_axes_that_stay_is_empty() -> None:
    assert simplify([0, 1, 2]) == ()
    assert simplify(np.array([0, 2, 1])) == (0, 2, 1)
