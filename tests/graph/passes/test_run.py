"""Every pass of every list alone, on small graphs: it computes the same at the ends, or changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, floor_dropout

from cudnn_convert.graph.graph import Graph, copy_graph, prune
from cudnn_convert.graph.passes import inference, tf1_ops
from cudnn_convert.graph.passes.inlining import inline_functions
from cudnn_convert.graph.passes.run import Pass, name_pass, run_passes
from cudnn_convert.graph.session import session
from cudnn_convert.lower import tflite
from cudnn_convert.lower.onnx import convert
from cudnn_convert.lower.tensorflow import lower
from cudnn_convert.plan import passes

raw, v1 = tf.raw_ops, tf.compat.v1
X: Final = np.random.default_rng(3).uniform(-1, 1, (2, 4, 3)).astype(np.float32)
LISTS: Final[dict[str, tuple[Pass, ...]]] = {
    "source": passes.OF_SOURCE,
    "plan": (*passes.BEFORE_CUT, *inference.SIMPLIFYING, *passes.list_cpu_passes(carries_layouts=True)),
    "tensorflow": (*lower.PASSES, *tf1_ops.make_resources({})),
    "onnx": (*convert.BEFORE_BLOCKS, *convert.PASSES),
    "tflite": (*tflite.BEFORE_BLOCKS, *tflite.PASSES),
}
PASSES: Final = {f"{key}-{name_pass(each)}": each for key, listed in LISTS.items() for each in listed}
#: What changes variables, cuDNN's ops and the drop-in alone, or ops that no CPU runs as they are.
UNUSED: Final = {
    "tensorflow-convert_assigned_variables",
    "plan-drop_reserve_space",
    "plan-reduce_replicas",
    "plan-compute_in_float32",
    *("source-restore_nodes", "source-replace_gather_tree", "source-keep_integers"),
}
Build = Callable[[Any], Iterator[Any]]


def cells(x: Any) -> Iterator[Any]:
    """A step of each cell that ONNX or TensorFlow Lite lacks."""
    rows, state = x[:, 0], tf.zeros([2, 2])
    bias = np.linspace(-1, 1, 8, dtype=np.float32)
    weights = np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 8)
    yield raw.GRUBlockCell(
        x=rows, h_prev=state, w_ru=weights[:, :4], w_c=weights[:, 4:6], b_ru=bias[:4], b_c=bias[4:6]
    ).h
    yield raw.LSTMBlockCell(
        x=rows, cs_prev=state, h_prev=state, w=weights, b=bias, wci=[0.0], wcf=[0.0], wco=[0.0]
    ).h


def images(x: Any) -> Iterator[Any]:
    """Convolutions and pools of images."""
    rng = np.random.default_rng(4)
    image = tf.reshape(x, [1, 4, 6, 1])
    window = rng.uniform(-1, 1, (2, 2, 1, 2)).astype(np.float32)
    yield tf.nn.conv2d(image, window, 3, "SAME")
    yield raw.MaxPool3D(input=image[None], ksize=[1, 1, 2, 2, 1], strides=[1] * 5, padding="VALID")
    yield raw.SpaceToBatchND(input=image, block_shape=[2], paddings=[[0, 0]])
    yield raw.BiasAdd(value=image, bias=[1.0] * 4, data_format="NCHW")
    grouped = tf.nn.conv2d(tf.tile(image, [1, 1, 1, 2]), window, 1, "SAME")
    yield tf.nn.bias_add(grouped, [1.0, 2.0])
    kernel = tf.reshape(tf.tile(x[0, :, 0], [3]), [2, 2, -1, 1])
    of_open_channels = tf.reshape(x, [1, 2, 4, -1])
    yield raw.DepthwiseConv2dNative(input=of_open_channels, filter=kernel, strides=[1] * 4, padding="SAME")


def numbers(x: Any) -> Iterator[Any]:
    """Ops that have other kernels elsewhere, or none."""
    yield tf.cast(tf.bitcast(x, tf.int32) & tf.int32.min < 0, tf.int32)
    yield tf.math.real(raw.RFFT(input=x, fft_length=[3]))
    yield raw.Bucketize(input=x, boundaries=[-0.5, 0.5])
    yield raw.Sqrt(x=x * x + 1.0)
    yield tf.reduce_mean(x, 1)
    yield raw.Rsqrt(x=tf.reduce_mean(x * x, -1, keepdims=True) + tf.constant(0.5))
    yield tf.cast(tf.cast(x, tf.float64) * 0.5, tf.float32)
    yield x[: tf.shape(x)[0] - 1]
    yield raw.Reverse(tensor=x, dims=[False, True, False])


def shapes(x: Any) -> Iterator[Any]:
    """Axes that come and go, checks and waits."""
    yield tf.squeeze(tf.transpose(x, [1, 0, 2])[..., :1], 2)
    yield tf.transpose(x, [1, 0, 2])[:, :, None]
    yield tf.ensure_shape(tf.reshape(x, tf.shape(x) * 1), [2, 4, 3])
    with tf.control_dependencies([tf.tanh(x)]):
        yield tf.exp(x)


def training(x: Any) -> Iterator[Any]:
    """What a flag turns off by its default, and a rate."""
    is_training = v1.placeholder_with_default(False, [], "is_training")
    for flag in (is_training, tf.constant(False)):
        yield v1.cond(flag, lambda: floor_dropout(x, 0.5), lambda: tf.identity(x))
    yield floor_dropout(x, tf.constant(1.0))


def loops(x: Any) -> Iterator[Any]:
    """Arrays in a loop of TensorFlow 1, a variable that it does not change, and one that only ends it."""

    def step(k: Any, kept: Any, same: Any, _: Any) -> tuple[Any, ...]:
        return k + 1, kept.write(k, tf.transpose(x[k] * same, [1, 0])), same, k < 1

    first = [0, tf.TensorArray(tf.float32, 2), tf.constant(2.0), tf.constant(True)]
    k, items, *_ = v1.while_loop(lambda k, _, __, goes_on: (k < 2) & goes_on, step, first)
    yield items.stack()
    yield k


def lists(x: Any) -> Iterator[Any]:
    """Lists in a loop of TensorFlow 2, in a function."""
    yield tf.map_fn(tf.tanh, x)


def unranked(x: Any) -> Iterator[Any]:
    """A list whose items have no rank."""
    begun = raw.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.float32)

    def step(k: Any, kept: Any) -> tuple[Any, Any]:
        return k + 1, raw.TensorListSetItem(input_handle=kept, index=k, item=tf.tanh(x[k]))

    _, items = tf.while_loop(lambda k, _: k < 2, step, [0, begun])
    yield raw.TensorListStack(input_handle=items, element_shape=-1, element_dtype=tf.float32)


def draw(build: Build, *, with_functions: bool = False) -> tuple[Graph, list[str]]:
    """A graph of the input `x:0`, and its ends: one op that it has is not needed."""
    with tf.Graph().as_default() if with_functions else drawing() as graph:
        x = v1.placeholder("float32", [None, None, 3], "x")
        ends = [value.name for value in (x, *build(x))]
        tf.constant(3.0, name="beside")
    return Graph(graph.as_graph_def()), ends


def lay_flat(build: Build) -> tuple[Graph, list[str]]:
    """As `draw`, with the functions of loops laid flat."""
    graph, ends = draw(build, with_functions=True)
    return inline_functions(graph, ends, around=["Tanh"]), ends


def draw_needed(build: Build) -> tuple[Graph, list[str]]:
    """As `draw`, without ops that no end needs."""
    graph, ends = draw(build)
    return prune(graph, ends), ends


GRAPHS: Final[dict[str, Callable[[], tuple[Graph, list[str]]]]] = {
    **{build.__name__: partial(draw, build) for build in (cells, images, numbers, shapes, training, loops)},
    **{build.__name__: partial(draw, build, with_functions=True) for build in (lists, unranked)},
    "flat lists": partial(lay_flat, lists),
    "needed loops": partial(draw_needed, loops),
}


@cache
def drawn(name: str) -> tuple[Graph, list[str], list[Any], bytes]:
    """A graph, its ends, what it computes at them, and its bytes before any pass."""
    graph, ends = GRAPHS[name]()
    return graph, ends, compute(graph, ends), serialize(graph)


def compute(graph: Graph, ends: list[str]) -> list[Any]:
    with session(graph, {}, optimize=False) as running:
        values: list[Any] = running.run(ends, {"x:0": X})
        return values


def serialize(graph: Graph) -> bytes:
    content: bytes = copy_graph(graph).SerializeToString(deterministic=True)
    return content


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_alone(name: str) -> None:
    changed = []
    for which in GRAPHS:
        before, ends, expected, content = drawn(which)
        after = PASSES[name](before, ends)
        assert isinstance(after, Graph)
        assert serialize(before) == content, "a pass changes no graph in place"
        if serialize(after) == content:
            assert after is before, f"{which} is the same, in another object"
            continue
        changed.append(which)
        for found, value in zip(compute(after, ends), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    assert bool(changed) != (name in UNUSED)


def test_passes_run_in_order_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[list[str]] = []

    def add_node(graph: Graph, keep: Any, *, name: str) -> Graph:
        kept.append([*(node.name for node in graph.node), *keep])
        return Graph(graph, [*graph.node, tf.compat.v1.NodeDef(name=name)])

    def rest(graph: Graph, _: Any) -> Graph:
        return graph

    caplog.set_level(logging.DEBUG, "cudnn_convert")
    listed = (partial(add_node, name="one"), rest, partial(add_node, name="two"))
    graph = run_passes(Graph(v1.GraphDef()), listed, ["y:0"])
    assert [node.name for node in graph.node] == ["one", "two"]
    assert kept == [["y:0"], ["one", "y:0"]]
    assert caplog.messages == ["add_node: 1 nodes", "rest: no change", "add_node: 2 nodes"]
