"""Transpositions in loops and around them, which TensorFlow Lite's converter would let share a constant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder
from support.recorded import assert_close

import cudnn_convert
from cudnn_convert.graph import control_flow, ops
from cudnn_convert.graph.graph import Graph
from cudnn_convert.lower import permutations

RNG = np.random.default_rng(3)
KERNEL = RNG.uniform(-1, 1, (2, 2, 3, 3)).astype(np.float32)


def repeat(step: Any, y: Any) -> Any:
    return tf.while_loop(lambda k, _: k < 2, lambda k, y: (k + 1, step(y)), [0, y])[1]


def compute(x: Any, *, is_first: bool) -> Any:
    """A convolution by itself, in a loop and in a loop of that; between transpositions if it `is_first`."""
    last, first = tf.constant([0, 2, 3, 1]), tf.constant([0, 3, 1, 2])

    def step(y: Any, *, orders: Any = ([0, 2, 3, 1], [0, 3, 1, 2])) -> Any:
        y = tf.transpose(y, orders[0]) if is_first else y
        y = tf.tanh(tf.nn.conv2d(y, KERNEL, 1, "SAME"))
        return tf.ensure_shape(tf.transpose(y, orders[1]), x.shape) if is_first else y

    return repeat(lambda y: repeat(step, step(y, orders=(last, first))), step(x, orders=(last, first)))


def drawn(*, has_functions: bool) -> tf.Graph:
    with tf.Graph().as_default() if has_functions else drawing() as graph:
        tf.identity(compute(placeholder("x", (None, 3, 4, 5)), is_first=True), "y")
    return graph


@pytest.mark.slow("cudnn_convert/artifacts", "cudnn_convert/verification/ops")
@pytest.mark.parametrize("has_functions", [False, True])
def test_a_loop_has_what_stands_around_it_too(tmp_path: Path, *, has_functions: bool) -> None:
    """Loops of TensorFlow 1 and 2; their constants stand in them, or come from outside."""
    source, out = tmp_path / "source.pb", tmp_path / "out.tflite"
    source.write_bytes(drawn(has_functions=has_functions).as_graph_def().SerializeToString())
    cudnn_convert.convert(source, out, format="tflite", outputs="y:0")
    x = RNG.uniform(-1, 1, (2, 3, 4, 5)).astype(np.float32)
    expected = compute(tf.constant(x.transpose(0, 2, 3, 1)), is_first=False).numpy()
    found = cudnn_convert.run(out, data={"x": x}).outputs[0]["y"]
    assert_close(found, expected.transpose(0, 3, 1, 2))


def test_each_has_a_constant_of_its_own_frame() -> None:
    made = permutations.separate_permutations(Graph.of(drawn(has_functions=False).as_graph_def()))
    frames = control_flow.frames(made.index)
    readers = [node for node in made.node if node.op == "Transpose"]
    perms = [made.index.nodes[node.input[1]] for node in readers]
    assert len({perm.name for perm in perms}) == len({str(perm.attr) for perm in perms}) == len(readers) == 6
    assert {len(frames[node.name]) for node in readers} == {0, 1, 2}
    for reader, perm in zip(readers, perms, strict=True):
        assert frames[perm.name] == frames[reader.name]
        assert made.index.nodes[perm.input[0].removeprefix("^")].op not in ops.SWITCHES


def test_a_graph_without_loops_stays() -> None:
    with drawing() as graph:
        tf.transpose(placeholder("x"), [2, 0, 1])
    source = Graph.of(graph.as_graph_def())
    assert permutations.separate_permutations(source) is source
