"""Ops beside recurrences that not every CPU runs: one line for each kind."""

from __future__ import annotations

import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, placeholder

from cudnn_convert.graph.graph import Graph
from cudnn_convert.inspection.gpu_only import list_ops


def test_each_kind_has_a_line_with_its_number() -> None:
    with drawing() as graph:
        images, kernel = placeholder("images", [None, 3, 8, 8]), tf.zeros([1, 1, 3, 3])
        for _ in range(2):
            images = tf.nn.conv2d(images, kernel, 1, "SAME", data_format="NCHW")
        tf.nn.max_pool2d(images, 2, 2, "SAME", data_format="NCHW")
        tf.nn.conv2d(placeholder("others", [None, 8, 8, 3]), kernel, 1, "SAME")
        lstm(placeholder("x"), BLOB)
    assert list_ops(Graph.of(graph.as_graph_def())) == ["2 Conv2D of NCHW", "MaxPool of NCHW"]
