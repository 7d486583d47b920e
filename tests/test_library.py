"""The library: the flags as keywords, reports for answers, errors for refusals, and not a word."""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from support.command_line import DATA, beside, contents, copied
from support.keras_samples import keras_fixture
from support.samples import fixture
from support.tiers import some

import cudnn_convert
from cudnn_convert.model import InMemory
from cudnn_convert.options import READING, VOUCHED, Options
from cudnn_convert.read import read
from cudnn_convert.targets.bundle import write_bundle

#: Frozen graphs are written and opened much as SavedModels are.
FORMATS = ("savedmodel", "onnx", "frozen")
IN_FORMATS = pytest.mark.parametrize("form", some(FORMATS[:2], FORMATS[2]))
SINGLE = {"frozen": "out.pb", "onnx": "out.onnx"}


@pytest.mark.first("onnx")
@IN_FORMATS
def test_a_conversion_reports_and_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    prefix = copied(tmp_path)
    before = contents(tmp_path / "source")
    report = cudnn_convert.convert(prefix, tmp_path / "out", format=form)
    assert capsys.readouterr() == ("", "")
    assert contents(tmp_path / "source") == before
    assert Path(report.out).exists()
    assert (report.format, report.source) == (form, str(prefix))
    assert report.inputs == {"x": "x:0", "h0": "h0:0"}
    assert report.outputs == {"rnn_out": "rnn_out:0", "state_h": "state_h:0"}
    [found] = report.recurrences
    assert (found.node, found.mode, found.units) == ("cudnn_rnn_tanh/CudnnRNNV3", "rnn_tanh", 6)
    assert report.verification is not None
    assert report.verification.passed
    assert json.loads(report.to_json())["verification"]["passed"] is True


def test_loggers_are_left_as_they_were(tmp_path: Path) -> None:
    levels = {"tensorflow": logging.DEBUG, "tf2onnx": logging.INFO}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    with pytest.raises(cudnn_convert.ReadError):
        cudnn_convert.convert(tmp_path / "nothing", tmp_path / "out")
    assert {name: logging.getLogger(name).level for name in levels} == levels


@pytest.mark.slow("cudnn_convert/verification")
@IN_FORMATS
def test_an_artifact_of_ours_is_equal_to_its_source(tmp_path: Path, form: str) -> None:
    source = fixture("1.15.5-dropout_needs_set")
    cudnn_convert.convert(source.prefix, tmp_path / "out", format=form, set=["keep_prob=1"])
    before = contents(tmp_path)
    found = cudnn_convert.verify(source.prefix, tmp_path / "out")
    assert found.passed
    assert [output.output for output in found.outputs] == ["logits"]
    assert all(output.compared for output in found.outputs)
    assert contents(tmp_path) == before


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize("form", SINGLE)
def test_a_single_file_is_equal_to_its_source(tmp_path: Path, form: str) -> None:
    source, out = fixture("1.15.5-v3_batch_major").prefix, tmp_path / SINGLE[form]
    cudnn_convert.convert(source, out, format=form, outputs=["y=rnn_out:0"])
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    # A GraphDef has no room for its provenance.
    named = {"inputs": ["x:0,h0:0"], "outputs": ["y=rnn_out:0"]} if form == "frozen" else {}
    found = cudnn_convert.verify(source, out, **named)
    assert found.passed
    assert [output.output for output in found.outputs] == ["y"]


def other_weights(folder: Path) -> Path:
    """The same model with every weight a hundredth larger, in both copies."""
    prefix = copied(folder)
    values = {key: InMemory(found.read() * np.float32(1.01)) for key, found in read(prefix).variables.items()}
    for suffix in (".index", DATA):
        beside(prefix, suffix).unlink()
    write_bundle(prefix, values)
    return prefix


@pytest.mark.slow("cudnn_convert/verification")
@IN_FORMATS
def test_an_artifact_of_other_weights_is_not_equal(tmp_path: Path, form: str) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    cudnn_convert.convert(source, tmp_path / "out", format=form)
    with pytest.raises(cudnn_convert.VerificationError) as caught:
        cudnn_convert.verify(other_weights(tmp_path), tmp_path / "out")
    assert not caught.value.report.passed
    assert [output.passed for output in caught.value.report.outputs] == [False, False]
    first, second, inside, *_ = str(caught.value).splitlines()
    assert "model.ckpt: output rnn_out: at [" in first
    assert "model.ckpt: output state_h: at [" in second
    assert all(word in first for word in ("expected ", "found ", "allowed "))
    assert "model.ckpt: recurrence cudnn_rnn_tanh/CudnnRNNV3, by itself: layer 0 " in inside


def test_numbers_that_differ_leave_nothing(tmp_path: Path) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    with pytest.raises(cudnn_convert.VerificationError):
        cudnn_convert.convert(source, tmp_path / "out", atol=1e-30, rtol=0)
    assert not list(tmp_path.iterdir())


