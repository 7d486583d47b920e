"""Whole Keras models and lists of weights in HDF5, and files that lie."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tf_keras
from support.keras_files import Arrays, cudnn, entry, put, sequential, whole
from support.keras_samples import KERAS_FIXTURES, keras_fixture
from support.samples import REAL

from cudnn_convert.errors import AccessError, ReadError, UnsupportedModelError
from cudnn_convert.model import Architecture, InMemory, KerasFile, Mode, Model
from cudnn_convert.read import keras_archive, keras_hdf5
from cudnn_convert.read.hdf5 import Store

# Whole models and weights in HDF5: what is taken, what is left, and what is missing.

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
    model = keras_hdf5.read(path)
    assert (model.path, model.kind, model.keras) == (path, keras_hdf5.KIND, KerasFile.HDF5)
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
    assert refused(path) == f"HDF5 /: expected layer_names, as Keras writes them, found {told}"


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
    assert refused(path, UnsupportedModelError) == f"{told}; save the model with those in a layer"


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
    assert (made.path, made.kind, made.keras) == (model.path, model.kind, KerasFile.HDF5)
    assert found.keras_version == "2.3.1"
    for (_, tensor), (_, array) in zip(found.weights["fast"], LSTM, strict=True):
        np.testing.assert_array_equal(tensor.read(), array, strict=True)
    for told in ({"class_name": "Sequential"}, {"config": {}}):
        path.write_text(json.dumps(told))
        with pytest.raises(ReadError) as caught:
            keras_hdf5.with_architecture(model, path)
        expected = "expected class_name and config, as model.to_json() writes them, found a file without them"
        assert str(caught.value) == f"{path}: model.json: {expected}"


@pytest.mark.parametrize("inside", [False, True])
def test_weights_name_their_own_keras_whatever_the_config_says(tmp_path: Path, inside: bool) -> None:
    """keras 2.2.4 engine/saving.py load_weights_from_hdf5_group."""
    source, path = tmp_path / "weights", tmp_path / "model.json"
    path.write_text(json.dumps({**CONFIG, "keras_version": "2.3.1", "backend": "tensorflow"}))
    with h5py.File(source, "w") as file:
        holder = file.create_group("model_weights") if inside else file
        put(holder, {"fast": LSTM})
    model = Model(source, keras_hdf5.KIND, None, {})
    for attributes, expected in (
        ({}, ("1", "")),  # Keras 1 writes none
        ({"keras_version": b"2.1.6"}, ("2.1.6", "tensorflow")),
        ({"keras_version": b"2.1.6", "backend": b"theano"}, ("2.1.6", "theano")),
    ):
        with h5py.File(source, "a") as file:
            (file["model_weights"] if inside else file).attrs.update(attributes)
        found = keras_hdf5.with_architecture(model, path).architecture
        assert found is not None
        assert (found.keras_version, found.weights_version, found.backend) == ("2.3.1", *expected)


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


# CuDNN layers in lists of weights that say nothing but names and shapes.

RNG_OF_LISTS = np.random.default_rng(13)
DENSE = [("dense/kernel:0", np.ones((5, 12), np.float32)), ("dense/bias:0", np.ones(12, np.float32))]


def model(lists: dict[str, Arrays]) -> Model:
    held = {layer: [(name, InMemory(array)) for name, array in listed] for layer, listed in lists.items()}
    return keras_hdf5.model(Path("w.h5"), "weights", held)


def found(listed: Arrays) -> list[tuple[str, Mode, int, int, int]]:
    return [
        (one.scope, one.modes[0], one.directions, one.units, one.input_size)
        for one in model({"layer": listed}).canonical
    ]


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_layer_among_others(before: int, behind: int) -> None:
    listed = [*DENSE[:before], *cudnn(RNG_OF_LISTS, 4, 3, 5, "fast/"), *DENSE[:behind]]
    assert found(listed) == [("layer/", Mode.LSTM, 1, 3, 5)]


def test_layers_of_a_model_are_named_after_their_kernels() -> None:
    first, second = cudnn(RNG_OF_LISTS, 4, 3, 5, "one/"), cudnn(RNG_OF_LISTS, 3, 4, 3, "two/")
    expected = [("layer/one/", Mode.LSTM, 1, 3, 5), ("layer/two/", Mode.GRU, 1, 4, 3)]
    assert found([*first, *second]) == expected
    assert found([*first, *DENSE, *second]) == expected
    third = cudnn(RNG_OF_LISTS, 4, 2, 4, "m/three/")
    assert found([*first, *second, *third]) == [*expected, ("layer/m/three/", Mode.LSTM, 1, 2, 4)]


@pytest.mark.parametrize("stem", ["", "both/"])
def test_both_directions_are_one_recurrence(stem: str) -> None:
    ways = [cudnn(RNG_OF_LISTS, 3, 4, 6, f"{stem}{way}_gru/") for way in ("forward", "backward")]
    assert found([*ways[0], *ways[1]]) == [("layer/", Mode.GRU, 2, 4, 6)]
    wrong = [("layer/" + stem + way, Mode.GRU, 1, 4, 6) for way in ("backward_gru/", "forward_gru/")]
    assert found([*ways[1], *ways[0]]) == wrong
    assert len(found([*ways[0], *ways[1], *cudnn(RNG_OF_LISTS, 3, 4, 8, "c/")])) == 3


def test_each_weight_is_a_variable_of_its_layer() -> None:
    listed = [*DENSE, *cudnn(RNG_OF_LISTS, 4, 3, 5, "fast/")]
    made = model({"a": DENSE, "b": listed})
    assert [*made.variables] == [
        *("a/dense/kernel", "a/dense/bias", "b/dense/kernel", "b/dense/bias"),
        *("b/fast/kernel", "b/fast/recurrent_kernel", "b/fast/bias"),
    ]
    np.testing.assert_array_equal(made.variables["b/fast/bias"].read(), listed[4][1], strict=True)
    [one] = made.canonical
    np.testing.assert_array_equal(one.tensors["bias"].read(), listed[4][1], strict=True)


# Weights in groups named after classes: whose they are, and in which order Keras lists them.

RNG_OF_GROUPS = np.random.default_rng(5)
LAYERS = tf_keras.layers
OLD = "_layer_checkpoint_dependencies"


def held(path: Path, counts: Mapping[str, int]) -> Path:
    """A file with so many weights `vars/0`, `vars/1` in each group, in each the bytes `<group>/<k>`."""
    with h5py.File(path, "a") as file:
        for name, count in counts.items():
            below = file.require_group(f"{name}/vars")
            for k in range(count):
                below[str(k)] = np.frombuffer(f"{name}/{k}".encode(), np.uint8)
    return path


def told(tensor: Any) -> str:
    """What stands in a weight of `held`."""
    return bytes(tensor.read()).decode()


def listed(path: Path, *layers: Mapping[str, Any], **config: Any) -> dict[str, list[tuple[str, str]]]:
    """The weights of a model of such layers: their names, and what stands in them."""
    store = Store(path)
    with store.open() as file:
        found = keras_archive.read_weights(store, file, {"config": {"layers": layers, **config}})
    return {name: [(key, told(tensor)) for key, tensor in weights] for name, weights in found.items()}


def stored(path: Path, *layers: Mapping[str, Any]) -> dict[str, list[str]]:
    return {name: [where for _, where in found] for name, found in listed(path, *layers).items()}


def nested(name: str, *layers: Mapping[str, Any], **config: Any) -> dict[str, Any]:
    return entry("Functional", name, layers=list(layers), **config)


def alone(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Every list in a file without a config."""
    store = Store(path)
    with store.open() as file:
        found = keras_archive.lists(store, file)
    return {owner: [(name, told(tensor)) for name, tensor in weights] for owner, weights in found.items()}


