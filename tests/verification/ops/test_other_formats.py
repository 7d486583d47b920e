"""TensorFlow Lite and Keras part by part: what outputs hide, whatever random inputs draw."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from support import gated_models
from support.graphs import drawing, placeholder

import cudnn_convert
from cudnn_convert.artifacts.tflite import pack_model, schema, unpack_model
from cudnn_convert.errors import VerificationError
from cudnn_convert.formats import CUTS_KEY
from cudnn_convert.verification.ops import ask


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source with a hidden layer, and the TensorFlow Lite file of it."""
    folder = tmp_path_factory.mktemp("lite")
    source, out = gated_models.source(folder), folder / "out.tflite"
    proof = cudnn_convert.convert(source, out, format="tflite", outputs=gated_models.OUTPUT).verification
    assert proof is not None
    assert proof.ops is not None
    assert (proof.ops.verdict, proof.ops.gates) == ("equal op by op", 3)
    assert proof.ops.regions >= 8
    return source, out


def zero_hidden(model: Any) -> None:
    """Zero the second product's kernel: the converter has it transposed."""
    graph = model.subgraphs[0]
    names = [tensor.name.decode() for tensor in graph.tensors]
    products = [op for op in graph.operators if "MatMul" in names[op.outputs[0]]]
    tensor = graph.tensors[products[-1].inputs[1]]
    buffer = model.buffers[tensor.buffer]
    assert np.any(buffer.data)
    buffer.data = np.zeros_like(buffer.data)


def turn_greater(model: Any) -> None:
    """Let `greater` be `greater or equal`."""
    for code in model.operatorCodes:
        if code.builtinCode == schema.BuiltinOperator.GREATER:
            code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.GREATER_EQUAL


@pytest.mark.parametrize("change", [zero_hidden, turn_greater])
def test_a_wrong_part_of_a_lite_file_is_seen(
    change: Callable[[Any], None], lite: tuple[Path, Path], tmp_path: Path
) -> None:
    source, out = lite
    model = unpack_model(out.read_bytes())
    assert [entry for entry in model.metadata if entry.name.decode() == CUTS_KEY]
    change(model)
    other = tmp_path / "other.tflite"
    other.write_bytes(pack_model(model))
    with pytest.raises(VerificationError, match="op by op: differs at "):
        cudnn_convert.verify(source, other)


RIGHT: dict[str, Callable[[Any, Any], Any]] = {
    # The converter drops the second Abs, which reads no value below zero.
    "size_of_a_size": lambda x, _: tf.reduce_max(tf.abs(tf.abs(x)), 1),
    # No run shows whether the one op that it makes of a sum and a Relu has the value of the sum.
    "sum_above_zero": lambda x, _: tf.gather(tf.nn.relu(tf.tanh(x) * x + 99), [2, 1], axis=1),
    # Of a row's values that a tanh makes equal, rounding says which is the largest.
    "place_of_a_tanh": lambda _, image: tf.argmax(tf.tanh(tf.transpose(image, [0, 3, 1, 2])), 3),
}


def test_a_right_lite_file_is_not_refused(tmp_path: Path) -> None:
    kernel = np.random.default_rng(1).uniform(-1, 1, (6, 6)).astype(np.float32)
    with drawing() as graph:
        x, image = placeholder("x", (None, 6)), placeholder("image", (None, 7, 6, 3))
        for name, compute in RIGHT.items():
            tf.identity(compute(x @ kernel, image), name)
    source = tmp_path / "source.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    outputs = [f"{name}:0" for name in RIGHT]
    report = cudnn_convert.convert(source, tmp_path / "out.tflite", format="tflite", outputs=outputs)
    assert report.verification is not None
    assert report.verification.ops is not None
    assert report.verification.ops.verdict == "equal op by op"
    assert not report.verification.ops.not_looked_at


