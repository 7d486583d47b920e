"""Convolutions whose windows leave out places answer as TensorFlow's, with XNNPACK too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder
from support.recorded import assert_close

import cudnn_convert
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.session import session
from cudnn_convert.lower import same_padding

RNG = np.random.default_rng(3)
KERNEL = RNG.uniform(0.5, 1, (3, 3, 2, 2)).astype(np.float32)


def convolve(x: Any, window: tuple[int, int], stride: int, *, depthwise: bool = False, **options: Any) -> Any:
    kernel = KERNEL[: window[0], : window[1]]
    if depthwise:
        return tf.nn.depthwise_conv2d(x, kernel[..., :1], [1, stride, stride, 1], "SAME", **options)
    return tf.nn.conv2d(x, kernel, [1, stride, stride, 1], "SAME", **options)


def answer(graph: Any, x: Any) -> Any:
    with session(graph, {}) as opened:
        return opened.run("y:0", {"x:0": x})


@pytest.mark.first("True-True")
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_every_size_gets_the_padding_of_same(*, depthwise: bool, is_open: bool) -> None:
    changed = 0
    for window, stride in [((1, 2), 2), ((2, 1), 3), ((2, 3), 4), ((1, 1), 2), ((3, 2), 3)]:
        for height, width in [(1, 2), (4, 3), (5, 8), (6, 6), (7, 9)]:
            sizes = (None, None) if is_open else (height, width)
            with drawing() as graph:
                x = placeholder("x", (None, *sizes, 2))
                tf.identity(convolve(x, window, stride, depthwise=depthwise), "y")
            source = Graph.of(graph.as_graph_def())
            made = same_padding.replace_padding(source)
            image = RNG.uniform(0.5, 1, (2, height, width, 2)).astype(np.float32)
            np.testing.assert_allclose(answer(made, image), answer(source, image), rtol=1e-5)
            kept = [node for node in made.node if node.attr["padding"].s == b"SAME"]
            ends = [
                (-(-size // stride) - 1) * stride + span
                for size, span in zip((height, width), window, strict=True)
            ]
            assert bool(kept) == (not is_open and ends[0] >= height and ends[1] >= width)
            changed += not kept
    assert changed > 10


def test_what_needs_no_padding_gets_none() -> None:
    with drawing() as graph:
        x = placeholder("x", (None, None, None, 2))
        tf.identity(convolve(x, (1, 1), 2), "y")
    ops = {node.op for node in same_padding.replace_padding(Graph.of(graph.as_graph_def())).node}
    assert ops == {"Placeholder", "Const", "Conv2D", "Identity"}


def test_others_stay() -> None:
    with drawing() as graph:
        x = placeholder("x", (None, 4, 5, 2))
        tf.identity(convolve(x, (2, 2), 2) + convolve(x, (3, 3), 2), "y")
        tf.nn.conv2d(x, KERNEL[:1, :2], 2, "VALID")
    source = Graph.of(graph.as_graph_def())
    assert same_padding.replace_padding(source) is source


@pytest.mark.slow("cudnn_convert/lower", "cudnn_convert/verification/ops")
@pytest.mark.parametrize("has_functions", [False, True])
def test_they_see_their_image_in_tensorflow_lite(tmp_path: Path, *, has_functions: bool) -> None:
    """By themselves, and as the first op of a branch and of a loop; with XNNPACK they would give zeros."""
    rng = np.random.default_rng(5)

    def draw(x: Any) -> Any:
        y = convolve(x, (1, 2), 2) + convolve(x, (2, 1), 2, depthwise=True)
        y = tf.cond(x[0, 0, 0, 0] > 0, lambda: convolve(y, (2, 1), 3), lambda: convolve(y, (1, 2), 3))

        def step(k: Any, y: Any) -> tuple[Any, Any]:
            return k + 1, tf.tile(convolve(y, (1, 2), 3), [1, 2, 2, 1])

        return tf.while_loop(lambda k, _: k < 2, step, [0, y])[1]

    with tf.Graph().as_default() if has_functions else drawing() as graph:
        tf.identity(draw(placeholder("x", (None, 8, 10, 2))), "y")
    source, out = tmp_path / "source.pb", tmp_path / "out.tflite"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    cudnn_convert.convert(source, out, format="tflite", outputs="y:0")
    image = rng.uniform(0.1, 1, (3, 8, 10, 2)).astype(np.float32)
    for x in (image, -image):
        assert_close(cudnn_convert.run(out, data={"x": x}).outputs[0]["y"], draw(tf.constant(x)).numpy())


@pytest.mark.slow("cudnn_convert/lower", "cudnn_convert/verification/ops")
def test_a_lite_file_pads_every_size(tmp_path: Path) -> None:
    def draw(x: Any) -> Any:
        return convolve(convolve(convolve(x, (1, 2), 2), (2, 1), 3, depthwise=True), (2, 3), 4)

    with drawing() as graph:
        tf.identity(draw(placeholder("x", (None, None, None, 2))), "y")
    source, out = tmp_path / "source.pb", tmp_path / "out.tflite"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    cudnn_convert.convert(source, out, format="tflite", outputs="y:0")
    for height, width in [(1, 2), (24, 24), (31, 39)]:
        x = RNG.uniform(0.5, 1, (2, height, width, 2)).astype(np.float32)
        assert_close(cudnn_convert.run(out, data={"x": x}).outputs[0]["y"], draw(tf.constant(x)).numpy())