@pytest.mark.parametrize(("container", "second", "third"), [("layers", 1, 2), (OLD, 2, 4)])
def test_layers_of_one_class_are_counted(tmp_path: Path, container: str, second: int, third: int) -> None:
    counts = {"dense": 2, f"dense_{second}": 1, f"dense_{third}": 2, "cu_dnnlstm": 3}
    path = held(tmp_path / "file", {f"{container}/{name}": count for name, count in counts.items()})
    dense = [entry("Dense", name) for name in ("z", "y", "x")]
    assert listed(path, *dense[:2], entry("CuDNNLSTM", "fast"), dense[2], entry("Dropout", "none")) == {
        "z": [("z/0:0", f"{container}/dense/0"), ("z/1:0", f"{container}/dense/1")],
        "y": [("y/0:0", f"{container}/dense_{second}/0")],
        "fast": [(f"fast/{k}:0", f"{container}/cu_dnnlstm/{k}") for k in range(3)],
        "x": [("x/0:0", f"{container}/dense_{third}/0"), ("x/1:0", f"{container}/dense_{third}/1")],
    }


def test_layers_with_weights_count_twice_in_keras_2_12(tmp_path: Path) -> None:
    """A model listed them twice: by their numbers among all layers, and among those with weights."""
    counts = {"time_distributed/layer": 2, "time_distributed_2": 0, "time_distributed_3": 0}
    counts |= {"time_distributed_4/layer": 1, "time_distributed_6/layer": 2}
    path = held(tmp_path / "file", {f"{OLD}/{name}": count for name, count in counts.items()})
    kinds = {"a": "Conv1D", "b": "Flatten", "c": "Flatten", "d": "Dense", "e": "Dense"}
    layers = [entry("TimeDistributed", name, layer=entry(kind, kind)) for name, kind in kinds.items()]
    assert stored(path, *layers) == {
        "a": [f"{OLD}/time_distributed/layer/{k}" for k in range(2)],
        "d": [f"{OLD}/time_distributed_4/layer/0"],
        "e": [f"{OLD}/time_distributed_6/layer/{k}" for k in range(2)],
    }