#: What a cuDNN layer's config has of an LSTM's.
KEPT = ("name", "trainable", "dtype", "units", "return_sequences", "return_state", "stateful")


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Keras file: `seen(y) + hidden(y) * relu(x[..., :1] - 50)`, whose first input is a table's row."""
    source = tmp_path_factory.mktemp("layers") / "source.h5"
    x = tf_keras.Input((None, 4), name="x")
    y = tf_keras.layers.LSTM(5, return_sequences=True, name="rnn")(x)
    seen = tf_keras.layers.Dense(3, name="seen")(y)
    hidden = tf_keras.layers.Dense(3, name="hidden", bias_initializer="uniform")(y)
    first = tf_keras.layers.Cropping1D(0, name="first")(x)
    over = tf_keras.layers.ReLU(threshold=50.0, name="over")(first)
    gate = tf_keras.layers.Dense(3, use_bias=False, trainable=False, name="gate")(over)
    answer = tf_keras.layers.Add(name="answer")([seen, tf_keras.layers.Multiply(name="both")([hidden, gate])])
    # Two layers give one tensor of the source: the second hands on what the first is fed.
    model = tf_keras.Model(x, tf_keras.layers.Dropout(0.5, name="dropped")(answer))
    model.save(source)
    with h5py.File(source, "r+") as file:  # the layer as a GPU trained it
        config = json.loads(file.attrs["model_config"])
        for layer in config["config"]["layers"]:
            if layer["config"]["name"] == "rnn":
                layer["class_name"] = "CuDNNLSTM"
                for key in [key for key in layer["config"] if key not in KEPT]:
                    del layer["config"][key]
        file.attrs["model_config"] = json.dumps(config)
        own = file["model_weights/rnn/rnn"]
        inner = own if "bias:0" in own else next(iter(own.values()))
        bias = np.concatenate([inner["bias:0"][()], np.linspace(-0.2, 0.3, 20, dtype=np.float32)])
        del inner["bias:0"]
        inner["bias:0"] = bias
    return source


@pytest.mark.parametrize("name", ["hidden", "gate"])
def test_a_wrong_layer_of_keras_is_seen(name: str, layers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.h5"
    proof = cudnn_convert.convert(layers, out, format="h5").verification
    assert proof is not None
    assert proof.ops is not None
    assert proof.ops.verdict == "equal op by op"
    assert proof.ops.regions >= 6
    with h5py.File(out, "r+") as file:
        kernel = file[f"model_weights/{name}/{name}/kernel:0"]
        kernel[1, 2] += np.float32(1e-3 * np.linalg.norm(kernel[()]))
    with pytest.raises(VerificationError, match="op by op: differs at "):
        cudnn_convert.verify(layers, out)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_mask_of_ids_that_the_data_lacks_is_seen(dtype: str, tmp_path: Path) -> None:
    """A mask goes beside the values from layer to layer, and leaves out the steps whose id is 0."""
    source, out, data = tmp_path / "source.h5", tmp_path / "out.keras", tmp_path / "ids.npz"
    ids = tf_keras.Input((None,), name="ids", dtype=dtype)
    y = tf_keras.layers.GRU(5, name="rnn")(tf_keras.layers.Embedding(60, 4, name="table")(ids))
    tf_keras.Model(ids, tf_keras.layers.Dense(3, name="answer")(y)).save(source)
    np.savez(data, ids=np.random.default_rng(3).integers(1, 9, (4, 7)).astype(dtype))
    proof = cudnn_convert.convert(source, out, format="keras", data=data).verification
    assert proof is not None
    assert proof.ops is not None
    assert proof.ops.passed
    with zipfile.ZipFile(out) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    masked = members["config.json"].replace(b'"mask_zero": false', b'"mask_zero": true')
    assert masked != members["config.json"]
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, masked if name == "config.json" else content)
    with pytest.raises(VerificationError, match="op by op: differs at "):
        cudnn_convert.verify(source, out, data=data)


@pytest.mark.parametrize(
    ("value", "are_ids"),
    [
        pytest.param(np.int32([[3, 0]]), True, id="integers"),
        pytest.param(np.float32([[3, 0]]), True, id="whole-floats"),
        pytest.param(np.float32([[3, 0.5]]), False, id="floats"),
        pytest.param(np.int32([3, 0]), False, id="one-axis"),
        pytest.param(np.array([[b"a", b"b"]], object), False, id="text"),
        pytest.param(np.array([[True, False]]), False, id="booleans"),
    ],
)
def test_which_inputs_may_be_ids(value: np.ndarray, are_ids: bool) -> None:
    assert ask._are_ids(value) == are_ids
