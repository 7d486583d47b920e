"""Sequences in chunks from where the model begins: what a user's process gets, beside NumPy on the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.chunks import chunked, planned
from support.recorded import assert_close
from support.samples import ROOT
from support.starts import STARTS, STRUCTURES, Case
from support.tiers import combinations, some, tier

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, UsageError, VerificationError
from cudnn_convert.graph import node_defs
from cudnn_convert.graph.graph import Graph, replace_nodes
from cudnn_convert.graph.passes import stream_states

FORMATS = ("savedmodel", "frozen", "onnx", "tflite")
#: The start that is computed from rows of the inputs, in the first tier.
FIRST = {("rows", "one_layer", "onnx")}


@combinations(
    lambda start, structure, form: (start, structure, form) in FIRST,
    start=STARTS,
    structure=STRUCTURES,
    form=FORMATS,
)
def test_chunks_from_the_beginning_are_the_whole(
    tmp_path: Path, start: str, structure: str, form: str
) -> None:
    case = Case(start, structure)
    source, out = case.save(tmp_path), tmp_path / "out"
    report = cudnn_convert.convert(source, out, format=form, states=True, outputs=["scores:0"])
    assert report.verification is not None
    assert report.verification.streaming is not None
    feeds = case.feeds()
    plan = planned(source, form, outputs=["scores:0"])
    found = chunked(plan, out, form, feeds, tmp_path / "user", rows=feeds["x"].shape[1])
    assert_close(found["scores"], case.answer(feeds), 1e-5, name=(start, structure, form))
    assert cudnn_convert.verify(source, out).streaming is not None


@pytest.mark.parametrize(
    ("start", "form"),
    [
        pytest.param(
            *(start, form),
            marks=(
                pytest.mark.mutant(
                    f"streaming: begins with zeros, {'tflite' if form == 'tflite' else 'a graph'}"
                ),
                *tier(first=(start, form) in {("trained", "onnx"), ("speaker", "tflite")}),
            ),
        )
        for start in STARTS[1:]
        for form in FORMATS
    ],
)
def test_a_beginning_with_zeros_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, form: str
) -> None:
    make = stream_states.stream_states

    def begin_with_zeros(graph: Any, states: Any, *, defaults: bool) -> Graph:
        made = make(graph, states, defaults=defaults)
        changes = {}
        for state in states:
            node = state.begin.removesuffix(":0")
            changes[node] = node_defs.copy_node(made.index.nodes[node])
            changes[node].op = "ZerosLike"
        return replace_nodes(made, changes)

    monkeypatch.setattr(stream_states, "stream_states", begin_with_zeros)
    source = Case(start, "two_recurrences").save(tmp_path)
    with pytest.raises(VerificationError) as refused:
        cudnn_convert.convert(source, tmp_path / "out", format=form, states=True, outputs=["scores:0"])
    assert any("begin" in str(reason) for reason in refused.value.reasons)
    assert not (tmp_path / "out").exists()


#: A denoiser for 100 steps at a time, of tf.keras, and what it answered.
FIXED = ROOT / "tests" / "data" / "streams" / "fixed_steps"


@pytest.mark.slow("cudnn_convert/plan", "cudnn_convert/verification")
@pytest.mark.parametrize("form", some(["onnx"], "savedmodel", "tflite", "frozen"))
def test_a_model_of_fixed_steps_streams(tmp_path: Path, form: str) -> None:
    source, out = FIXED / "model.h5", tmp_path / "out"
    report = cudnn_convert.convert(source, out, format=form, states=True)
    assert "the number of steps is open; the source fixed it" in report.notes
    with np.load(FIXED / "golden.npz") as golden:
        feeds, answers = {"feat": golden["in/feat"]}, [golden["out/0"], golden["out/1"]]
    plan = planned(source, form)
    values = chunked(plan, out, form, feeds, tmp_path / "user", rows=3)
    for key, expected in zip(("gains", "vad"), answers, strict=True):
        assert_close(values[key], expected, 1e-5, name=(key, form))


def test_a_layer_that_needs_the_fixed_steps_is_named(tmp_path: Path) -> None:
    import tf_keras

    inputs = tf_keras.Input((10, 4))
    y = tf_keras.layers.Flatten()(tf_keras.layers.LSTM(5, return_sequences=True)(inputs))
    tf_keras.Model(inputs, tf_keras.layers.Dense(3)(y)).save(tmp_path / "model.h5")
    expected = "expected layers that take any number of steps, found one that does not: .*Dense"
    with pytest.raises(UnsupportedModelError, match=expected) as refused:
        cudnn_convert.convert(tmp_path / "model.h5", tmp_path / "out", states=True)
    assert str(refused.value).count("; ") == 1


def test_a_beginning_of_its_own_needs_a_folder(tmp_path: Path) -> None:
    source = Case("speaker", "one_layer").save(tmp_path)
    with pytest.raises(
        UsageError, match=r"expected a folder for the parts stream, begin, found out\.onnx"
    ) as refused:
        cudnn_convert.convert(source, tmp_path / "out.onnx", states=True, outputs=["scores:0"])
    assert "name one without suffix and give --format onnx" in str(refused.value)
