"""What this tool wrote, against what TensorFlow 1 answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.samples import GRAPHLESS, ROOT, fixture

import cudnn_convert
from cudnn_convert.errors import ReadError, UsageError
from cudnn_convert.testing import EquivalenceError, assert_equivalent

STATES = fixture("1.15.5-lstm_bi_2l_states")
RECORDING = ROOT / "tests" / "data" / "recordings" / "lstm_bi_2l_states-1.15.0-python2.7.npz"
KERAS = ROOT / "tests" / "data" / "keras"


def golden(sample: Any) -> tuple[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
    """The feeds and the answers, by the tensors of the source."""
    feeds = sample.feeds()
    return tuple(
        [{key: feed[key] for key in feed if key in sample.case[side]} for feed in feeds]
        for side in ("inputs", "outputs")
    )  # type: ignore[return-value]


@pytest.mark.first("checkpoint")
@pytest.mark.parametrize(
    "form", ["savedmodel", "frozen", "checkpoint", "onnx", pytest.param("tflite", marks=pytest.mark.every)]
)
def test_an_out_folder_against_recorded_answers(form: str, out: Path) -> None:
    """Names pair with TensorFlow's own, `x:0`; the feeds are of other lengths and batches."""
    cudnn_convert.convert(STATES.prefix, out, format=form, verify=False)
    feeds, answers = golden(STATES)
    found = assert_equivalent(out, answers, feeds)
    assert {one.output for one in found.outputs} == {"rnn_out:0", "state_h:0", "state_c:0"}
    assert all(one.compared for one in found.outputs)
    swapped = [{**one, "state_h:0": one["state_h:0"][::-1]} for one in answers]
    with pytest.raises(EquivalenceError) as caught:
        assert_equivalent(out, swapped, feeds)
    assert [one.output for one in caught.value.report.outputs if not one.passed] == ["state_h:0"]


def test_a_recording_brings_its_own_feeds(out: Path) -> None:
    cudnn_convert.convert(STATES.prefix, out, format="onnx", verify=False)
    found = assert_equivalent(out, RECORDING)
    assert found.passed
    assert found.recording is not None
    assert found.recording["python"].startswith("2.7")
    assert assert_equivalent(out, RECORDING, RECORDING).feeds == found.feeds
    with pytest.raises(UsageError, match="a recording alone, given as expected, brings its own"):
        assert_equivalent(RECORDING, out)


def test_a_recording_with_tf32_widens_the_bounds(out: Path, tmp_path: Path) -> None:
    """TF32 keeps 10 bits of mantissa: a recording that is off by less than 2^-10 may be right."""
    cudnn_convert.convert(STATES.prefix, out, format="onnx", verify=False)
    with np.load(RECORDING) as data:
        found = {key: data[key] + np.float32(3e-4) if "/out/" in key else data[key] for key in data.files}
    meta = found["meta"].tobytes()
    for switch in (False, True):
        on = meta.replace(b'"on": false', b'"on": true') if switch else meta
        np.savez(tmp_path / "golden.npz", **{**found, "meta": np.frombuffer(on, np.uint8)})
        if switch:
            told = assert_equivalent(out, tmp_path / "golden.npz")
            assert {one.atol for one in told.outputs} == {2.0**-10}
        else:
            with pytest.raises(EquivalenceError):
                assert_equivalent(out, tmp_path / "golden.npz")


def test_a_folder_of_several_files_needs_a_name(out: Path) -> None:
    sample = next(one for one in GRAPHLESS if len(one.case["recurrences"]) > 1)
    cudnn_convert.convert(sample.prefix, out, format="onnx", verify=False, **sample.options)
    files = sorted(file.stem for file in out.glob("*.onnx"))
    assert len(files) > 1
    with pytest.raises(UsageError, match=f"found {', '.join(files)}; choose with signature="):
        assert_equivalent(out, lambda inputs: inputs, np.ones((1, 1, 1), np.float32))
    for name in files:
        size = sizes(out / f"{name}.onnx")
        x = np.random.default_rng(1).normal(size=(4, 2, size)).astype(np.float32)
        assert assert_equivalent(out, out / f"{name}.onnx", {"inputs": x}, signature=name).passed
        for other in set(files) - {name}:
            with pytest.raises((EquivalenceError, ReadError)):
                assert_equivalent(out, out / f"{name}.onnx", {"inputs": x}, signature=other)


def sizes(file: Path) -> int:
    import onnx

    (given,) = onnx.load(file).graph.input
    return int(given.type.tensor_type.shape.dim[2].dim_value)


def test_a_file_that_does_not_say_its_ends_is_refused(tmp_path: Path) -> None:
    cudnn_convert.convert(STATES.prefix, tmp_path / "lone.pb", format="frozen", verify=False)
    feeds, answers = golden(STATES)
    with pytest.raises(
        UsageError, match="found a graph that does not say what its inputs and outputs are; load it"
    ):
        assert_equivalent(tmp_path / "lone.pb", answers, feeds)


@pytest.mark.first("keras")
@pytest.mark.parametrize("form", ["keras", "h5"])
def test_layers_against_recorded_answers(form: str, out: Path) -> None:
    """Two inputs and two outputs, by the names that the model has for them."""
    sample = KERAS / "keras-2.1.6" / "siamese"
    cudnn_convert.convert(sample / "model.h5", out, format=form, verify=False)
    with np.load(sample / "golden.npz") as data:
        feeds, answers = (
            [{name: data[f"feed{k}/{name}"] for name in names} for k in range(2)]
            for names in (("left", "right"), ("similarity", "label"))
        )
    assert assert_equivalent(out, answers, feeds).passed
    exchanged = [{"left": feed["right"], "right": feed["left"]} for feed in feeds]
    assert assert_equivalent(out, answers, exchanged, inputs={"left": "right", "right": "left"}).passed
    with pytest.raises(EquivalenceError):
        assert_equivalent(out, answers, exchanged)
