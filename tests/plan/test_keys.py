"""Plans for a format: keys of inputs that TensorFlow could not call a signature by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, INPUTS, lstm

import cudnn_convert

v1 = tf.compat.v1


def source(folder: Path, *keys: str) -> Path:
    """A frozen graph of a layer, whose placeholders have these names."""
    with tf.Graph().as_default() as graph:
        x = [v1.placeholder(tf.float32, [None, None, INPUTS], key) for key in keys]
        lstm(tf.add_n(x), tf.constant(BLOB))
        tf.identity(graph.get_tensor_by_name("rnn:0"), "y")
    path = folder / "graph.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def in_saved_model(out: Path, feed: dict[str, Any]) -> Any:
    call = tf.saved_model.load(str(out)).signatures["serving_default"]
    return call(**{key: tf.constant(value) for key, value in feed.items()})["y"].numpy()


def in_tflite(out: Path, feed: dict[str, Any]) -> Any:
    return tf.lite.Interpreter(str(out)).get_signature_runner()(**feed)["y"]


@pytest.mark.first("lambda--in_saved_model")
@pytest.mark.parametrize(("suffix", "call"), [("", in_saved_model), (".tflite", in_tflite)])
@pytest.mark.parametrize("reserved", ["lambda", "self"])
def test_an_input_is_called_by_no_word_that_python_reserves(
    tmp_path: Path, suffix: str, call: Any, reserved: str
) -> None:
    graph, out = source(tmp_path, reserved, f"{reserved}_"), tmp_path / f"out{suffix}"
    report = cudnn_convert.convert(graph, out)
    (new,) = report.inputs.keys() - {f"{reserved}_"}
    assert report.inputs == {new: f"{reserved}:0", f"{reserved}_": f"{reserved}_:0"}
    assert f"input {reserved} is {new}: Python reserves the word" in report.notes
    x, other = np.random.default_rng(7).normal(size=(2, 5, 3, INPUTS)).astype(np.float32)
    answer = call(out, {new: x, f"{reserved}_": other})
    np.testing.assert_allclose(answer, call(out, {new: x + other, f"{reserved}_": 0 * x}), atol=1e-6)
    assert np.abs(answer).max() > 0.01
    assert cudnn_convert.verify(graph, out).passed


def test_onnx_calls_it_as_the_graph_does(tmp_path: Path) -> None:
    report = cudnn_convert.convert(source(tmp_path, "lambda"), tmp_path / "out.onnx")
    assert [*report.inputs] == ["lambda"]
