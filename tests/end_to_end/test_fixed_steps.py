"""Graphs that fix the number of their steps, in chunks of other numbers, beside NumPy on the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.chunks import chunked, planned
from support.fixed_steps import FixedCase
from support.recorded import assert_close
from support.samples import ROOT
from support.tiers import some

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError

#: The number of steps is a size of something else too: of the units, of the inputs.
CASES = {
    "reshape": FixedCase("reshape", units=10, inputs=10),
    "product": FixedCase("product", inputs=10),
    "tile": FixedCase("tile"),
    "fill": FixedCase("fill", units=10),
    "mask": FixedCase("mask"),
    "slice": FixedCase("slice"),
    "last": FixedCase("last", units=10),
}


@pytest.mark.every
@pytest.mark.parametrize("form", ["savedmodel", "frozen", "onnx", "tflite"])
@pytest.mark.parametrize("kind", CASES)
def test_chunks_of_a_graph_of_fixed_steps_are_the_whole(tmp_path: Path, kind: str, form: str) -> None:
    case, out = CASES[kind], tmp_path / "out"
    source = case.save(tmp_path)
    report = cudnn_convert.convert(source, out, format=form, states=True, outputs=["scores:0"])
    assert "the number of steps is open; the source fixed it" in report.notes
    feeds = case.feeds()
    plan = planned(source, form, outputs=["scores:0"])
    found = chunked(plan, out, form, feeds, tmp_path / "user", rows=3)
    assert_close(found["scores"], case.answer(feeds), 1e-5, name=(kind, form))


#: A frozen graph of TensorFlow 1.15, and what the same graph answered with its recurrence step by step.
RECORDED = ROOT / "tests" / "data" / "streams" / "fixed_graph"


@pytest.mark.parametrize("form", some(["onnx"], "savedmodel", "frozen", "tflite"))
def test_chunks_of_a_frozen_graph_are_what_tensorflow_answered(tmp_path: Path, form: str) -> None:
    source, out = RECORDED / "frozen.pb", tmp_path / "out"
    cudnn_convert.convert(source, out, format=form, states=True)
    with np.load(RECORDED / "golden.npz") as golden:
        feeds, answer = {"features": golden["in/features"]}, golden["out/0"]
    found = chunked(planned(source, form), out, form, feeds, tmp_path / "user", rows=3)
    assert_close(found["gains"], answer, 1e-5, name=form)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("table", r"add: --states: expected ops that take any number of steps, found AddV2 for 10 alone"),
        ("flat", r"MatMul: --states: expected ops that take any number of steps, found MatMul for 10 alone"),
        ("rows", r"Reshape_1: --states: expected sizes with one meaning, found 10, which may be the number"),
    ],
)
def test_a_number_of_steps_that_stays_is_named(tmp_path: Path, kind: str, message: str) -> None:
    source = FixedCase(kind).save(tmp_path)
    with pytest.raises(UnsupportedModelError, match=message) as refused:
        planned(source, "onnx", outputs=["scores:0"])
    [reason] = refused.value.reasons
    inspection = cudnn_convert.inspect(source, outputs=["scores:0"])
    assert inspection.stream_command is None
    assert inspection.stream_reasons == (str(reason),)