def test_without_verification_nothing_is_claimed(tmp_path: Path) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    assert cudnn_convert.convert(source, tmp_path / "out", verify=False).verification is None


def test_a_value_that_is_zero_on_both_sides_is_equal(tmp_path: Path) -> None:
    """A relative tolerance alone allows nothing where a relu gives zeros, and nothing is needed there."""
    source = fixture("1.15.5-rnn_relu_bi").prefix
    report = cudnn_convert.convert(source, tmp_path / "out", atol=0, rtol=1e-3)
    assert report.verification is not None
    assert report.verification.passed


@pytest.mark.slow("cudnn_convert/verification")
def test_a_seed_draws_other_inputs_and_is_kept_for_a_later_verification(tmp_path: Path) -> None:
    source, out = fixture("1.15.5-v3_batch_major").prefix, tmp_path / "out.onnx"
    usual = cudnn_convert.convert(source, tmp_path / "usual.onnx", format="onnx").verification
    report = cudnn_convert.convert(source, out, format="onnx", seed=7).verification
    assert usual is not None
    assert report is not None
    assert report.seed == 7 != usual.seed
    assert [output.cosine for output in report.outputs] != [output.cosine for output in usual.outputs]
    again, other = cudnn_convert.verify(source, out), cudnn_convert.verify(source, out, seed=0)
    assert (again.seed, other.seed) == (7, 0)
    assert again.outputs == report.outputs != other.outputs


