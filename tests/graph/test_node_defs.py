"""Nodes that are made: their attributes by the types of values, and their inputs."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.graph import node_defs


def test_attributes_have_the_form_of_their_values() -> None:
    made = node_defs.node(
        *("y", "Op", ["a", "^b"]),
        **{"T": tf.half, "shape": tf.TensorShape([None, 2]), "flag": True, "count": 1, "mode": "SAME"},
        types=[tf.int32, tf.bool],
    )
    assert [*made.input] == ["a", "^b"]
    assert tf.as_dtype(made.attr["T"].type) == tf.half
    assert [dim.size for dim in made.attr["shape"].shape.dim] == [-1, 2]
    assert (made.attr["flag"].WhichOneof("value"), made.attr["flag"].b) == ("b", True)
    assert (made.attr["count"].WhichOneof("value"), made.attr["count"].i) == ("i", 1)
    assert made.attr["mode"].s == b"SAME"
    assert [*map(tf.as_dtype, made.attr["types"].list.type)] == [tf.int32, tf.bool]
    with pytest.raises(TypeError, match="no attribute form for float"):
        node_defs.node("y", "Op", alpha=0.5)


def test_constants_hold_their_values() -> None:
    value = node_defs.constant("c", np.array([[1.5, 2]], np.float32), control=["^a"])
    assert [*value.input] == ["^a"]
    np.testing.assert_array_equal(tf.make_ndarray(value.attr["value"].tensor), [[1.5, 2]])
    scalar = tf.make_ndarray(node_defs.string_constant("s", ["a"], scalar=True).attr["value"].tensor)
    assert (scalar.shape, scalar.item()) == ((), b"a")
    assert tf.make_ndarray(node_defs.string_constant("s", ["a", "b"]).attr["value"].tensor).shape == (2,)


def test_only_a_node_with_other_inputs_is_copied() -> None:
    node = node_defs.node("y", "Add", ["a", "b:1", "^c"])
    assert node_defs.redirect(node, {"other:0": "d"}) is node
    moved = node_defs.redirect(node, {"a:0": "d:2", "b:1": "e"})
    assert [*moved.input] == ["d:2", "e", "^c"]
    assert [*node.input] == ["a", "b:1", "^c"]
    named = node_defs.copy_node(node, name="z", op="Sub")
    assert (named.name, named.op, [*named.input]) == ("z", "Sub", [*node.input])
