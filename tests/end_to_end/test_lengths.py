"""Lengths that a graph states in ways of its own: beside a fixed number of steps, or never read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, INPUTS, UNITS, drawing, placeholder, saved, v1, variable
from support.recorded import assert_close

import cudnn_convert
from cudnn_convert.reference import run, steps_from_blob

BATCH = 3


def recurrence(x: Any, lengths: Any) -> Any:
    zeros = tf.zeros([1, tf.shape(x)[1], UNITS])
    params = variable("blob", BLOB.shape)
    return tf.raw_ops.CudnnRNNV3(
        input=x, input_h=zeros, input_c=zeros, params=params, sequence_lengths=lengths, is_training=False
    )


def expected(x: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """The final state, `[1, batch, units]`."""
    steps = steps_from_blob(BLOB, "lstm", layers=1, directions=1, units=UNITS, input_size=INPUTS)
    zeros = np.zeros([1, BATCH, UNITS])
    return run(steps, x.astype(np.float64), zeros, zeros, directions=1, lengths=lengths)[1]


def drawn(steps: int) -> np.ndarray:
    return np.float32(np.random.default_rng(5).standard_normal([steps, BATCH, INPUTS]))


@pytest.mark.first("1-onnx")
@pytest.mark.parametrize("form", ["onnx", pytest.param("savedmodel", marks=pytest.mark.every)])
@pytest.mark.parametrize("steps", [1, 7, 30])
def test_lengths_stay_within_a_fixed_number_of_steps(tmp_path: Path, form: str, steps: int) -> None:
    """Random feeds have 17 steps where nothing says otherwise; no row of an input of 7 is so long."""
    with drawing() as graph:
        x = placeholder("x", [steps, None, INPUTS])
        tf.identity(recurrence(x, placeholder("lengths", [None], tf.int32)).output_h, name="y")
    source = saved(tmp_path, graph, {"blob": BLOB})
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, outputs=["y:0"])
    assert report.verification is not None
    assert report.verification.passed


def test_lengths_that_nothing_reads_are_still_fed_by_their_name(tmp_path: Path) -> None:
    """They stand for the batch alone: all rows are full, which the lowering sees."""
    with drawing() as graph:
        x, lengths = placeholder("x"), placeholder("lengths", [None], tf.int32)
        tf.identity(recurrence(x, tf.fill(tf.shape(lengths), tf.shape(x)[0])).output_h, name="y")
    source = saved(tmp_path, graph, {"blob": BLOB})
    report = cudnn_convert.convert(source, tmp_path / "out.pb", format="frozen", outputs=["y:0"])
    assert [*report.inputs] == ["x", "lengths"]
    assert cudnn_convert.verify(source, tmp_path / "out.pb").passed
    made = v1.GraphDef.FromString((tmp_path / "out.pb").read_bytes())
    with tf.Graph().as_default(), v1.Session() as session:
        tf.import_graph_def(made, name="")
        fed = {"x:0": drawn(5), "lengths:0": np.int32([1, 2, 3])}
        found = session.run("y:0", fed)
    assert_close(found, expected(drawn(5)))
