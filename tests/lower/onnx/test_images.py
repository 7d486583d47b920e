"""Sizes of images in ONNX: the answers are those of TensorFlow's own kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing

import cudnn_convert
from cudnn_convert.lower.onnx.images import pick_nearest

v1 = tf.compat.v1
#: 6 rows by 5/6 are 4 where the product is rounded down; 3 x 14/6 is 7, and 6.9999995 by the inverse.
SIZES = [(6, 5), (14, 6), (5, 8), (9, 3), (4, 8), (7, 1), (1, 4)]
CENTERS = [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize(("corners", "halves"), CENTERS)
def test_the_nearest_row_is_that_of_tensorflow(corners: bool, halves: bool) -> None:
    for old in (1, 2, 3, 6, 7, 14, 23, 32):
        image = tf.range(old)[None, :, None, None]
        for new in (1, 2, 3, 5, 6, 9, 14, 21, 29, 39):
            expected = tf.raw_ops.ResizeNearestNeighbor(
                images=image, size=[new, 1], align_corners=corners, half_pixel_centers=halves
            )
            picked = pick_nearest(old, new, corners=corners, halves=halves)
            np.testing.assert_array_equal(picked, expected[0, :, 0, 0], err_msg=f"{old} to {new}")


@pytest.mark.first("11")
@pytest.mark.parametrize("opset", [11, 18])
def test_sizes_and_types_of_images(opset: int, tmp_path: Path) -> None:
    """Fixed sizes and fed ones, of floats and of bytes, and a convolution whose sum gets two biases."""
    fed: dict[str, Any] = {"size": np.array([5, 9], np.int32)}
    rng, outputs = np.random.default_rng(3), dict[str, Any]()
    with drawing() as graph:
        size = v1.placeholder(tf.int32, [2], "size")
        for number, (old, new) in enumerate(SIZES):
            kind = np.uint8 if number % 2 else np.float32
            key = f"x{number}"
            fed[key] = rng.uniform(0, 9, (2, old, 6, 3)).astype(kind)
            # Of one case the rows are open.
            image = v1.placeholder(kind, [None, None if number == 1 else old, 6, 3], key)
            for corners, halves in CENTERS:
                options = {"align_corners": corners, "half_pixel_centers": halves}
                for op in (tf.raw_ops.ResizeBilinear, tf.raw_ops.ResizeNearestNeighbor):
                    for wanted in ([new, 5], size):
                        name = f"y{len(outputs)}"
                        outputs[name] = tf.identity(op(images=image, size=wanted, **options), name)
        weights = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((2, 2, 3, 4), 4, 4))
        kernel, *biases = map(tf.constant, weights)
        image = v1.placeholder(tf.float32, [None, 6, 6, 3], "images")
        fed["images"] = rng.uniform(-1, 1, (2, 6, 6, 3)).astype(np.float32)
        convolved = tf.nn.conv2d(image, kernel, 1, "SAME")
        if opset > 11:  # of open sizes
            # A window of 1 with strides of 2 reads nothing at every other place, which has the bias too.
            shape = tf.stack([tf.shape(image)[0], 2 * tf.shape(image)[1], 12, 3])
            spread = tf.nn.conv2d_transpose(convolved, kernel[:1, :1], shape, 2, "SAME")
            outputs["spread"] = tf.nn.bias_add(spread, biases[0][:3], name="spread")
        outputs["biased"] = tf.nn.bias_add(tf.nn.bias_add(convolved, biases[0]), biases[1], name="biased")
    source, out = tmp_path / "model.pb", tmp_path / "out.onnx"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    flags = {
        "inputs": ",".join(f"{key}:0" for key in fed),
        "outputs": ",".join(f"{key}:0" for key in outputs),
    }
    cudnn_convert.convert(source, out, format="onnx", opset=opset, force_convert=True, verify=False, **flags)
    answers = cudnn_convert.run(out, data=fed).outputs[0]
    with v1.Session(graph=graph) as session:
        expected = session.run(outputs, {f"{key}:0": value for key, value in fed.items()})
    for name, value in expected.items():
        np.testing.assert_allclose(answers[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
