"""Recurrences behind a gate that is shut, so that outputs show nothing of what stands around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.model import Mode
from support import hidden_recurrences
from support.cases import Case

v1 = tf.compat.v1


CASE = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3")


def source(folder: Path) -> Path:
    """Two layers of two directions, states and lengths, behind a dense layer and a gate that is shut."""
    rng = np.random.default_rng(3)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 3], "x")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        kernel = tf.constant(rng.uniform(-0.5, 0.5, (3, CASE.inputs)).astype(np.float32))
        inner = tf.tensordot(x, kernel, 1)
        states = [
            tf.tile(tf.constant(rng.uniform(-1, 1, (4, 1, 5)).astype(np.float32)), [1, tf.shape(x)[1], 1])
            for _ in range(2)
        ]
        y = CASE.op_call(inner, *states, lengths).output
        tf.identity(y * tf.cast(tf.reduce_max(x) > 99.0, tf.float32), "answer")
    path = folder / "gated.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def gated(folder: Path, answer: Callable[[Any], Any]) -> Path:
    """What `answer` makes of `x [time, batch, 4]`, behind a gate that is shut."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 4], "x")
        tf.identity(answer(x) * tf.cast(tf.reduce_max(x) > 99.0, tf.float32), "answer")
    path = folder / "gated.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def states(case: Case, x: Any) -> list[Any]:
    """Distinct initial states for a case."""
    rng = np.random.default_rng(4)
    return [
        tf.tile(
            tf.constant(rng.uniform(-1, 1, (case.depth, 1, width)).astype(np.float32)), [1, tf.shape(x)[1], 1]
        )
        for width in (case.sizes.width, case.units)
    ]


def of_twins(x: Any) -> Any:
    """Two recurrences with the weights of one, the second on what the first gives."""
    case = Case(Mode.LSTM, units=4)
    weights = tf.constant(case.blob, name="blob")
    first = case.op_call(x, *states(case, x), params=weights, name="first").output
    return case.op_call(first * 0.7, *states(case, x), params=weights, name="second").output


def other_constant_in_tflite(file: Path, old: float, new: float) -> None:
    """One constant of floats has another value."""

    def change(value: np.ndarray) -> np.ndarray:
        return np.full_like(value, new) if value == np.float32(old) else value

    assert hidden_recurrences.change_tflite(file, change, lambda *_: True, rank=0) == 1
