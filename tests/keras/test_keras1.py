"""Keras 1 and Theano: gates, kernels and layers as Keras 2 has them; public models show the whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.keras_files import entry, model, sequential

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import keras1
from cudnn_convert.keras.config import layer_tree
from cudnn_convert.model import Architecture, InMemory, Model

HERE = Path("model.h5")
RNG = np.random.default_rng(5)


def named(layer: str, **arrays: Any) -> tuple[tuple[str, InMemory], ...]:
    return tuple(
        (f"{layer}_{name}:0", InMemory(np.asarray(value, np.float32))) for name, value in arrays.items()
    )


def translated(config: Any, weights: Any, **fields: Any) -> Architecture:
    described = replace(model(config, {}), weights=weights, **{"keras_version": "1.2.2", **fields})
    found = keras1.translate_model(
        Model(HERE, "Keras HDF5 file", None, {}, architecture=described)
    ).architecture
    assert found is not None
    return found


def test_gates_stand_side_by_side_in_the_order_of_keras_2() -> None:
    """keras 2.2.4 engine/saving.py: Keras 1 lists i, c, f, o; Keras 2 has i, f, c, o."""
    gates = {gate: RNG.standard_normal((3, 2)) for gate in "icfo"}
    arrays = {}
    for number, gate in enumerate("icfo"):
        arrays |= {f"W_{gate}": gates[gate], f"U_{gate}": np.full((2, 2), number), f"b_{gate}": [number] * 2}
    config = sequential(
        entry("LSTM", "rnn", output_dim=2, inner_activation="hard_sigmoid", inner_init="orthogonal")
    )
    found = translated(config, {"rnn": named("rnn", **arrays)})
    (kernel, recurrent, bias) = (tensor for _, tensor in found.weights["rnn"])
    np.testing.assert_array_equal(
        kernel.read(), np.concatenate([gates[gate] for gate in "ifco"], axis=1).astype(np.float32)
    )
    np.testing.assert_array_equal(bias.read(), [0, 0, 2, 2, 1, 1, 3, 3])
    np.testing.assert_array_equal(recurrent.read()[0], [0, 0, 2, 2, 1, 1, 3, 3])
    assert kernel.shape == (3, 8) and found.translated
    (layer,) = layer_tree.layer_entries(found.config)
    assert layer["config"] == {"name": "rnn", "units": 2, "recurrent_activation": "hard_sigmoid"}


def test_kernels_of_theano_are_turned_in_files_of_keras_2() -> None:
    kernel = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    config = sequential(entry("Conv2D", "image", filters=5, kernel_size=[2, 3]))
    weights = {"image": named("image", kernel=kernel, bias=np.zeros(5))}
    found = translated(config, weights, keras_version="2.1.6", backend="theano")
    np.testing.assert_array_equal(found.weights["image"][0][1].read(), kernel[::-1, ::-1])
    assert (found.backend, found.translated) == ("tensorflow", True)
    same = translated(config, weights, keras_version="2.1.6", backend="tensorflow")
    assert same.weights["image"] is weights["image"] and not same.translated


def called(layer: dict[str, Any], *sources: str, call: int = 0) -> dict[str, Any]:
    nodes = [[[source, call, 0] for source in sources]] if sources else []
    return {**layer, "name": layer["config"]["name"], "inbound_nodes": nodes}


def functional(*layers: dict[str, Any], call: int = 0) -> dict[str, Any]:
    config = {"name": "whole", "layers": [*layers], "output_layers": [[layers[-1]["name"], call, 0]]}
    return {"class_name": "Model", "config": {**config, "input_layers": [[layers[0]["name"], 0, 0]]}}


def row(*layers: dict[str, Any]) -> dict[str, Any]:
    """A Sequential as Keras 1 writes it, without a name."""
    return {"class_name": "Sequential", "config": [*layers]}


def settings(architecture: Architecture, name: str) -> Any:
    layers = {layer_tree.layer_name(each): each for _, each in layer_tree.walk(architecture.config)}
    return layers[name]["config"]


GIVEN = called(entry("InputLayer", "given", batch_input_shape=[None, 4], input_dtype="float32"))


def test_a_model_lists_what_it_trains_before_the_rest() -> None:
    """tf_keras v2.21.0 src/engine/base_layer.py weights."""
    norm = entry("BatchNormalization", "own", mode=0)
    inner = row(
        entry("Dense", "cold", output_dim=4, trainable=False),
        entry("TimeDistributed", "each", layer=norm),
        row(entry("Dense", "deep", output_dim=4), entry("Dense", "ice", output_dim=4, trainable=False)),
        entry("Bidirectional", "both", trainable=False, layer=entry("Dense", "way", output_dim=4)),
        entry("Dense", "warm", output_dim=4),
    )
    names = "cold_W deep_W ice_W warm_W forward_way_W backward_way_W own_gamma own_beta own_mean own_std"
    weights = tuple((f"{name}:0", InMemory(np.zeros(4))) for name in names.split())
    config = functional(GIVEN, {**inner, "name": "inner", "inbound_nodes": [[["given", 0, 0]]]}, call=1)
    listed = translated(config, {"inner": weights}).weights["inner"]
    assert " ".join(name.removesuffix(":0") for name, _ in listed) == (
        "own_gamma own_beta deep_W warm_W cold_W own_mean own_std ice_W forward_way_W backward_way_W"
    )


HIGHWAY = [RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 4), (4, 4), (4,), (4,))]


@pytest.mark.parametrize("version", ["1.2.2", "2.1.6"])
def test_the_calls_of_a_layer_that_became_a_model_count_from_1(version: str) -> None:
    """tf_keras v2.21.0 src/engine/functional.py waits forever for a call 0 of it."""
    way = called(entry("Highway", "way", activation="tanh"), "given")
    way["inbound_nodes"].append([["plain", 0, 0]])
    layers = (GIVEN, called(entry("Dense", "plain", output_dim=4), "given"), way)
    last = called(entry("Merge", "last", mode="sum"), "way", "plain")
    last["inbound_nodes"][0][0][1] = 1
    config = functional(*layers, last)
    config["config"]["output_layers"].append(["way", 0, 0])
    weights = named("way", **dict(zip(("W", "W_carry", "b", "b_carry"), HIGHWAY, strict=True)))
    found = translated(config, {"way": weights}, keras_version=version)
    assert layer_tree.unreachable_layers(found.config) == []
    *_, last = layer_tree.layer_entries(found.config)
    assert (last["class_name"], last["inbound_nodes"]) == ("Add", [[["way", 2, 0], ["plain", 0, 0]]])
    assert found.config["config"]["output_layers"] == [["last", 0, 0], ["way", 1, 0]]


@pytest.mark.parametrize("version", ["1.2.2", "2.1.6"])
def test_a_merge_of_branches_becomes_a_functional_model(version: str) -> None:
    given = entry("InputLayer", "given", batch_input_shape=[None, 4])
    branches = [row(given, entry("Dense", "left")), row(entry("Dense", "right", batch_input_shape=[None, 5]))]
    config = sequential(entry("Merge", "both", mode="mul", layers=branches), entry("Dense", "last"))
    found = translated(config, {}, keras_version=version)
    layers = {layer["name"]: layer["inbound_nodes"] for layer in layer_tree.layer_entries(found.config)}
    assert [*layers] == ["given", "left", "right_input", "right", "both", "last"]
    assert [*layer_tree.references(layers["both"])] == [("left", 0, 0), ("right", 0, 0)]
    assert layer_tree.unreachable_layers(found.config) == []
    assert settings(found, "right_input")["batch_input_shape"] == [None, 5]


def test_a_merge_of_a_branch_that_begins_with_a_model_is_refused() -> None:
    branches = [row(row(entry("Dense", "left", batch_input_shape=[None, 5]))), row(entry("Dense", "right"))]
    with pytest.raises(UnsupportedModelError, match="expected a layer at the begin of a merged model"):
        translated(sequential(entry("Merge", "both", mode="mul", layers=branches)), {})


def test_models_in_a_row_have_the_names_of_their_weights() -> None:
    rows = [row(entry("Dense", name, output_dim=4)) for name in ("first", "second")]
    config = row(rows[0], row(entry("Flatten", "flat")), rows[1])
    weights = {f"sequential_{k}": named(name, kernel=[k]) for k, name in ((3, "first"), (1, "second"))}
    weights = {
        group: ((f"{first[0][0].replace('/', '_')}", first[0][1]),) for group, first in weights.items()
    }
    found = translated(config, weights)
    assert layer_tree.names(found.config) == ["sequential_3", "flat_model", "sequential_1"]
    assert {group: [*tensor.read()] for group, ((_, tensor),) in found.weights.items()} == {
        "sequential_3": [3],
        "sequential_1": [1],
    }


def deconvolution(mode: str, size: int, step: int, shape: Any, ordering: str = "tf") -> dict[str, Any]:
    sizes = {"nb_row": size, "nb_col": size, "subsample": [step, step], "border_mode": mode}
    return entry("Deconvolution2D", "up", output_shape=shape, dim_ordering=ordering, nb_filter=3, **sizes)


@pytest.mark.parametrize(
    ("layer", "padding"),
    [
        (deconvolution("same", 3, 2, [None, 14, 14, 3]), None),
        (deconvolution("same", 3, 2, [None, 13, 13, 3]), [0, 0]),
        (deconvolution("same", 3, 2, [None, 13, 14, 3]), [0, 1]),
        (deconvolution("same", 2, 4, [None, 27, 25, 3]), [3, 1]),
        (deconvolution("valid", 3, 2, [None, 16, 15, 3]), [1, 0]),
        (deconvolution("valid", 3, 2, [None, 3, 15, 15], "th"), None),
        (deconvolution("valid", 2, 3, [None, 21, 20, 3]), [1, 0]),
    ],
)
def test_a_transposed_convolution_makes_the_size_that_is_written(layer: Any, padding: Any) -> None:
    """Keras 1.2.2 on TensorFlow 1.4.1 made these sizes of images of 7 and 7."""
    assert settings(translated(sequential(layer), {}), "up")["output_padding"] == padding


@pytest.mark.parametrize("shape", [[None, 14, 13, 3], [None, None, None, 3], None])
def test_sizes_that_keras_2_cannot_make_are_refused(shape: Any) -> None:
    with pytest.raises(
        UnsupportedModelError, match="layer up: expected an output_shape that Keras 2 can make"
    ):
        translated(sequential(deconvolution("same", 2, 2, shape)), {})


@pytest.mark.parametrize("kind", ["UpSampling2D", "ZeroPadding3D", "Cropping2D"])
def test_images_are_ordered_as_in_the_layers_that_say_so(kind: str) -> None:
    layer, (first, last) = (
        entry(kind, "mute", padding=[1, 1]),
        (entry("Pool", o, dim_ordering=o) for o in ("th", "tf")),
    )
    for told, expected in ((first, "channels_first"), (last, "channels_last")):
        found = translated(sequential(layer, entry("TimeDistributed", "each", layer=told)), {})
        assert settings(found, "mute")["data_format"] == expected
    for others, actual in (((), "none"), ((first, last), "both")):
        with pytest.raises(
            UnsupportedModelError, match=f"layer mute: expected other layers .* found {actual};"
        ):
            translated(sequential(layer, *others), {})


@pytest.mark.parametrize(
    ("kind", "padding", "expected"),
    [
        ("ZeroPadding1D", {"right_pad": 2}, [0, 2]),
        ("ZeroPadding1D", [1, 2], [1, 2]),
        ("ZeroPadding2D", {"top_pad": 1, "right_pad": 3}, [[1, 0], [0, 3]]),
        ("ZeroPadding2D", [1, 2, 0, 3], [[1, 2], [0, 3]]),
        ("ZeroPadding2D", [1, 2], [1, 2]),
    ],
)
def test_zeros_may_be_given_by_side(kind: str, padding: Any, expected: Any) -> None:
    config = sequential(entry(kind, "zeros", padding=padding), entry("Pool", "pool", dim_ordering="tf"))
    assert settings(translated(config, {}), "zeros")["padding"] == expected


def test_axes_that_share_a_slope_are_those_of_size_1() -> None:
    alphas = RNG.standard_normal((1, 1, 3))
    found = translated(sequential(entry("PReLU", "slope")), {"slope": named("slope", alphas=alphas)})
    assert settings(found, "slope")["shared_axes"] == [1, 2]


def test_weights_of_keras_1_fit_a_config_of_keras_2() -> None:
    """keras 2.2.4 engine/saving.py preprocess_weights_for_loading goes by the weights' own version."""
    kernel = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    config = sequential(entry("Conv2DTranspose", "up", filters=4, kernel_size=[2, 3]))
    kept = translated(config, {"up": named("up", W=kernel)}, keras_version="2.1.6", weights_version="2.0.9")
    np.testing.assert_array_equal(kept.weights["up"][0][1].read(), kernel)
    for version, changed in (("1", "2.1.6"), ("1.2.2", "2.2.4")):
        found = translated(
            config, {"up": named("up", W=kernel)}, keras_version=changed, weights_version=version
        )
        np.testing.assert_array_equal(found.weights["up"][0][1].read(), kernel.transpose(0, 1, 3, 2))
        assert (found.config, found.keras_version, found.translated) == (config, changed, True)


