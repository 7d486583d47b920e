"""Normalisations that TensorFlow Lite computes by other ops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tensorflow as tf
from support.graphs import drawing, placeholder
from support.recorded import assert_close

import cudnn_convert


def test_small_channels_beside_large_ones_keep_their_digits(tmp_path: Path) -> None:
    with drawing() as graph:
        x = placeholder("x", (None, 2, None, 12))
        tf.nn.lrn(x, 2, 1.5, 0.2, 0.6, name="given")
        tf.raw_ops.LRN(input=x, name="usual")
    definition = graph.as_graph_def()
    (usual,) = (node for node in definition.node if node.name == "usual")
    for key in ("depth_radius", "bias", "alpha", "beta"):  # as a file may leave them out
        del usual.attr[key]
    source, out = tmp_path / "source.pb", tmp_path / "out.tflite"
    source.write_bytes(definition.SerializeToString())
    cudnn_convert.convert(source, out, format="tflite", outputs=["given:0", "usual:0"])
    image = np.random.default_rng(3).normal(size=(2, 2, 3, 12)) * 10.0 ** np.arange(12)[::-1].clip(0, 4)
    answer = cudnn_convert.run(out, data={"x": image.astype(np.float32)}).outputs[0]
    squares = np.pad(image.astype(np.float32).astype(np.float64) ** 2, [(0, 0)] * 3 + [(5, 5)])
    sums = {
        radius: sum(squares[..., 5 + k : 17 + k] for k in range(-radius, radius + 1)) for radius in (2, 5)
    }
    assert_close(answer["given"], image * (1.5 + 0.2 * sums[2]) ** -0.6)
    assert_close(answer["usual"], image * (1 + sums[5]) ** -0.5)