def test_one_item_needs_no_list(tmp_path: Path) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    report = cudnn_convert.convert(source, tmp_path / "out", outputs="state_h:0", verify=False)
    assert report.outputs == {"state_h": "state_h:0"}


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    scalars: dict[str, Any] = {
        **{"opset": np.int64(13), "seed": np.array(85), "forget_bias": np.float16(0.5)},
        **{"atol": np.float32(2**-10), "rtol": np.finfo(np.float32).eps * 100, "force_convert": np.True_},
    }
    report = cudnn_convert.convert(source, tmp_path / "m.onnx", **scalars)
    assert {each.version for each in onnx.load(tmp_path / "m.onnx").opset_import if not each.domain} == {13}
    assert report.verification is not None
    assert report.verification.seed == 85
    assert {output.atol for output in report.verification.outputs} == {2**-10}
    again = cudnn_convert.verify(source, tmp_path / "m.onnx", seed=np.uint8(3))
    assert (again.passed, again.seed) == (True, 3)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "format": (
        {"format": "pickle"},
        "format: expected one of savedmodel, frozen, checkpoint, onnx, tflite, keras, h5, npz, safetensors, "
        "found 'pickle'",
    ),
    "weights": ({"weights": "best"}, "weights: expected one of auto, canonical, raw, ema, found 'best'"),
    "lowering": ({"lowering": "magic"}, "lowering: expected one of fast, portable, fused, found 'magic'"),
    "custom object": ({"custom_objects": "Scale"}, "custom_objects: expected MODULE:NAME, found 'Scale'"),
    "negative atol": ({"atol": -1.0}, "atol: expected a number of at least 0, found -1.0"),
    "nan rtol": ({"rtol": float("nan")}, "rtol: expected a number of at least 0, found nan"),
    "infinite atol": ({"atol": float("inf")}, "atol: expected a number of at least 0, found inf"),
    "text for a number": ({"atol": "1e-3"}, "atol: expected a number, found '1e-3'"),
    "yes for a number": ({"rtol": True}, "rtol: expected a number, found True"),
    "fraction of an opset": ({"opset": np.float64(13.5)}, "opset: expected a whole number, found 13.5"),
    "text for a seed": ({"seed": "3"}, "seed: expected a whole number, found '3'"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_a_usage_error(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    with pytest.raises(cudnn_convert.UsageError) as caught:
        cudnn_convert.convert(source, tmp_path / "out", **options)
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_a_damaged_source_is_a_read_error(tmp_path: Path) -> None:
    prefix = copied(tmp_path)
    data = beside(prefix, DATA)
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(cudnn_convert.ReadError) as caught:
        cudnn_convert.convert(prefix, tmp_path / "out")
    assert caught.value.path == str(prefix)
    assert caught.value.where.startswith("tensor ")
    assert caught.value.found == f"model.ckpt{DATA} of 1007 bytes where 1008 are needed"


def test_what_is_no_artifact_cannot_be_verified(tmp_path: Path) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    (tmp_path / "notes.txt").write_text("text")
    for name, found in (
        ("notes.txt", "a file or folder that is none of these"),
        ("nothing", "no such file or folder"),
    ):
        with pytest.raises(cudnn_convert.ReadError) as caught:
            cudnn_convert.verify(source, tmp_path / name)
        assert str(caught.value) == (
            f"{tmp_path / name}: artifact: expected a SavedModel, a checkpoint with its .meta, a .pb, .onnx, "
            f".tflite, .keras, .h5, .npz or .safetensors, or an OUT folder, found {found}"
        )


@IN_FORMATS
def test_a_cut_off_artifact_is_a_read_error(tmp_path: Path, form: str) -> None:
    source = fixture("1.15.5-v3_batch_major").prefix
    report = cudnn_convert.convert(source, tmp_path / "out", format=form, verify=False)
    path = Path(report.out) / "saved_model.pb" if form == "savedmodel" else Path(report.out)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(cudnn_convert.ReadError, match=r"artifact: expected .*, found"):
        cudnn_convert.verify(source, tmp_path / "out")


@pytest.mark.slow("cudnn_convert/lower/tensorflow", "cudnn_convert/verification")
@pytest.mark.first("savedmodel")
@pytest.mark.parametrize("form", ["savedmodel", "checkpoint"])
def test_a_caller_may_be_building_a_graph(tmp_path: Path, form: str) -> None:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        report = cudnn_convert.convert(fixture("1.15.5-gru_uni_2l").prefix, tmp_path / "out", format=form)
        assert not tf.executing_eagerly()
    assert report.verification is not None
    assert report.verification.passed
    assert graph.get_operations() == []


def test_a_model_of_the_caller_s_can_still_be_called(tmp_path: Path) -> None:
    """tf_keras makes classes ones of version 1 where it builds in a graph, as a conversion does."""
    import tf_keras

    x = np.ones((2, 3, 4), np.float32)
    model = tf_keras.Sequential([tf_keras.layers.LSTM(5), tf_keras.layers.Dense(2)])
    expected = model(x)
    cudnn_convert.convert(
        keras_fixture("keras-2.2.4-sequential_lstm").path, tmp_path / "m.onnx", verify=False
    )
    np.testing.assert_array_equal(model(x), expected)


#: Converts a source to one format after another in a process where TensorFlow 2 is off.
OFF: Final = """import sys
import tensorflow.compat.v1 as tf
import cudnn_convert
tf.disable_v2_behavior()
for form in sys.argv[3:]:
    print(cudnn_convert.convert(sys.argv[1], f"{sys.argv[2]}/{form}", format=form).verification.passed)
print(type(tf.TensorShape([1])[0]).__name__, tf.executing_eagerly())
"""


@pytest.mark.slow("cudnn_convert/context", "cudnn_convert/pipeline.py")
def test_a_caller_may_have_turned_tensorflow_2_off(tmp_path: Path) -> None:
    """As most who still have code of TensorFlow 1 do, by its first lines."""
    source = fixture("1.15.5-gru_uni_2l").prefix
    words = [sys.executable, "-c", OFF, source, tmp_path, *FORMATS]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert done.stdout == "True\nTrue\nTrue\nDimension False\n", done.stderr


#: Keywords that bear on nothing but what a call writes and says beside its work.
BESIDE = frozenset({"report", "card", "progress"})


@pytest.mark.parametrize(
    "function", [cudnn_convert.convert, cudnn_convert.inspect, cudnn_convert.record, cudnn_convert.verify]
)
def test_keywords_of_a_function_are_options_with_the_same_meaning(function: Any) -> None:
    options = {option.name: option.default for option in dataclasses.fields(Options)}
    keywords = {
        name: keyword.default
        for name, keyword in inspect.signature(function).parameters.items()
        if keyword.kind is keyword.KEYWORD_ONLY
    }
    assert "progress" in keywords
    keywords = {name: value for name, value in keywords.items() if name not in BESIDE}
    assert keywords.keys() <= options.keys()
    unset = (None, inspect.Parameter.empty)  # `record` has no inputs but the user's
    differing = {name: value for name, value in keywords.items() if value not in (*unset, options[name])}
    assert not differing, "the library and the command line have other defaults"
    sections = {option.name: option.metadata.get("section") for option in dataclasses.fields(Options)}
    # What runs the original needs its graph; an artifact says itself what it searches, and how many steps.
    left_out = {"sources without a graph"} if function is cudnn_convert.record else set[str]()
    left_out |= set[str]() if function is cudnn_convert.convert else {"a decoder in the graph"}
    # The original has its states where it has them.
    kept = {"states"} if function is cudnn_convert.record else set[str]()
    kept |= set[str]() if function is cudnn_convert.convert else {"steps"}
    read = {name for name in (*READING, *VOUCHED) if sections[name] not in left_out}
    assert read - kept <= keywords.keys()


def test_each_option_has_a_line_in_the_help() -> None:
    untold = {
        option.name
        for option in dataclasses.fields(Options)
        if option.metadata and not option.metadata["help"]
    }
    assert untold == {"format"}
