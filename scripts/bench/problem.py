"""One recurrence to run: random weights, an input, the right answer, and the checkpoint that has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from shapes import Shape

from cudnn_convert import reference
from cudnn_convert.model import Array, BlobEvidence, Mode, Recurrence, Sizes
from cudnn_convert.weights import parameter_blob

v1 = tf.compat.v1
INPUT: Final = "x"
OUTPUT: Final = "y"


@dataclass(frozen=True)
class Problem:
    """What every implementation is given, time-major as cuDNN has it.

    `x [steps, batch, inputs]` is float32, `truth [steps, batch, directions*units]` float64. `checkpoint` is
    the prefix of one with a graph, from tensor `x:0` to `y:0`; `folder` takes what is built.
    """

    shape: Shape
    recurrence: Recurrence
    x: Array
    truth: Array
    folder: Path
    checkpoint: Path

    @property
    def mode(self) -> Mode:
        return self.recurrence.sizes.mode


def posed(cell: str, shape: Shape, folder: Path, *, seed: int) -> Problem:
    """Uniform weights of a width that keeps gates open, a normal input, and the reference's answer."""
    sizes = Sizes(Mode(cell), shape.layers, shape.directions, shape.units, shape.inputs)
    chance = np.random.default_rng(seed)
    reach = 1 / np.sqrt(shape.units)
    blob = chance.uniform(-reach, reach, parameter_blob.length(sizes)).astype(np.float32)
    x = chance.standard_normal((shape.steps, shape.batch, shape.inputs)).astype(np.float32)
    recurrence = Recurrence(
        node=OUTPUT,
        op="CudnnRNN",
        sizes=sizes,
        time_major=True,
        lengths=False,
        dtype=blob.dtype,
        cells=parameter_blob.split(blob, sizes, where="blob"),
        evidence=BlobEvidence(blob),
        shared="blob",
    )
    return Problem(shape, recurrence, x, _truth(blob, sizes, x), folder, _saved(folder, blob, sizes))


def error(problem: Problem, answer: Array) -> float:
    """The largest absolute difference from the truth; infinite where the shape or a value is not one."""
    if answer.shape != problem.truth.shape or not np.isfinite(answer).all():
        return float("inf")
    return float(np.abs(answer - problem.truth).max())


@contextmanager
def tensorflow_1() -> Iterator[Any]:
    """A fresh graph with the loops of TensorFlow 1: Switch, Merge, Enter."""
    before = v1.control_flow_v2_enabled()
    v1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            yield graph
    finally:
        if before:
            v1.enable_control_flow_v2()


def _truth(blob: Array, sizes: Sizes, x: Array) -> Array:
    steps = reference.steps_from_blob(
        blob,
        sizes.mode.value,
        layers=sizes.layers,
        directions=sizes.directions,
        units=sizes.units,
        input_size=sizes.input_size,
    )
    zeros = np.zeros((sizes.layers * sizes.directions, x.shape[1], sizes.units))
    return reference.run(steps, x.astype(np.float64), zeros, zeros, directions=sizes.directions)[0]


def _saved(folder: Path, blob: Array, sizes: Sizes) -> Path:
    """What a training of TensorFlow 1 leaves: a checkpoint with a graph of one cuDNN node.

    The values come from a graph of their own: no Session takes a graph with an op that has no kernel here.
    """
    prefix = folder / "model.ckpt"
    with tensorflow_1() as graph, v1.Session(graph=graph) as session:
        value = v1.get_variable("blob", [blob.size], use_resource=False)
        value.load(blob, session)
        v1.train.Saver([value]).save(session, str(prefix), write_meta_graph=False)
    with tensorflow_1() as graph:
        x = v1.placeholder(tf.float32, [None, None, sizes.input_size], INPUT)
        zeros = tf.zeros([sizes.layers * sizes.directions, tf.shape(x)[1], sizes.units])
        y = tf.raw_ops.CudnnRNN(
            input=x,
            input_h=zeros,
            input_c=zeros,
            params=tf.raw_ops.VariableV2(shape=[blob.size], dtype=tf.float32, name="blob"),
            rnn_mode=sizes.mode.value,
            direction="bidirectional" if sizes.directions == 2 else "unidirectional",
            is_training=False,
        ).output
        tf.identity(y, OUTPUT)
    meta = v1.MetaGraphDef(graph_def=graph.as_graph_def())
    Path(f"{prefix}.meta").write_bytes(meta.SerializeToString())
    return prefix