def test_newer_groups_count_where_older_ones_stand_beside_them(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {f"{OLD}/dense": 1, "layers/dense": 1})
    assert stored(path, entry("Dense", "a")) == {"a": ["layers/dense/0"]}
    assert alone(path) == {"dense": [("dense/0:0", "layers/dense/0"), ("dense/0:0", f"{OLD}/dense/0")]}


def test_a_model_may_be_a_plain_list_of_layers_and_have_no_weights(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {"layers/dense": 1})
    store = Store(path)
    with store.open() as file:
        found = keras_archive.read_weights(
            store, file, {"config": [entry("Dense", "a"), entry("Dense", "b")]}
        )
    assert [told(tensor) for _, tensor in found["a"]] == ["layers/dense/0"]
    assert [*found] == ["a"]
    assert listed(held(tmp_path / "empty", {}), entry("Dense", "a")) == {}


def test_the_tenth_weight_stands_behind_the_ninth(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {"layers/block": 12})
    with h5py.File(path, "a") as file:
        file["layers/block/vars"].create_group("meta")
    assert stored(path, entry("Block", "a")) == {"a": [f"layers/block/{k}" for k in range(12)]}


def test_what_is_not_trained_stands_behind_what_is(tmp_path: Path) -> None:
    inner = "layers/functional/layers"
    counts = {
        "normalization": 3,
        "batch_normalization": 4,
        "dense": 2,
        "dense_1": 1,
        "sync_batch_normalization": 3,
    }
    path = held(tmp_path / "file", {f"{inner}/{name}": count for name, count in counts.items()})
    layers = [
        entry("Normalization", "scaled"),
        entry("BatchNormalization", "normal"),
        entry("Dense", "frozen", trainable=False),
        entry("Dense", "dense", trainable=True),
        entry("SyncBatchNormalization", "together"),
    ]
    trained = ["batch_normalization/0", "batch_normalization/1", "dense_1/0", "sync_batch_normalization/0"]
    rest = ["normalization/0", "normalization/1", "normalization/2"]
    rest += ["batch_normalization/2", "batch_normalization/3", "dense/0", "dense/1"]
    rest += ["sync_batch_normalization/1", "sync_batch_normalization/2"]
    expected = [f"{inner}/{name}" for name in (*trained, *rest)]
    assert stored(path, nested("inner", *layers)) == {"inner": expected}
    named = dict(listed(path, nested("inner", *layers)))["inner"]
    assert (named[0][0], named[-1][0]) == ("inner/normal/0:0", "inner/together/2:0")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_frozen_model_within_a_model_has_nothing_that_is_trained(tmp_path: Path, frozen: bool) -> None:
    outer = "layers/functional/layers"
    inner = f"{outer}/functional/layers"
    path = held(
        tmp_path / "file", {f"{inner}/batch_normalization": 4, f"{inner}/dense": 1, f"{outer}/dense": 1}
    )
    part = nested("part", entry("BatchNormalization", "n"), entry("Dense", "d"), trainable=not frozen)
    first = [f"{inner}/batch_normalization/0", f"{inner}/batch_normalization/1", f"{inner}/dense/0"]
    still = [f"{inner}/batch_normalization/2", f"{inner}/batch_normalization/3"]
    last = [f"{outer}/dense/0"]
    expected = [*last, *first, *still] if frozen else [*first, *last, *still]
    assert stored(path, nested("all", part, entry("Dense", "e"))) == {"all": expected}


