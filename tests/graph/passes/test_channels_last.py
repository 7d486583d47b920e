"""Channels-first ops, rewritten: every value under its old name, no such op left, few transpositions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support import channels_first
from support.graphs import drawing
from support.recorded import assert_close

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, import_graph, prune
from cudnn_convert.graph.index import split
from cudnn_convert.graph.passes import channels_last, plain_convolutions
from cudnn_convert.plan import obstacles

v1 = tf.compat.v1


def rewritten(group: str, *, carry: bool = True) -> Graph:
    return channels_last.compute_channels_last(Graph(channels_first.definition(group)), carry=carry)


def ask(graph: Graph, feeds: dict[str, np.ndarray], names: list[str]) -> list[np.ndarray]:
    scratch = import_graph(graph)
    with v1.Session(graph=scratch) as session:
        return list(session.run(names, feeds))


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("group", channels_first.GROUPS)
def test_answers_are_those_of_the_twin(group: str, carry: bool) -> None:
    channels_first.require_kernels(group)
    feeds, expected = channels_first.recorded(group)
    graph = rewritten(group, carry=carry)
    assert not [node.name for node in graph.node if channels_last.needs_rewriting(node)]
    for name, found in zip(expected, ask(graph, feeds, [*expected]), strict=True):
        assert_close(found, expected[name], name=(group, name))


@pytest.mark.parametrize(
    ("name", "count"),
    [("columns", 2), ("flattened", 2), ("joined", 2), ("reduced", 1), ("residual", 2), ("local_response", 2)],
)
def test_transpositions_that_meet_cancel(name: str, count: int) -> None:
    graph = prune(rewritten("carried"), [f"{name}/y:0"])
    assert Counter(node.op for node in graph.node)["Transpose"] == count


def test_every_tensor_keeps_its_name_and_value() -> None:
    with drawing() as graph:
        x = v1.placeholder(tf.float32, [None, 5, 6, 3], "x")
        # No constants: TensorFlow folds them into sums of one output.
        values = [
            v1.placeholder_with_default(np.linspace(0.5, k, 3).astype(np.float32), [3]) for k in (1, 2, 3, 4)
        ]
        y, *_ = v1.nn.fused_batch_norm(x, *values[:2], *values[2:], is_training=False, name="bn")
        left, right = tf.split(tf.nn.relu(y, name="relu"), [1, 2], 3, name="parts")
        tf.concat([right, left], 3, name="joined")
        tf.shape(y, name="shape")
    definition = graph.as_graph_def()
    last = ask(Graph(definition), {"x:0": image()}, [*TENSORS])
    for node in definition.node:  # the same ops, on images whose channels come first
        if "data_format" in node.attr:
            node.attr["data_format"].s = b"NCHW"
        if node.name == "x":
            shape = tf.TensorShape([None, 3, 5, 6])
            node.CopyFrom(node_defs.placeholder("x", tf.float32, shape))
        if node.name in ("parts/split_dim", "joined/axis"):
            node.CopyFrom(node_defs.constant(node.name, np.array(1, np.int32)))
    rewriting = channels_last.compute_channels_last(Graph(definition), ["bn:1"])
    first = ask(rewriting, {"x:0": image().transpose(0, 3, 1, 2)}, [*TENSORS])
    for name, found, expected in zip(TENSORS, first, last, strict=True):
        if name == "shape:0":
            np.testing.assert_array_equal(found, expected[[0, 3, 1, 2]])
        else:
            np.testing.assert_array_equal(
                found, expected.transpose(0, 3, 1, 2) if expected.ndim == 4 else expected
            )


TENSORS = ("bn:0", "bn:1", "relu:0", "parts:0", "parts:1", "joined:0", "shape:0")


def image() -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, (2, 5, 6, 3)).astype(np.float32)


def test_a_graph_without_such_ops_is_itself() -> None:
    with drawing() as graph:
        x = v1.placeholder(tf.float32, [None, 5, 6, 3], "x")
        tf.nn.relu(tf.nn.max_pool2d(x, 2, 2, "SAME"))
    original = Graph(graph.as_graph_def())
    assert channels_last.compute_channels_last(original) is original


def test_functions_are_rewritten_too() -> None:
    """What a loop's body gives has its names: those of arguments, and of ops that give several tensors."""
    weight = np.random.default_rng(1).uniform(-1, 1, (3, 2, 3, 3)).astype(np.float32)

    def body(first: bool, x: tf.Tensor) -> tf.Tensor:
        layout = "NCHW" if first else "NHWC"

        @tf.function(autograph=False)
        def step(k: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            parts = tf.unstack(tf.stack([y, y * 2.0]), 2)
            y = tf.nn.conv2d(parts[1], weight, 1, "SAME", data_format=layout)
            return k + 1, tf.nn.relu(tf.nn.bias_add(y, [0.1, -0.2, 0.3], data_format=layout))

        return tf.while_loop(lambda k, _: k < 2, step, [0, x])[1]

    answers = []
    for first in (True, False):
        with tf.Graph().as_default() as graph:
            v1.enable_control_flow_v2()
            shape = [None, 3, 4, 5] if first else [None, 4, 5, 3]
            tf.identity(body(first, v1.placeholder(tf.float32, shape, "x")), "y")
        made = channels_last.compute_channels_last(Graph(graph.as_graph_def()))
        inner = [node for function in made.library.function for node in function.node_def]
        assert any(node.op == "Conv2D" for node in inner)
        assert not any(map(channels_last.needs_rewriting, inner))
        x = image()[:, :4, :5]
        (found,) = ask(made, {"x:0": x.transpose(0, 3, 1, 2) if first else x}, ["y:0"])
        answers.append(found.transpose(0, 2, 3, 1) if first else found)
    np.testing.assert_allclose(*answers, rtol=1e-5, atol=1e-6)


def test_the_table_has_every_op_with_a_data_format_that_inference_uses() -> None:
    """Those beside it are gradients, are made by TensorFlow's optimizer, or compute integers."""
    from tensorflow.python.framework import op_def_registry

    known = {
        name
        for name in dir(tf.raw_ops)
        if (found := op_def_registry.get(name)) is not None
        and any(a.name == "data_format" for a in found.attr)
    }
    beside = {name for name in known if "Grad" in name or "Quantized" in name or "BackpropFilter" in name}
    beside |= {"Conv", "Conv2DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"}
    assert known - beside - {split(name)[0] for name in channels_last.FORMS} == set()


@pytest.mark.parametrize(
    ("layout", "strides", "is_plain"),
    [("NCHW", [1, 1, 2, 2], True), ("NHWC", [1, 2, 2, 1], True), ("NCHW", [1, 1, 1, 2], False)],
)
def test_strides_of_rows_and_columns_are_told_apart(layout: str, strides: list[int], is_plain: bool) -> None:
    with drawing() as graph:
        image, kernel = (v1.placeholder(tf.float32, [None] * 4, name) for name in ("x", "w"))
        tf.raw_ops.DepthwiseConv2dNative(
            input=image, filter=kernel, strides=strides, padding="SAME", data_format=layout, name="y"
        )
    (node,) = (node for node in graph.as_graph_def().node if node.name == "y")
    assert plain_convolutions.is_plain(node) is is_plain


def test_a_window_of_open_size_stays_and_is_refused() -> None:
    with drawing() as graph:
        image, kernel = (
            v1.placeholder(tf.float32, [None] * rank, name) for rank, name in ((4, "x"), (4, "w"))
        )
        tf.raw_ops.DepthwiseConv2dNative(
            input=image, filter=kernel, strides=[1, 1, 1, 2], padding="SAME", data_format="NCHW", name="y"
        )
    made = channels_last.compute_channels_last(Graph(graph.as_graph_def()))
    with pytest.raises(
        UnsupportedModelError, match="found DepthwiseConv2dNative, without a kernel that every"
    ):
        obstacles.check_runs_on_cpu(Path("model.pb"), made, outputs={"y": "y:0"})
