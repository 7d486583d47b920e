"""Whole models and weights in HDF5: what is taken, what is left, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from keras_files import cudnn, entry, put, sequential, whole

from cudnn_convert.errors import ReadError, UnsupportedModelError
from cudnn_convert.model import Architecture
from cudnn_convert.read import keras_hdf5

RNG = np.random.default_rng(11)
LSTM = cudnn(RNG, 4, 3, 5, "fast/")
CONFIG = sequential(entry("CuDNNLSTM", "fast", units=3))
Change = Callable[[h5py.File], None]


def changed(folder: Path, change: Change) -> Path:
    path = whole(folder / "model.h5", CONFIG, {"fast": LSTM})
    with h5py.File(path, "a") as file:
        change(file)
    return path


def architecture(path: Path) -> Architecture:
    found = keras_hdf5.read(path).architecture
    assert found is not None
    return found


def refused(path: Path, kind: type[Exception] = ReadError) -> str:
    with pytest.raises(kind) as caught:
        keras_hdf5.read(path)
    return str(caught.value).removeprefix(f"{path}: ")


def weights_file(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        put(file, {"fast": LSTM})
    return path


def test_all_of_a_model_is_taken(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        file.attrs["training_config"] = json.dumps({"loss": "mse"})
        file.attrs["backend"] = b"tensorflow"
        file.attrs["epoch"] = 17
        state = file.create_group("optimizer_weights")
        state.attrs["weight_names"] = [b"step:0", b"m:0"]
        state["step:0"], state["m:0"] = np.int64(40), np.arange(4)
        file["own/labels"] = np.arange(5)

    path = changed(tmp_path, change)
    found = architecture(path)
    assert (found.config, found.keras_version, found.backend) == (CONFIG, "2.2.4", "tensorflow")
    assert (found.training, found.attributes) == ({"loss": "mse"}, {"epoch": 17})
    assert [(name, tensor.read().tolist()) for name, tensor in found.optimizer] == [
        ("step:0", 40),
        ("m:0", [0, 1, 2, 3]),
    ]
    assert {name: tensor.read().tolist() for name, tensor in found.extras.items()} == {
        "own/labels": [0, 1, 2, 3, 4]
    }
    for (_, tensor), (_, array) in zip(found.weights["fast"], LSTM, strict=True):
        np.testing.assert_array_equal(tensor.read(), array, strict=True)


def test_a_model_may_say_little_of_itself(tmp_path: Path) -> None:
    found = architecture(changed(tmp_path, lambda file: file.attrs.__delitem__("keras_version")))
    assert (found.keras_version, found.backend, found.training) == ("", "", None)
    assert (found.optimizer, found.extras, found.attributes) == ((), {}, {})


def test_older_files_say_their_version_beside_the_weights(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        del file.attrs["keras_version"]
        file["model_weights"].attrs["keras_version"] = b"2.0.9"
        file["model_weights"].attrs["backend"] = b"theano"

    found = architecture(changed(tmp_path, change))
    assert (found.keras_version, found.backend) == ("2.0.9", "theano")
    (tmp_path / "model.h5").unlink()

    def both(file: h5py.File) -> None:
        change(file)
        file.attrs["keras_version"], file.attrs["backend"] = b"2.3.0", b"tensorflow"

    found = architecture(changed(tmp_path, both))
    assert (found.keras_version, found.backend) == ("2.3.0", "tensorflow")


def test_what_is_no_plain_array_is_no_extra(tmp_path: Path) -> None:
    """Nothing at all, text of open length, a type by itself; each array once, whatever links lead to it."""

    def change(file: h5py.File) -> None:
        file["kept"] = np.arange(2)
        file["kept too"] = file["kept"]
        file["model"] = file["model_weights"]
        file["fast"] = file["model_weights/fast"]
        file["empty"] = h5py.Empty("f4")
        file["words"] = ["one", "other"]
        file["type"] = np.dtype("f4")
        file["round/below"] = np.arange(3)
        file["round/back"] = file["round"]

    extras = architecture(changed(tmp_path, change)).extras
    assert [name for name in extras if not name.startswith("fast/")] == ["kept", "round/below"]


def _attribute(name: str, value: Any) -> Change:
    return lambda file: file.attrs.__setitem__(name, json.dumps(value) if value != "{" else value)


def _unlisted(file: h5py.File) -> None:
    del file["model_weights/fast"].attrs["weight_names"]


def _absent(file: h5py.File) -> None:
    file["model_weights"].attrs["layer_names"] = [b"fast", b"slow"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_attribute("model_config", "{"), "model_config: expected JSON, found Expecting property name"),
        (
            _attribute("model_config", {"class_name": "Sequential"}),
            "model_config: expected class_name and config, found class_name",
        ),
        (
            _attribute("model_config", {"config": {}, "name": "m"}),
            "model_config: expected class_name and config, found config, name",
        ),
        (_attribute("training_config", "{"), "training_config: expected JSON, found Expecting property name"),
        (_unlisted, "HDF5 /model_weights/fast: expected a group with weight_names, found none"),
        (_absent, "HDF5 /model_weights/slow: expected a group with weight_names, found none"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, change: Change, told: str) -> None:
    assert refused(changed(tmp_path, change)).startswith(told)


@pytest.mark.parametrize(
    ("count", "told"), [(0, "nothing"), (2, "g0, g1"), (5, "g0, g1, g2, g3, g4"), (6, "g0, g1, g2, g3, g4")]
)
def test_a_file_of_another_program_is_told_by_what_is_in_it(tmp_path: Path, count: int, told: str) -> None:
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        for k in range(count):
            file.create_group(f"g{k}")
    assert refused(path) == f"HDF5 /: expected layer_names, as Keras writes, found {told}"


def test_weights_outside_of_layers_are_refused(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        group = file["model_weights"].create_group("top_level_model_weights")
        group.attrs["weight_names"] = np.array([], "S1")

    path = changed(tmp_path, change)
    assert [*architecture(path).weights] == ["fast"]
    with h5py.File(path, "a") as file:
        group = file["model_weights/top_level_model_weights"]
        group.attrs["weight_names"] = [b"scale:0"]
        group["scale:0"] = np.arange(3.0)
    told = "model: expected weights in layers alone, found some of the model itself"
    assert refused(path, UnsupportedModelError) == f"{told}; save it with those in a layer"


def test_layers_without_weights_are_not_listed(tmp_path: Path) -> None:
    path = whole(tmp_path / "model.h5", CONFIG, {"idle": [], "fast": LSTM})
    assert [*architecture(path).weights] == ["fast"]


def test_a_config_beside_the_weights_is_a_whole_one(tmp_path: Path) -> None:
    model = keras_hdf5.read(weights_file(tmp_path / "weights"))
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**CONFIG, "keras_version": "2.3.1", "backend": "theano"}))
    made = keras_hdf5.with_architecture(model, path)
    found = made.architecture
    assert found is not None
    assert (made.path, made.kind) == (model.path, model.kind)
    assert (found.keras_version, found.backend) == ("2.3.1", "theano")
    for (_, tensor), (_, array) in zip(found.weights["fast"], LSTM, strict=True):
        np.testing.assert_array_equal(tensor.read(), array, strict=True)
    for told in ({"class_name": "Sequential"}, {"config": {}}):
        path.write_text(json.dumps(told))
        with pytest.raises(ReadError) as caught:
            keras_hdf5.with_architecture(model, path)
        expected = "model.json: expected class_name and config, as model.to_json() writes, found neither"
        assert str(caught.value) == f"{path}: {expected}"


def test_what_the_config_claims_is_looked_at(tmp_path: Path) -> None:
    config = {"class_name": "Sequential", "config": {"name": "model", "layers": 3}}
    assert refused(changed(tmp_path, _attribute("model_config", config))).startswith("model_config: model")
    path = tmp_path / "model.json"
    path.write_text(json.dumps(config))
    model = keras_hdf5.read(weights_file(tmp_path / "weights"))
    with pytest.raises(ReadError) as caught:
        keras_hdf5.with_architecture(model, path)
    assert str(caught.value).startswith(f"{path}: model.json: model")


@pytest.mark.parametrize("whole_file", [False, True])
def test_a_config_may_belong_to_the_weights_of_a_whole_model(tmp_path: Path, whole_file: bool) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(CONFIG))
    source = changed(tmp_path, lambda file: file.attrs.__delitem__("model_config")) if whole_file else None
    source = source or weights_file(tmp_path / "weights")
    model = keras_hdf5.Model(source, keras_hdf5.KIND, None, {})
    found = keras_hdf5.with_architecture(model, path).architecture
    assert found is not None
    assert (found.keras_version, found.backend, [*found.weights]) == ("", "", ["fast"])