def test_both_directions_stand_forward_first(tmp_path: Path) -> None:
    group = "layers/bidirectional"
    path = held(tmp_path / "file", {f"{group}/backward_layer": 2, f"{group}/forward_layer/cell": 2})
    layer = entry("Bidirectional", "both", layer=entry("LSTM", "lstm"))
    expected = [f"{group}/forward_layer/cell/0", f"{group}/forward_layer/cell/1"]
    expected += [f"{group}/backward_layer/0", f"{group}/backward_layer/1"]
    assert [where for _, where in listed(path, layer)["both"]] == expected
    names = [name for name, _ in listed(path, layer)["both"]]
    assert names[0] == "both/forward_layer/cell/0:0"
    assert names[2:] == ["both/backward_layer/0:0", "both/backward_layer/1:0"]
    assert [where for _, where in alone(path)["bidirectional"]] == expected


def test_directions_are_trained_or_not_each_by_itself(tmp_path: Path) -> None:
    group = "layers/bidirectional"
    path = held(tmp_path / "file", {f"{group}/backward_layer": 1, f"{group}/forward_layer": 1})
    still = {"layer": entry("CuDNNGRU", "f", trainable=False), "backward_layer": entry("CuDNNGRU", "b")}
    expected = [f"{group}/backward_layer/0", f"{group}/forward_layer/0"]
    assert stored(path, entry("Bidirectional", "both", **still)) == {"both": expected}


def test_a_wrapper_has_the_weights_of_its_layer(tmp_path: Path) -> None:
    counts = {"time_distributed/layer": 2, "time_distributed_1/layer/layers/dense": 1}
    counts["time_distributed_1/layer/layers/dense_1"] = 1
    path = held(tmp_path / "file", {f"layers/{name}": count for name, count in counts.items()})
    model = nested("inner", entry("Dense", "a", trainable=False), entry("Dense", "b"))
    wrapped = [
        entry("TimeDistributed", "one", layer=entry("Dense", "dense")),
        entry("TimeDistributed", "two", layer=model),
    ]
    inner = "layers/time_distributed_1/layer/layers"
    assert listed(path, *wrapped) == {
        "one": [(f"one/{k}:0", f"layers/time_distributed/layer/{k}") for k in range(2)],
        "two": [("two/b/0:0", f"{inner}/dense_1/0"), ("two/a/0:0", f"{inner}/dense/0")],
    }


def test_layers_without_weights_may_have_no_group(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {"layers/dense": 1, "layers/time_distributed": 0})
    wrapper = entry("TimeDistributed", "flat", layer=entry("Flatten", "flatten"))
    model = nested("still", entry("Flatten", "flatten"))
    assert stored(path, wrapper, model, entry("Dense", "a")) == {"a": ["layers/dense/0"]}


def test_seeds_are_no_weights(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {"layers/noisy": 1, "layers/noisy/seed_generator": 1, "layers/empty": 0})
    assert stored(path, entry("Noisy", "a")) == {"a": ["layers/noisy/0"]}
    assert alone(path) == {"noisy": [("noisy/0:0", "layers/noisy/0")]}


def test_a_layer_with_two_lists_is_refused(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {"layers/attention/key": 2, "layers/attention/query": 2})
    with pytest.raises(UnsupportedModelError) as caught:
        listed(path, entry("Attention", "heads"))
    expected = "heads: expected a layer with one list of weights, found 2; save the model as .h5"
    assert str(caught.value) == f"{path}: {expected}"


