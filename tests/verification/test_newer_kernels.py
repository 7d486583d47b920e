"""Remarks on ops whose finite values changed after TensorFlow 1.15."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, model, placeholder, variable
from support.op_census import VERDICTS
from support.plans import plan_graph

from cudnn_convert.verification import newer_kernels


def describe(build: Any, *, producer: int = 134) -> list[str]:
    with drawing() as graph:
        tf.identity(build(lstm(placeholder("x"), variable("blob", BLOB.shape)).output), "scores")
    source = model(graph)
    source.graph.versions.producer = producer
    return [*newer_kernels.describe(plan_graph(source, outputs=["scores"]))]


def test_an_op_that_gave_other_values_is_named() -> None:
    def build(y: Any) -> Any:
        return tf.reduce_mean(tf.cast(y * 10, tf.int32), name="mean") + tf.cast(tf.reduce_mean(y), tf.int32)

    (remark,) = describe(build)
    assert remark.startswith("Mean mean: sums do not wrap around")
    assert describe(build, producer=175) == []


def test_every_op_that_the_census_found_otherwise_in_a_graph_of_tensorflow_has_a_remark() -> None:
    rows = [line.split("\t") for line in VERDICTS.read_text().splitlines()[1:]]
    found = {
        row[0].partition("/")[0] for row in rows if re.search(r"differs.*\b(ordinary|odd|one)\b", row[1])
    }
    # A root of -0.0, the error function beyond 1e300, and what the optimizer rewrites beyond 1e38.
    assert found - {"Rsqrt", "Erf", "AddV2"} <= {*newer_kernels.CHANGES, *newer_kernels.CHANGES_OF_INTEGERS}
