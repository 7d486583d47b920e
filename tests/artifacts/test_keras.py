"""Keras archives as artifacts: built on the CPU, called by name."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import MissingDependencyError
from cudnn_convert.model import SERVING, Part, Signature
from cudnn_convert.private import keras_private

PARTS = [Part(SERVING, Signature({"x": "x:0"}, {"y": "y:0"}))]


def test_what_an_archive_was_trained_with_is_not_built(tmp_path: Path) -> None:
    """A loss of somebody's own module: nothing looks for it."""
    model = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(3, name="y")])
    path = tmp_path / "model.keras"
    model.compile(optimizer="adam", loss="mse")
    model.save(path)
    config = {"module": "nowhere", "class_name": "function", "config": "loss", "registered_name": "loss"}
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    told = json.loads(members["config.json"])
    told["compile_config"]["loss"] = config
    members["config.json"] = json.dumps(told).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    answer = runners.open_artifact("keras", path, PARTS)({"x": np.ones((4, 2), np.float32)})
    assert answer["y"].shape == (4, 3)


def test_an_archive_runs_without_cudnn_s_op_beside_a_gpu(tmp_path: Path) -> None:
    """Keras 3 chooses the op where it sees a GPU; what is proven is what a CPU runs."""
    model = keras.Sequential([keras.Input([None, 3], name="x"), keras.layers.LSTM(4)])
    model.save(tmp_path / "model.keras")
    x = np.ones([2, 5, 3], np.float32)
    (interface,) = runners.find_interfaces("keras", tmp_path / "model.keras")
    (key,) = interface.inputs
    with keras_private.trace_as_on_gpu():
        run = runners.open_artifact("keras", tmp_path / "model.keras", [interface.part])
        (found,) = run({key: x}).values()
    np.testing.assert_allclose(found, model(x), atol=1e-6)


def test_keras_on_another_backend_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = keras.Sequential([keras.Input([3], name="x"), keras.layers.Dense(4)])
    model.save(tmp_path / "model.keras")
    (interface,) = runners.find_interfaces("keras", tmp_path / "model.keras")
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(MissingDependencyError) as caught:
        runners.open_artifact("keras", tmp_path / "model.keras", [interface.part])
    assert str(caught.value) == (
        "Keras 3: expected KERAS_BACKEND=tensorflow, found KERAS_BACKEND=torch; set it in the environment"
    )


def test_keras_takes_its_dict_in_whatever_order_it_was_written(tmp_path: Path) -> None:
    taken = {"b": keras.Input((3,), name="b"), "a": keras.Input((4,), name="a")}
    layers = {"p": keras.layers.Dense(2, name="p"), "c": keras.layers.Dense(5, name="c")}
    model = keras.Model(taken, {"p": layers["p"](taken["a"]), "c": layers["c"](taken["b"])})
    model.save(tmp_path / "m.keras")
    rng = np.random.default_rng(3)
    feed = {key: rng.normal(size=(2, size)).astype(np.float32) for key, size in (("a", 4), ("b", 3))}
    (answer,) = cudnn_convert.run(tmp_path / "m.keras", data=feed).outputs
    for key, given in (("p", feed["a"]), ("c", feed["b"])):
        kernel, _ = layers[key].get_weights()
        np.testing.assert_allclose(answer[key], given @ kernel, rtol=1e-5, atol=1e-6)
