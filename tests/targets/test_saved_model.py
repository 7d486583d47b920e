"""Names of ops in a SavedModel, as TensorFlow's loader takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf

from cudnn_convert.model import Part, Signature
from cudnn_convert.targets import saved_model


def test_ops_whose_names_differ_in_case_alone_get_other_names() -> None:
    """TensorFlow's loader ignores case; what is kept has its name, and references follow."""
    graph = tf.compat.v1.GraphDef()
    for name, inputs in (
        ("Kernel", []), ("kernel", []), ("kernel_1", []), ("y", ["Kernel", "kernel:1", "^kernel_1"]),
    ):  # fmt: skip
        graph.node.add(name=name, op="NoOp").input.extend(inputs)
    renamed = saved_model._rename_case_clashes(graph, ["kernel"])
    assert renamed.keys() == {"Kernel", "kernel_1"}
    names = [node.name for node in graph.node]
    assert names[1] == "kernel" and len({name.lower() for name in names}) == 4
    assert [*graph.node[3].input] == [names[0], "kernel:1", f"^{names[2]}"]


def test_tensors_of_a_signature_may_differ_in_case_alone(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None], "made")
        tf.multiply(x, 3.0, name="x")
    proto = graph.as_graph_def()
    for node in proto.node:
        node.name = "X" if node.name == "made" else node.name
        node.input[:] = ["X" if source == "made" else source for source in node.input]
    part = Part("predict", Signature({"a": "X:0"}, {"b": "x:0"}))
    saved_model.write(tmp_path, proto, [part], {}, provenance="{}")
    loaded = tf.saved_model.load(tmp_path).signatures["predict"]
    np.testing.assert_array_equal(loaded(a=tf.constant([2.0, 5.0]))["b"], [6, 15])