def test_links_in_circles_lead_to_each_group_once(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {"layers/block/below": 1})
    with h5py.File(path, "a") as file:
        block = file["layers/block"]
        block["again"] = block["below"]
        block["below/around"], block["below/back"] = block, file["layers"]
        block["data"] = np.arange(3)
    assert alone(path) == {"block/again": [("block/again/0:0", "layers/block/below/0")]}


def test_a_list_of_layers_tells_the_older_form(tmp_path: Path) -> None:
    path = held(tmp_path / "file", {"layers/dense": 1})
    with h5py.File(path, "a") as file:
        assert keras_archive.present(file)
        file.attrs["layer_names"] = [b"layers"]
        assert not keras_archive.present(file)
        assert keras_archive.present(file.create_group(f"below/{OLD}").parent)
        assert not keras_archive.present(file.create_group("dense"))


def test_recurrences_of_a_file_without_a_config(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    both = {"forward_layer": cudnn(RNG_OF_GROUPS, 3, 4, 6), "backward_layer": cudnn(RNG_OF_GROUPS, 3, 4, 6)}
    one = cudnn(RNG_OF_GROUPS, 4, 3, 5)
    with h5py.File(path, "w") as file:
        for name, weights in {
            "cu_dnnlstm": one,
            **{f"bidirectional/{k}": v for k, v in both.items()},
        }.items():
            for k, (_, array) in enumerate(weights):
                file[f"layers/{name}/vars/{k}"] = array
    model = keras_hdf5.read(path)
    assert (model.path, model.kind, model.keras) == (path, keras_hdf5.KIND, KerasFile.HDF5)
    pair, single = model.canonical
    assert (pair.scope, pair.modes, pair.directions) == ("bidirectional/", (Mode.GRU,), 2)
    assert (single.scope, single.modes, single.units) == ("cu_dnnlstm/", (Mode.LSTM,), 3)
    for way, weights in both.items():
        for name, array in weights:
            found = pair.tensors[f"{way}/{name.removesuffix(':0')}"].read()
            np.testing.assert_array_equal(found, array, strict=True)
    np.testing.assert_array_equal(single.tensors["recurrent_kernel"].read(), one[1][1], strict=True)


def test_newer_groups_take_their_architecture_from_json(tmp_path: Path) -> None:
    path, config = tmp_path / "model.weights.h5", tmp_path / "model.json"
    with h5py.File(path, "w") as file:
        for k, (_, array) in enumerate(LSTM):
            file[f"layers/cu_dnnlstm/vars/{k}"] = array
    config.write_text(json.dumps(CONFIG))
    model = keras_hdf5.with_architecture(keras_hdf5.read(path), config)
    assert model.keras is KerasFile.HDF5
    assert model.architecture is not None
    for (_, tensor), (_, array) in zip(model.architecture.weights["fast"], LSTM, strict=True):
        np.testing.assert_array_equal(tensor.read(), array, strict=True)


def test_a_group_is_read_once_however_many_ways_lead_to_it(tmp_path: Path) -> None:
    """Thirty floors, each with two stairs to the next: a thousand million ways to the lowest."""
    path = held(tmp_path / "file", {"layers/floor": 1})
    with h5py.File(path, "a") as file:
        floor = file["layers/floor"]
        for _ in range(30):
            above = file.create_group(None)
            above["one"], above["two"] = floor, floor
            floor = above
        file["layers/tower"] = floor
    assert [where for found in alone(path).values() for _, where in found] == ["layers/floor/0"]


def ours(path: Path) -> dict[str, list[np.ndarray]]:
    found = keras_archive.read(path).architecture
    assert found is not None
    return {name: [tensor.read() for _, tensor in weights] for name, weights in found.weights.items()}


@pytest.mark.slow("cudnn_convert/keras/config", "cudnn_convert/read")
def test_the_order_is_that_of_keras_itself(tmp_path: Path) -> None:
    """The lists of tf_keras's own layers are the judge."""
    tf_keras.backend.clear_session()
    normal = [LAYERS.Normalization(name="scaled"), LAYERS.BatchNormalization(), LAYERS.Dense(4)]
    part = tf_keras.Sequential([LAYERS.Input((None, 3)), *normal, LAYERS.Dense(3)], name="part")
    normal[2].trainable = False
    still = tf_keras.Sequential([LAYERS.Input((None, 3)), LAYERS.BatchNormalization(), LAYERS.Dense(2)])
    still.trainable = False
    given = LAYERS.Input((None, 3))
    inner = tf_keras.Model(given, LAYERS.Dense(5)(still(part(given))), name="inner")
    both = LAYERS.Bidirectional(LAYERS.LSTM(2, return_sequences=True))
    model = tf_keras.Sequential(
        [LAYERS.Input((None, 3)), inner, both, LAYERS.TimeDistributed(LAYERS.Dense(6))]
    )
    for layer in model.layers:
        layer.set_weights(
            [RNG_OF_GROUPS.normal(size=array.shape).astype(array.dtype) for array in layer.get_weights()]
        )
    path = tmp_path / "model.keras"
    model.save(path)
    found = ours(path)
    assert [*found] == [layer.name for layer in model.layers]
    for layer in model.layers:
        expected = [*layer.trainable_weights, *layer.non_trainable_weights]
        for array, variable in zip(found[layer.name], expected, strict=True):
            np.testing.assert_array_equal(array, variable.numpy(), strict=True)


# Keras's files read without building anything, and files that lie.

RNG_OF_FILES = np.random.default_rng(3)
BATCHED_LSTM = cudnn(RNG_OF_FILES, 4, 3, 5, "fast/")
BATCHED_CONFIG = sequential(entry("CuDNNLSTM", "fast", units=3, batch_input_shape=[None, None, 5]))


@pytest.mark.parametrize("block", [0, 512, 4096])
@pytest.mark.parametrize("name", ["model.h5", "model.keras", "weights"])
def test_knows_hdf5_by_its_signature(tmp_path: Path, block: int, name: str) -> None:
    path = tmp_path / name
    with h5py.File(path, "w", userblock_size=block) as file:
        file.attrs["model_config"] = json.dumps(BATCHED_CONFIG)
        put(file.create_group("model_weights"), {"fast": BATCHED_LSTM})
    assert keras_hdf5.recognise(path) == path
    assert keras_archive.recognise(path) is None
    found = keras_hdf5.read(path).architecture
    assert found is not None
    np.testing.assert_array_equal(found.weights["fast"][2][1].read(), BATCHED_LSTM[2][1])


@pytest.mark.parametrize("content", [b"", b"\x89HDF", b"x" * 4096, b"PK\x03\x04" + b"x" * 100])
def test_other_files_are_not_keras(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes(content)
    assert keras_hdf5.recognise(path) is None
    assert keras_archive.recognise(path) is None
    assert keras_hdf5.recognise(tmp_path) is None


def test_reads_attributes_that_are_bytes_or_divided(tmp_path: Path) -> None:
    path = whole(tmp_path / "a", BATCHED_CONFIG, {"fast": BATCHED_LSTM}, as_bytes=True)
    with h5py.File(path, "a") as file:
        group = file["model_weights"]
        names = list(group["fast"].attrs["weight_names"])
        del group["fast"].attrs["weight_names"], group.attrs["layer_names"]
        group["fast"].attrs["weight_names0"] = np.array(names[:2])
        group["fast"].attrs["weight_names1"] = np.array(names[2:])
        group.attrs["layer_names0"] = np.array([b"fast"])
    found = keras_hdf5.read(path).architecture
    assert found is not None
    assert [name for name, _ in found.weights["fast"]] == [name for name, _ in BATCHED_LSTM]
    assert found.keras_version == "2.2.4"
    assert found.config == BATCHED_CONFIG


def test_weights_alone_are_recurrences_named_after_their_layers(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    pair = [
        *cudnn(RNG_OF_FILES, 3, 4, 6, "pair/forward_gru/"),
        *cudnn(RNG_OF_FILES, 3, 4, 6, "pair/backward_gru/"),
    ]
    dense = [("kernel:0", np.ones((5, 12), np.float32)), ("bias:0", np.ones(12, np.float32))]
    with h5py.File(path, "w") as file:
        put(file, {"dense": dense, "rnn": cudnn(RNG_OF_FILES, 4, 3, 5), "pair": pair})
    model = keras_hdf5.read(path)
    assert model.graph is None and model.architecture is None
    assert model.plain.layers == ("dense: Dense, 5 to 12",)
    found = [(one.scope, one.modes, one.directions, one.units, one.input_size) for one in model.canonical]
    assert found == [("rnn/", (Mode.LSTM,), 1, 3, 5), ("pair/", (Mode.GRU,), 2, 4, 6)]
    np.testing.assert_array_equal(model.canonical[1].tensors["backward_layer/bias"].read(), pair[5][1])


def test_weights_take_their_architecture_from_json(tmp_path: Path) -> None:
    path, told = tmp_path / "weights", tmp_path / "model.json"
    with h5py.File(path, "w") as file:
        put(file, {"fast": BATCHED_LSTM})
    told.write_text(json.dumps({**BATCHED_CONFIG, "keras_version": "2.3.1", "backend": "tensorflow"}))
    found = keras_hdf5.with_architecture(keras_hdf5.read(path), told).architecture
    assert found is not None
    assert (found.keras_version, [*found.weights]) == ("2.3.1", ["fast"])
    told.write_text("[1]")
    with pytest.raises(ReadError, match=r"model.json: model.json: expected a JSON object, found list"):
        keras_hdf5.with_architecture(keras_hdf5.read(path), told)
    with pytest.raises(AccessError):
        keras_hdf5.with_architecture(keras_hdf5.read(path), tmp_path / "none.json")


def test_an_archive_says_what_its_hdf5_twin_says() -> None:
    for name in ("nested", "siamese", "bidirectional"):
        archive = keras_archive.read(keras_fixture(f"tf_keras-2.21.0-archive_{name}").path).architecture
        assert archive is not None
        sample = keras_fixture(f"tf_keras-2.21.0-{name}")
        twin = keras_hdf5.read(sample.path).architecture
        assert twin is not None
        shapes = [
            {layer: [tensor.shape for _, tensor in listed] for layer, listed in model.weights.items()}
            for model in (archive, twin)
        ]
        assert shapes[0] == shapes[1]


def broken(tmp_path: Path, change) -> Path:
    path = whole(tmp_path / "model.h5", BATCHED_CONFIG, {"fast": BATCHED_LSTM})
    with h5py.File(path, "a") as file:
        change(file)
    return path


def _external(file: h5py.File) -> None:
    del file["model_weights/fast/fast/bias:0"]
    file["model_weights/fast/fast/bias:0"] = h5py.ExternalLink("/etc/passwd", "/")


def _soft(file: h5py.File) -> None:
    del file["model_weights/fast"]
    file["model_weights/fast"] = h5py.SoftLink("/model_weights/fast")


def _outside(file: h5py.File) -> None:
    del file["model_weights/fast/fast/bias:0"]
    group = file["model_weights/fast/fast"]
    group.create_dataset("bias:0", (24,), "f4", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])


def _huge(file: h5py.File) -> None:
    del file["model_weights/fast/fast/kernel:0"]
    shape = (1 << 20, 1 << 20)
    file["model_weights/fast/fast"].create_dataset("kernel:0", shape, "f4", chunks=(1024, 1024))


def _missing(file: h5py.File) -> None:
    del file["model_weights/fast/fast/bias:0"]


def _group(file: h5py.File) -> None:
    _missing(file)
    file["model_weights/fast/fast"].create_group("bias:0")


def _nested(file: h5py.File) -> None:
    file.attrs["model_config"] = "[" * 60000


def _nameless(file: h5py.File) -> None:
    del file["model_weights"].attrs["layer_names"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_external, "expected an object in the file itself, found a link that leads elsewhere"),
        (_soft, "expected an object in the file itself, found a link that leads elsewhere"),
        (_outside, "expected values in the file itself, found values in another file"),
        (_huge, "bytes of values, found 0 bytes stored"),
        (_missing, "expected an object in the file itself, found nothing"),
        (_group, "expected an array, found a group"),
        (_nested, "expected JSON, found"),
        (_nameless, "expected layer_names, as Keras writes them, found fast"),
    ],
)
def test_a_file_that_lies_is_refused_in_one_line(tmp_path: Path, change, told: str) -> None:
    with pytest.raises(ReadError) as caught:
        keras_hdf5.read(broken(tmp_path, change))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_in_a_circle_end(tmp_path: Path) -> None:
    def change(file: h5py.File) -> None:
        file.create_group("around")["back"] = file["/"]
        file["around/data"] = np.arange(3)

    found = keras_hdf5.read(broken(tmp_path, change)).architecture
    assert found is not None
    assert [name for name in found.extras if "around" in name] == ["around/data"]


