"""Weights in groups named after classes: whose they are, and in which order Keras lists them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tf_keras
from keras_files import cudnn, entry

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import Mode
from cudnn_convert.read import keras_archive, keras_hdf5
from cudnn_convert.read.hdf5 import Store

RNG = np.random.default_rng(5)
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


@pytest.mark.parametrize("container", ["layers", OLD])
def test_layers_of_one_class_are_counted(tmp_path: Path, container: str) -> None:
    counts = {"dense": 2, "dense_1": 1, "dense_2": 2, "cu_dnnlstm": 3}
    path = held(tmp_path / "file", {f"{container}/{name}": count for name, count in counts.items()})
    dense = [entry("Dense", name) for name in ("z", "y", "x")]
    assert listed(path, *dense[:2], entry("CuDNNLSTM", "fast"), dense[2], entry("Dropout", "none")) == {
        "z": [("z/0:0", f"{container}/dense/0"), ("z/1:0", f"{container}/dense/1")],
        "y": [("y/0:0", f"{container}/dense_1/0")],
        "fast": [(f"fast/{k}:0", f"{container}/cu_dnnlstm/{k}") for k in range(3)],
        "x": [("x/0:0", f"{container}/dense_2/0"), ("x/1:0", f"{container}/dense_2/1")],
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
    both = {"forward_layer": cudnn(RNG, 3, 4, 6), "backward_layer": cudnn(RNG, 3, 4, 6)}
    one = cudnn(RNG, 4, 3, 5)
    with h5py.File(path, "w") as file:
        for name, weights in {
            "cu_dnnlstm": one,
            **{f"bidirectional/{k}": v for k, v in both.items()},
        }.items():
            for k, (_, array) in enumerate(weights):
                file[f"layers/{name}/vars/{k}"] = array
    pair, single = keras_hdf5.read(path).canonical
    assert (pair.scope, pair.modes, pair.directions) == ("bidirectional/", (Mode.GRU,), 2)
    assert (single.scope, single.modes, single.units) == ("cu_dnnlstm/", (Mode.LSTM,), 3)
    for way, weights in both.items():
        for name, array in weights:
            found = pair.tensors()[f"{way}/{name.removesuffix(':0')}"]
            np.testing.assert_array_equal(found, array, strict=True)
    np.testing.assert_array_equal(single.tensors()["recurrent_kernel"], one[1][1], strict=True)


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
        layer.set_weights([RNG.normal(size=array.shape).astype(array.dtype) for array in layer.get_weights()])
    path = tmp_path / "model.keras"
    model.save(path)
    found = ours(path)
    assert [*found] == [layer.name for layer in model.layers]
    for layer in model.layers:
        expected = [*layer.trainable_weights, *layer.non_trainable_weights]
        for array, variable in zip(found[layer.name], expected, strict=True):
            np.testing.assert_array_equal(array, variable.numpy(), strict=True)
