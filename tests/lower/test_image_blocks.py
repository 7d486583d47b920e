"""Dilated rows of images, in TensorFlow Lite: its kernels take a block of rows and columns alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder
from support.recorded import assert_close

import cudnn_convert
from cudnn_convert.graph import constant_folding
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.session import session
from cudnn_convert.lower import image_blocks

RNG = np.random.default_rng(8)
KERNEL = RNG.uniform(-1, 1, (2, 2, 3, 3)).astype(np.float32)
IMAGE = RNG.uniform(-1, 1, (2, 9, 5, 3)).astype(np.float32)


def dilated(shape: tuple[int | None, ...] = (None, 9, 5, 3)) -> tf.Graph:
    """Rows two apart are convolved, and a value that is read in between keeps the two ops apart."""
    with drawing() as graph:
        blocks = tf.space_to_batch_nd(placeholder("x", shape), [2], [[1, 2]])
        convolved = tf.nn.conv2d(blocks, KERNEL, 1, "VALID")
        tf.raw_ops.BatchToSpaceND(input=tf.tanh(convolved), block_shape=[2], crops=[[0, 1]], name="y")
    return graph


def test_blocks_get_a_column() -> None:
    source = Graph.of(dilated().as_graph_def())
    changed = image_blocks.widen_blocks(source)
    blocks = [constant_folding.fold_constant(changed.index, f"{node.input[1]}:0") for node in changed.node
              if node.op in ("SpaceToBatchND", "BatchToSpaceND")]  # fmt: skip
    assert [block.tolist() for block in blocks if block is not None] == [[2, 1], [2, 1]]
    answers = []
    for graph in (source, changed):
        with session(graph, {}) as opened:
            answers.append(opened.run("y:0", {"x:0": IMAGE}))
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("shape", [(None, 9, 3), (None, 9, 5, 4, 3)], ids=len)
def test_blocks_of_others_stay(shape: tuple[int | None, ...]) -> None:
    with drawing() as graph:
        tf.space_to_batch_nd(placeholder("x", shape), [2], [[1, 2]], name="y")
    whole = Graph.of(graph.as_graph_def())
    assert image_blocks.widen_blocks(whole) is whole


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/verification/ops")
def test_tensorflow_lite_runs_them(tmp_path: Path) -> None:
    source, out = tmp_path / "model.pb", tmp_path / "out.tflite"
    source.write_bytes(dilated().as_graph_def().SerializeToString())
    cudnn_convert.convert(source, out, format="tflite", outputs="y:0", force_convert=True)
    with session(Graph.of(dilated().as_graph_def()), {}) as opened:
        expected = opened.run("y:0", {"x:0": IMAGE})
    assert_close(cudnn_convert.run(out, data={"x": IMAGE}).outputs[0]["y"], expected)