@pytest.mark.parametrize("size", [64, 1000, 4000])
def test_a_truncated_file_is_refused_in_one_line(tmp_path: Path, size: int) -> None:
    path = whole(tmp_path / "model.h5", BATCHED_CONFIG, {"fast": BATCHED_LSTM})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ReadError, match=r"expected a readable HDF5 file, found \S") as caught:
        keras_hdf5.read(path)
    assert "\n" not in str(caught.value)


def test_flipped_bytes_never_meet_another_error(tmp_path: Path) -> None:
    content = whole(tmp_path / "model.h5", BATCHED_CONFIG, {"fast": BATCHED_LSTM}).read_bytes()
    path = tmp_path / "flipped.h5"
    for _ in range(150):
        changed = bytearray(content)
        for place in RNG_OF_FILES.integers(8, len(content), 20):
            changed[place] ^= int(RNG_OF_FILES.integers(1, 256))
        path.write_bytes(bytes(changed))
        try:
            found = keras_hdf5.read(path).architecture
            for listed in found.weights.values() if found else ():
                for _, tensor in listed:
                    tensor.read()
        except (ReadError, UnsupportedModelError) as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("member", ["config.json", "model.weights.h5"])
def test_a_damaged_archive_is_refused_in_one_line(tmp_path: Path, member: str) -> None:
    source = keras_fixture("tf_keras-2.21.0-archive_siamese").path
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(path, "w") as made:
        for name in archive.namelist():
            content = archive.read(name)
            made.writestr(name, content[: len(content) // 2] if name == member else content)
    with pytest.raises(ReadError) as caught:
        keras_archive.read(path)
    assert member in str(caught.value) and "\n" not in str(caught.value)


def test_no_code_of_a_file_runs(tmp_path: Path) -> None:
    """Reading every sample, those with code in them too, imports no TensorFlow and no Keras."""
    listed = [
        str(sample.path) for sample in KERAS_FIXTURES if "pwned" in sample.name or "custom" in sample.name
    ]
    assert len(listed) >= 3
    script = (
        "import sys, importlib, pathlib, types\n"
        "package = types.ModuleType('cudnn_convert.read')\n"
        "import cudnn_convert\n"
        "package.__path__ = [str(pathlib.Path(cudnn_convert.__file__).parent / 'read')]\n"
        "sys.modules['cudnn_convert.read'] = package\n"
        "h5 = importlib.import_module('cudnn_convert.read.keras_hdf5')\n"
        "archive = importlib.import_module('cudnn_convert.read.keras_archive')\n"
        "from cudnn_convert.keras.config import classes, layer_tree\n"
        "for name in sys.argv[1:]:\n"
        "    path = pathlib.Path(name)\n"
        "    reader = archive if archive.recognise(path) else h5\n"
        "    held = layer_tree.below(reader.read(path).architecture.config)\n"
        "    assert not all(classes.is_keras_class(found) for _, found in held)\n"
        "assert not {'tensorflow', 'keras', 'tf_keras'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *listed], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not (REAL / "medaka").is_dir(), reason=f"no real models at {REAL}")
def test_real_files() -> None:
    path = REAL / "medaka" / "r941_min_high_g303_model.hdf5"
    found = keras_hdf5.read(path).architecture
    assert found is not None
    assert [*found.extras] == [
        "meta/feature_encoder",
        "meta/label_scheme",
        "meta/model_function",
        "samples/registry",
    ]
    # They hold pickles: bytes is all that they are here.
    assert found.extras["meta/feature_encoder"].read().dtype.kind == "S"
    (path,) = (REAL / "textgenrnn").glob("*.hdf5")
    assert [(one.scope, one.units, one.input_size) for one in keras_hdf5.read(path).canonical] == [
        ("rnn_1/", 128, 100),
        ("rnn_2/", 128, 128),
    ]
