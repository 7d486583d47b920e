"""Weights written in another gate order, or without their forget bias: refused, and right with the flag."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.asking_files import Values, columns, lingvo, rewritten, without_forget_bias
from support.graphs import BLOB, INPUTS, UNITS, drawing, placeholder, saved, variable
from support.recorded import assert_close
from support.samples import GRAPH_FORMATS, Fixture, fixture
from support.tiers import some, tier

import cudnn_convert
from cudnn_convert import reference
from cudnn_convert.artifacts import runners
from cudnn_convert.artifacts.runners import open_artifact
from cudnn_convert.model import SERVING, Part, Signature

LSTM, GRU = "1.15.5-lstm_bi_2l_states", "1.15.5-gru_bi"


def blob(values: np.ndarray, sizes: dict[str, int], gates: int, order: list[int]) -> np.ndarray:
    """A blob of that many gates with each pseudo-layer's regions in another order."""
    units, way, place, made = sizes["units"], sizes["directions"], 0, []
    order = [*order, *range(len(order), gates)]
    widths = []
    for layer in range(sizes["layers"]):
        inputs = sizes["input_size"] if layer == 0 else way * units
        widths += [inputs * units, units * units] * way
    widths += [units] * (2 * sizes["layers"] * way)
    for width in widths:
        group = values[place : place + gates * width].reshape(gates, width)
        made.append(group[order].ravel())
        place += gates * width
    assert place == values.size
    return np.concatenate(made)


def miopen(values: Values) -> Values:
    """A blob as i, f, o, c or z, r, h, and the canonical tensors that TensorFlow's converter makes of it."""
    is_lstm = any("lstm" in key for key in values)
    gates, order = (4, [0, 1, 3, 2]) if is_lstm else (3, [1, 0])
    (sizes,) = fixture(LSTM if is_lstm else GRU).case["recurrences"]

    def changed(key: str, value: np.ndarray) -> np.ndarray:
        if key.endswith("opaque_kernel"):
            return blob(value, sizes, gates, order)
        if is_lstm:
            return columns(value, [0, 3, 2, 1])  # of the real i, c, f, o: i, o, f, c
        return columns(value, [1, 0]) if "/gates/" in key else value

    return {key: changed(key, value) for key, value in values.items()}


def check(sample: Fixture, out: Path, report: cudnn_convert.Report, form: str) -> None:
    _, path, recorded = runners.identify(out)
    assert recorded is not None
    names = Signature(recorded["tensors"]["inputs"], recorded["tensors"]["outputs"])
    run = open_artifact(form, path, [Part(SERVING, names)])
    for feed in sample.feeds():
        found = run({key: feed[name] for key, name in report.inputs.items()})
        for key, name in report.outputs.items():
            assert_close(found[key], feed[name])


CASES = {
    "forget bias": (LSTM, without_forget_bias, {"forget_bias": 1.0}, "they agree with --forget-bias 1"),
    "lingvo": (LSTM, lingvo, {"gate_order": "lingvo"}, "they agree with --gate-order lingvo"),
}


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=tier(first=form == "onnx")) for form in GRAPH_FORMATS]
)
@pytest.mark.parametrize("case", CASES)
def test_the_flag_gives_the_original_numbers(tmp_path: Path, case: str, form: str) -> None:
    name, change, flags, _ = CASES[case]
    source = rewritten(fixture(name), tmp_path / "source", change)
    for copy in ("auto", "canonical"):
        out = tmp_path / copy
        report = cudnn_convert.convert(source, out, format=form, weights=copy, **flags)
        check(fixture(name), out, report, form)
        assert cudnn_convert.verify(source, out).passed


@pytest.mark.parametrize("case", CASES)
def test_without_the_flag_the_copies_disagree_and_the_message_names_it(tmp_path: Path, case: str) -> None:
    name, change, _, cure = CASES[case]
    source = rewritten(fixture(name), tmp_path / "source", change)
    with pytest.raises(cudnn_convert.UnsupportedModelError, match=cure):
        cudnn_convert.convert(source, tmp_path / "out")


@pytest.mark.first("canonical-1.15.5-gru_bi-onnx")
@pytest.mark.parametrize("form", some(["onnx"], "savedmodel"))
@pytest.mark.parametrize("name", [LSTM, GRU])
@pytest.mark.parametrize("copy", ["auto", "canonical", "raw"])
def test_miopen(tmp_path: Path, name: str, copy: str, form: str) -> None:
    source = rewritten(fixture(name), tmp_path / "source", miopen)
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, weights=copy, gate_order="miopen")
    check(fixture(name), tmp_path / "out", report, form)


def test_the_flag_changes_the_numbers(tmp_path: Path) -> None:
    report = cudnn_convert.convert(fixture(LSTM).prefix, tmp_path / "out", format="onnx", gate_order="miopen")
    with pytest.raises(AssertionError):
        check(fixture(LSTM), tmp_path / "out", report, "onnx")


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=tier(first=form in ("savedmodel", "onnx"))) for form in GRAPH_FORMATS]
)
def test_a_blob_kept_in_float_for_a_recurrence_of_half(tmp_path: Path, form: str) -> None:
    """As a mixed-precision custom getter leaves it: fp32_storage/.../opaque_kernel, cast on the way."""
    name = "fp32_storage/cudnn_lstm/opaque_kernel"
    with drawing() as graph:
        x, zeros = placeholder("x", dtype=tf.float16), tf.zeros([1, 3, UNITS], tf.float16)
        blob = tf.cast(variable(name, BLOB.shape), tf.float16)
        y = tf.raw_ops.CudnnRNN(input=x, input_h=zeros, input_c=zeros, params=blob, is_training=False)
        tf.identity(y.output, name="scores")
    source = saved(tmp_path, graph, {name: BLOB})
    report = cudnn_convert.convert(source, tmp_path / "out", format=form)
    assert [found.dtype for found in report.recurrences] == ["float16"]
    _, path, recorded = runners.identify(tmp_path / "out")
    assert recorded is not None
    signature = Signature(recorded["tensors"]["inputs"], recorded["tensors"]["outputs"])
    given = np.random.default_rng(1).normal(size=(5, 3, INPUTS)).astype(np.float16)
    found = open_artifact(form, path, [Part(SERVING, signature)])({"x": given})["scores"]
    steps = reference.steps_from_blob(
        BLOB.astype(np.float16), "lstm", layers=1, directions=1, units=UNITS, input_size=INPUTS
    )
    start = np.zeros((1, 3, UNITS))
    expected, _, _ = reference.run(steps, given.astype(np.float64), start, start, directions=1)
    assert_close(found, expected, 2.0**-10)
