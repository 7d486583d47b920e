"""What TensorFlow's optimizer makes of arithmetic is the same in the source and in what is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from support.graphs import BLOB, drawing, lstm, placeholder

import cudnn_convert

SIDES = {"inputs": "x:0", "outputs": ["rnn:0", "end:0"]}


def written(path: Path, build: Callable[[Any], Any]) -> Path:
    """A frozen graph of a recurrence, and of what `build` makes of the input beside it."""
    with drawing() as graph:
        x = placeholder("x")
        lstm(x, tf.constant(BLOB))
        tf.identity(build(x), "end")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@pytest.mark.parametrize("form", ["savedmodel", "frozen"])
def test_a_sum_that_is_taken_back_is_its_input_in_both(form: str, tmp_path: Path) -> None:
    source = written(tmp_path / "source.pb", lambda x: (x + 1e10) - 1e10)  # 0 as it is written
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, **SIDES)
    assert report.verification is not None
    assert report.verification.passed
    said = [line for line in report.verification.warnings if "optimizer rewrites" in line]
    assert [line.partition(":")[0] for line in said] == ["output end"]


@pytest.mark.parametrize("other", [lambda x: x * 1.001, lambda x: x * 0.0 + 1e-3])
def test_what_is_neither_differs(other: Callable[[Any], Any], tmp_path: Path) -> None:
    source = written(tmp_path / "source.pb", lambda x: (x + 1e10) - 1e10)
    artifact = tmp_path / "other"
    wrong = written(tmp_path / "wrong.pb", other)
    cudnn_convert.convert(wrong, artifact, verify=False, **SIDES)
    with pytest.raises(cudnn_convert.VerificationError, match=r"output end: .* expected 0, found"):
        cudnn_convert.verify(source, artifact, **SIDES)
