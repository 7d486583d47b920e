"""`cudnn-convert run`: an artifact of any format answers on given inputs and on random ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import TensorProto, helper
from support.command_line import command, refused
from support.keras_samples import keras_fixture
from support.recorded import assert_close
from support.samples import ROOT
from support.tiers import some

import cudnn_convert
from cudnn_convert import text

SPEECH = ROOT / "models" / "gru_speech"
CHARACTERS = ROOT / "models" / "char_lm"


def recorded(model: Path, folder: Path, *inputs: str) -> tuple[Path, list[dict[str, Any]]]:
    """The inputs of a model's recording as a file for `--data`, and what TensorFlow 1.15 answered."""
    with np.load(model / "golden.npz") as golden:
        calls = [{key: golden[f"feed{k}/{key}"] for key in _keys(golden, k)} for k in range(2)]
    fed = {
        f"feed{k}/{key.removesuffix(':0')}": value
        for k, call in enumerate(calls)
        for key, value in call.items()
        if key.removesuffix(":0") in inputs
    }
    np.savez(folder / "feeds.npz", **fed)
    return folder / "feeds.npz", calls


def _keys(golden: Any, number: int) -> list[str]:
    prefix = f"feed{number}/"
    return [name.removeprefix(prefix) for name in golden.files if name.startswith(prefix)]


@pytest.mark.parametrize("out", some(["m.onnx"], "m.tflite", "m", "m.pb"))
def test_an_artifact_of_a_graph_answers_as_recorded(tmp_path: Path, out: str) -> None:
    data, calls = recorded(SPEECH, tmp_path, "features", "lengths")
    cudnn_convert.convert(SPEECH, tmp_path / out, verify=False)
    answers = cudnn_convert.run(tmp_path / out, data=data)
    assert (answers.signature, answers.seed) == ("serving_default", None)
    for call, answer in zip(calls, answers.outputs, strict=True):
        assert_close(answer["probabilities"], call["probabilities:0"])
    drawn = cudnn_convert.run(tmp_path / out, seed=7)
    (feed,), (answer,) = drawn.feeds, drawn.outputs
    assert {key: value.shape for key, value in feed.items()} == {"features": (4, 4, 13), "lengths": (4,)}
    assert answer["probabilities"].shape == (4, 4, 8)
    np.testing.assert_allclose(answer["probabilities"].sum(-1), 1, rtol=1e-5)
    other = cudnn_convert.run(tmp_path / out, seed=8)
    assert not np.allclose(other.outputs[0]["probabilities"], answer["probabilities"])


@pytest.mark.first("m.keras-output_0")
@pytest.mark.parametrize(("out", "name"), [("m.keras", "output_0"), ("m.h5", "next")])
def test_an_artifact_of_layers_answers_as_recorded(tmp_path: Path, out: str, name: str) -> None:
    data, calls = recorded(CHARACTERS, tmp_path, "characters_input")
    cudnn_convert.convert(CHARACTERS / "model.h5", tmp_path / out, verify=False)
    answers = cudnn_convert.run(tmp_path / out, data=data)
    assert list(answers.outputs[0]) == [name]
    assert_close(answers.outputs[0][name], calls[0]["next"])


# Small models of others: what is drawn, chosen and refused.


def make_gather(folder: Path, *, rows: int, dtype: int = TensorProto.INT64) -> Path:
    """An ONNX model that looks ids `[batch, time]` up in a table whose row k is k + 0.5."""
    table = helper.make_tensor("table", TensorProto.FLOAT, [rows], np.arange(rows) + 0.5)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["rows"])],
        "lookup",
        [helper.make_tensor_value_info("ids", dtype, [None, "time"])],
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, None)],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize(("rows", "largest"), [(9, 4), (2, 1)])
def test_integers_are_rows_of_even_a_small_table(tmp_path: Path, rows: int, largest: int) -> None:
    (answer,) = cudnn_convert.run(make_gather(tmp_path, rows=rows)).outputs
    assert answer["rows"].shape == (4, 4)
    assert answer["rows"].max() == largest + 0.5
    assert answer["rows"].min() == 1.5


@pytest.mark.slow("cudnn_convert/feeds/", "cudnn_convert/artifacts/runners.py")
def test_floats_may_be_rows_of_a_table(tmp_path: Path) -> None:
    """A classifier of Keras takes words as floats, and refuses the rows -2 and -1."""
    source = keras_fixture("keras-2.2.4-text_classifier").path
    cudnn_convert.convert(source, tmp_path / "m", verify=False)
    ended = command("run", tmp_path / "m", "--json")
    assert (ended.code, json.loads(ended.stdout)["drawn"]) == (0, "whole")
    answers = cudnn_convert.run(tmp_path / "m")
    (words,) = answers.feeds[0].values()
    assert words.dtype == np.float32
    assert {*words.ravel().tolist()} == {1, 2, 3, 4}
    loaded = tf.saved_model.load(tmp_path / "m").signatures["serving_default"]
    for key, value in loaded(**{key: tf.constant(fed) for key, fed in answers.feeds[0].items()}).items():
        np.testing.assert_allclose(answers.outputs[0][key], value, rtol=1e-5, atol=1e-6)
    told = command("run", tmp_path / "m").stderr.splitlines()[-1]
    assert told.startswith("inputs (random whole numbers, seed 20240229): ")


