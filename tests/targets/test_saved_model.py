"""Names of ops in a SavedModel, as TensorFlow's loader takes them."""

from __future__ import annotations

import tensorflow as tf

from cudnn_convert.targets import saved_model


def test_ops_whose_names_differ_in_case_alone_get_other_names() -> None:
    """TensorFlow's loader ignores case; what is kept has its name, and references follow."""
    graph = tf.compat.v1.GraphDef()
    for name, inputs in (
        ("Kernel", []), ("kernel", []), ("kernel_1", []), ("y", ["Kernel", "kernel:1", "^kernel_1"]),
    ):  # fmt: skip
        graph.node.add(name=name, op="NoOp").input.extend(inputs)
    saved_model._rename_case_clashes(graph, ["kernel"])
    names = [node.name for node in graph.node]
    assert names[1] == "kernel" and len({name.lower() for name in names}) == 4
    assert [*graph.node[3].input] == [names[0], "kernel:1", f"^{names[2]}"]