def test_weights_of_keras_2_fit_a_config_of_keras_1() -> None:
    kernel = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    layer = entry(
        "Deconvolution2D", "up", nb_filter=4, nb_row=2, nb_col=3, border_mode="same", subsample=[1, 1]
    )
    config = sequential({**layer, "config": {**layer["config"], "output_shape": [None, 6, 6, 4]}})
    for backend, step in (("tensorflow", 1), ("theano", -1)):
        found = translated(
            config
            if step == 1
            else sequential(
                {
                    **layer,
                    "config": {**layer["config"], "border_mode": "valid", "output_shape": [None, 6, 6, 4]},
                }
            ),
            {"up": named("up", kernel=kernel)},
            weights_version="2.0.9",
            backend=backend,
        )
        np.testing.assert_array_equal(found.weights["up"][0][1].read(), kernel[::step, ::step])
        assert settings(found, "up")["filters"] == 4


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            entry("BatchNormalization", "norm", mode=1),
            "layer norm: expected mode=0, the only mode of Keras 2",
        ),
        (entry("Merge", "both", mode="cos"), "layer both: expected one of the modes sum, mul, concat"),
    ],
)
def test_what_keras_2_has_not_is_refused(layer: dict[str, Any], message: str) -> None:
    source = sequential(entry("Dense", "first", output_dim=2, W_regularizer=None), layer)
    with pytest.raises(UnsupportedModelError, match=message):
        translated(source, {})