def test_given_inputs_of_other_types_become_the_artifact_s(tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", ids=np.array([[0, 3, 1]], np.int32))
    out = tmp_path / "out.npz"
    ended = command("run", make_gather(tmp_path, rows=5), "--data", tmp_path / "feeds.npz", "--out", out)
    assert ended.code == 0
    assert np.load(out)["rows"].tolist() == [[0.5, 3.5, 1.5]]
    assert ended.stderr.splitlines()[-1] == f"inputs ({tmp_path / 'feeds.npz'}): ids int64 [1, 3]"
    row = ended.stdout.splitlines()[1].split()
    assert row[:7] == ["rows", "float32", "[1,", "3]", "0.5", "3.5", "1.83333"]


def test_json_says_what_was_fed_and_answered_without_values(tmp_path: Path) -> None:
    path = make_gather(tmp_path, rows=2)
    told = json.loads(command("run", path, "--seed", "3", "--json").stdout)
    assert told == {
        **{"artifact": str(path), "format": "onnx", "signature": "serving_default", "seed": 3},
        **{"data": None, "drawn": "normal"},
        "calls": [
            {
                "inputs": {"ids": {"dtype": "int64", "shape": [4, 4]}},
                "outputs": {
                    "rows": {"dtype": "float32", "shape": [4, 4], "min": 1.5, "max": 1.5, "mean": 1.5}
                },
            }
        ],
    }


def test_a_model_that_takes_no_random_inputs_asks_for_some(tmp_path: Path) -> None:
    """A state of two rows, as a stateful model has, which its inputs do not tell."""

    class Module(tf.Module):
        def __init__(self) -> None:
            self.state = tf.Variable([[1.0, 2, 3], [4, 5, 6]])

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
        def add(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": x + self.state}

    module = Module()
    tf.saved_model.save(module, tmp_path / "saved", signatures=module.add)
    [line] = refused(tmp_path, "run", tmp_path / "saved", code=1)
    assert line.startswith(
        f"{tmp_path / 'saved'}: artifact: expected a model that savedmodel's runtime can run"
    )
    assert line.endswith("; give inputs with --data")
    answers = cudnn_convert.run(tmp_path / "saved", data={"x": np.ones([2, 3], np.float32)})
    np.testing.assert_array_equal(answers.outputs[0]["y"], [[2, 3, 4], [5, 6, 7]])


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = make_gather(tmp_path, rows=2)
    for fed, message in (
        ({"other": np.zeros([1, 1])}, f"--data: expected the inputs ids of {path}, found other"),
        ({"ids": np.zeros([1])}, "--data: ids: expected the shape [?, ?], found [1]"),
    ):
        np.savez(tmp_path / "feeds.npz", **fed)
        assert refused(tmp_path, "run", path, "--data", tmp_path / "feeds.npz", code=2) == [message]
    np.savez(tmp_path / "feeds.npz", ids=np.full([1, 1], 7))
    words = ["run", path, "--data", tmp_path / "feeds.npz", "--out", tmp_path / "out.npz"]
    [line] = refused(tmp_path, *words, code=1)
    assert line.startswith(f"{path}: artifact: expected a model that onnx's runtime can run, found ")


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out.npz").write_bytes(b"mine")
    [line] = refused(tmp_path, "run", make_gather(tmp_path, rows=2), "--out", tmp_path / "out.npz", code=2)
    assert line.startswith(f"{tmp_path / 'out.npz'}: ")


@pytest.mark.first("source0-TensorFlow SavedModel", "source2-frozen graph")
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (ROOT / "tests/data/keras3_exports/keras-3.15.1/lstm/saved_model", "TensorFlow SavedModel"),
        (ROOT / "tests/data/keras/keras-2.2.4/text_classifier/model.h5", "Keras HDF5 file"),
        (ROOT / "tests/data/tf1/1.15.5/frozen_binary/frozen.pb", "frozen graph"),
    ],
)
def test_a_source_that_needs_a_gpu_is_to_be_converted_first(source: Path, kind: str) -> None:
    ended = command("run", source, "--quiet")
    cure = f"convert it first: {text.command(['cudnn-convert', str(source), 'model_cpu'])}"
    assert ended.code == 1
    assert ended.stderr.strip().endswith(f"runs on a CPU, found a {kind} that needs a GPU; {cure}")


class Writing(tf.Module):
    """A module that writes a file when it is called."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32, "x")])
    def write(self, x: Any) -> Any:
        with tf.control_dependencies([tf.io.write_file("written", "seen")]):
            return {"y": x + 1}


def test_what_would_run_more_than_arithmetic_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = Writing()
    tf.saved_model.save(module, "m", {"serving_default": module.write})
    assert any("WriteFile" in line for line in refused(tmp_path, "run", "m", code=1))
    assert command("run", "m", "--trust").code == 0
    assert (tmp_path / "written").read_text() == "seen"


def test_quiet_prints_outputs_alone(tmp_path: Path) -> None:
    ended = command("run", make_gather(tmp_path, rows=2), "--quiet")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[1].split()[:2] == ["rows", "float32"]
