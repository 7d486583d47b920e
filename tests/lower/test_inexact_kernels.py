"""Ops whose TensorFlow Lite kernels are wrong for some values are replaced where they may get those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import ops

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.session import session
from cudnn_convert.lower.inexact_kernels import notes, replace_inexact

v1 = tf.compat.v1
raw = tf.raw_ops
MATRIX = np.random.default_rng(4).standard_normal((3, 4)).astype(np.float32)
MATRICES = [MATRIX, np.random.default_rng(5).standard_normal((4, 3)).astype(np.float32)]
LARGE = np.array([-0.0, 0.0, 1e-30, 4.0, 2.0**126, 3e38], np.float32)


def drawn(build: Callable[..., Any], *given: np.ndarray) -> Graph:
    with tf.Graph().as_default() as graph:
        inputs = [
            v1.placeholder(x.dtype, [None] * x.ndim, name) for x, name in zip(given, "xyz", strict=False)
        ]
        tf.identity(build(*inputs), "end")
    return Graph.of(graph.as_graph_def())


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (lambda x: raw.Sqrt(x=x), [LARGE]),
        (lambda x: raw.Rsqrt(x=x), [LARGE]),
        (lambda x: raw.Pow(x=x, y=0.5), [LARGE]),
        (lambda x: raw.Pow(x=x, y=5), [np.array([65537, -7, 0], np.int32)]),
        (lambda x, y: raw.Atan2(y=x, x=y), [LARGE[:, None], LARGE]),
        (lambda x, y: raw.FloorDiv(x=x, y=y), [LARGE[:, None], LARGE]),
        (lambda x, y: raw.SqrtGrad(y=x, dy=y), [LARGE, LARGE[::-1].copy()]),
        (lambda x: raw.L2Loss(t=x), [LARGE[:0]]),
        (lambda x: raw.OnesLike(x=x), [LARGE[:0]]),
        (lambda x: raw.OnesLike(x=x), [np.array([True, False])]),
        (lambda x: raw.ZerosLike(x=x), [np.array([True, False])]),
        (lambda x: raw.Unpack(value=x, num=2, axis=1)[1], [np.ones((0, 2, 3), np.float32)]),
        (lambda x, y: raw.TopKV2(input=x, k=y).indices, [LARGE, np.array(0, np.int32)]),
        (lambda x, y: raw.Relu(features=raw.MatMul(a=x, b=y, transpose_a=True)), [MATRIX, MATRIX[:, 1:]]),
        (lambda x, y: raw.Relu6(features=raw.BatchMatMulV2(x=x, y=y, adj_y=True)), [MATRIX, MATRIX[1:]]),
        (lambda x, y: raw.Maximum(x=raw.Einsum(inputs=[x, y], equation="ab,ca->cb"), y=0.0), MATRICES),
        (lambda x, y: raw.Relu(features=raw.Einsum(inputs=[x, y], equation="ab,bc->ac")), MATRICES),
        (lambda x: raw.OneHot(indices=x, depth=3, on_value=1.0, off_value=0.0), [np.array([2**40, -1, 2])]),
    ],
)
def test_what_takes_its_place_computes_the_same(build: Callable[..., Any], given: list[np.ndarray]) -> None:
    graph = drawn(build, *given)
    other = replace_inexact(graph)
    assert ops(other) != ops(graph)
    feed = dict(zip(("x:0", "y:0"), given, strict=False))
    with np.errstate(all="ignore"), session(graph, {}) as before, session(other, {}) as after:
        expected, answer = (running.run("end:0", feed) for running in (before, after))
    assert answer.dtype == expected.dtype
    np.testing.assert_allclose(answer, expected, rtol=1e-6)


def test_attributes_that_a_saved_model_strips_have_their_defaults() -> None:
    """One of a last axis, and the largest values in order."""
    for build, given in [
        (lambda x: raw.OneHot(indices=x, depth=3, on_value=1.0, off_value=0.0), [np.array([2, 0])]),
        (lambda x, y: raw.TopKV2(input=x, k=y).values, [LARGE, np.array(4, np.int32)]),
    ]:
        graph = drawn(build, *given)
        stripped = tf.compat.v1.GraphDef.FromString(graph.definition.SerializeToString())
        for node in stripped.node:
            for name in ("axis", "sorted", "TI"):
                node.attr.pop(name, None)
        other = replace_inexact(Graph(stripped))
        assert ops(other) != ops(graph)
        feed = dict(zip(("x:0", "y:0"), given, strict=False))
        with session(graph, {}) as before, session(other, {}) as after:
            np.testing.assert_array_equal(after.run("end:0", feed), before.run("end:0", feed))


@pytest.mark.parametrize(
    "build",
    [
        lambda _: raw.Sqrt(x=np.float32(3.0)),
        lambda x: raw.TopKV2(input=x, k=2).values,
        lambda x: raw.Pow(x=x, y=1.5),
        lambda x: raw.ZerosLike(x=x),
        lambda x: raw.FloorDiv(x=tf.cast(x, tf.int32), y=3),
        lambda x: raw.Relu(features=raw.MatMul(a=x[None], b=np.ones((6, 2), np.float32))),
        lambda x: raw.Tanh(x=raw.MatMul(a=x[None], b=x[:, None])),
        lambda x: raw.Relu(features=raw.Einsum(inputs=[x[None, None], x[:, None]], equation="abc,cd->abd")),
        lambda x: raw.Relu(features=raw.Einsum(inputs=[x[None], x[None]], equation="ab,ab->ab")),
        lambda x: raw.Relu(features=raw.Einsum(inputs=[x[None], x[None]], equation="ab,ab->a")),
        lambda x: raw.Relu(features=raw.Einsum(inputs=[x[None], x[:, None]], equation="ab,cd->abcd")),
    ],
)
def test_others_stay(build: Callable[[Any], Any]) -> None:
    graph = drawn(build, LARGE)
    assert replace_inexact(graph) is graph


def test_a_power_of_integers_that_is_fed_is_refused() -> None:
    graph = drawn(lambda x, y: raw.Pow(x=x, y=y, name="cube"), *[np.array([3], np.int32)] * 2)
    with pytest.raises(
        UnsupportedModelError, match="cube: expected a constant exponent from 0 to 64 for integers"
    ):
        replace_inexact(graph)


def test_a_note_names_sines_and_cosines() -> None:
    (line,) = notes(drawn(lambda x: tf.sin(x, name="wave") + tf.cos(x, name="turn"), LARGE))
    assert line.startswith("wave, turn: ")
    assert not [*notes(drawn(tf.sqrt, LARGE))]
