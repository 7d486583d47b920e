"""Keras models layer by layer: what outputs hide, whatever random inputs draw."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import tf_keras

import cudnn_convert
from cudnn_convert.errors import VerificationError

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


@pytest.mark.first("hidden")
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


@pytest.mark.first("float32")
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
