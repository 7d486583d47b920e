"""Reductions over open axes in TensorFlow Lite: of nothing, and of an image with many pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from support.graphs import drawing, placeholder
from support.recorded import assert_close
from support.versions import needs

import cudnn_convert


@needs("tensorflow", 2, 20, why="a mean of TensorFlow Lite 2.18 is wrong, and refused")
def test_a_mean_over_an_image_keeps_its_digits(tmp_path: Path) -> None:
    """Pixels near 0.9, whose sum is rounded the same way at each step, and an image without columns."""
    with drawing() as graph:
        x = placeholder("x", (None, None, None, 2))
        tf.reduce_mean(x, [1, 2], name="pixels")
        tf.reduce_mean(x, [-2, 1], keepdims=True, name="kept")
        tf.reduce_mean(x, [3, 2, 1], name="all")
        tf.reduce_max(x, [1, 2], name="largest")
    source, out = tmp_path / "source.pb", tmp_path / "out.tflite"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    outputs = ["pixels:0", "kept:0", "all:0", "largest:0"]
    cudnn_convert.convert(source, out, format="tflite", outputs=outputs)
    chance = np.random.default_rng(3)
    image = (0.9 + 0.001 * chance.choice([-1, 1], (3, 67, 71, 2))).astype(np.float32)
    answer = cudnn_convert.run(out, data={"x": image}).outputs[0]
    exact = image.astype(np.float64)
    # 71 sums of numbers near 1 round by a unit in the last place of 64 at most: 71 * 4e-6 / 71.
    assert_close(answer["pixels"], exact.mean((1, 2)), 4e-6)
    assert_close(answer["kept"], exact.mean((1, 2), keepdims=True), 4e-6)
    assert_close(answer["all"], exact.mean((1, 2, 3)), 4e-6)
    np.testing.assert_array_equal(answer["largest"], image.max((1, 2)))
    empty = cudnn_convert.run(out, data={"x": image[:, :, :0]}).outputs[0]
    assert np.isnan(empty["pixels"]).all()
    assert (empty["largest"] == -np.inf).all()
