"""The part of a model before certain layers, in Keras 2's writing and in Keras 3's."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_convert.keras.config import layer_tree

Arguments = list[tuple[str, int, int]]


def older(arguments: Arguments, state: Arguments) -> Any:
    told = {"initial_state": [list(found) for found in state]} if state else {}
    return [[*found, told] for found in arguments]


def newer(arguments: Arguments, state: Arguments) -> Any:
    def made(found: tuple[str, int, int]) -> dict[str, Any]:
        return {"class_name": "__keras_tensor__", "config": {"shape": [1], "keras_history": list(found)}}

    return {"args": [made(found) for found in arguments], "kwargs": {"state": [made(one) for one in state]}}


@pytest.fixture(params=[older, newer], ids=["older", "newer"])
def model(request: pytest.FixtureRequest) -> dict[str, Any]:
    """x -> shared -> custom -> shared again -> after; x -> side; both ends are outputs."""

    def layer(name: str, *nodes: tuple[Arguments, Arguments]) -> dict[str, Any]:
        inbound = [request.param(*node) for node in nodes]
        class_name = "Dense" if inbound else "InputLayer"
        config = {"name": name}
        return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": inbound}

    layers = [
        layer("x"),
        layer("start"),
        layer("shared", ([("custom", 0, 0)], []), ([("x", 0, 0)], [("start", 0, 0)])),
        layer("custom", ([("shared", 1, 1), ("x", 0, 0)], [])),
        layer("after", ([("shared", 0, 0)], [])),
        layer("side", ([("x", 0, 0)], [])),
    ]
    config = {
        "name": "m",
        "layers": layers,
        "input_layers": [["x", 0, 0], ["start", 0, 0]],
        "output_layers": [["after", 0, 0], ["side", 0, 0]],
    }
    return {"class_name": "Functional", "config": config}


def test_ends_are_outputs_and_what_the_layers_take(model: dict[str, Any]) -> None:
    assert layer_tree.ends(model, ["custom"]) == [("side", 0, 0), ("shared", 1, 1)]


def test_calls_that_are_left_are_counted_anew(model: dict[str, Any]) -> None:
    kept = layer_tree.model_until(model, ["custom"])
    assert kept is not None
    config = kept["config"]
    assert [layer["name"] for layer in config["layers"]] == ["x", "start", "shared", "side"]
    assert len(config["layers"][2]["inbound_nodes"]) == 1
    assert config["output_layers"] == [["side", 0, 0], ["shared", 0, 1]]
    assert not layer_tree.unreachable_layers(kept)


def test_nothing_before_the_first_layer(model: dict[str, Any]) -> None:
    assert layer_tree.model_until(model, ["shared", "side"]) is None


def test_a_whole_model_is_reached(model: dict[str, Any]) -> None:
    assert not layer_tree.unreachable_layers(model)
    model["config"]["output_layers"].append(["nowhere", 0, 0])
    model["config"]["layers"][5]["inbound_nodes"] = [older([("shared", 5, 0)], [])]
    assert layer_tree.unreachable_layers(model) == ["m/side", "m/nowhere"]


@pytest.mark.parametrize("as_list", [False, True], ids=["dict", "list"])
def test_a_row_ends_before_the_layer(as_list: bool) -> None:
    names = ("a", "b", "custom", "c")
    layers = [{"class_name": "Dense", "config": {"name": name}} for name in names]
    row = {"class_name": "Sequential", "config": layers if as_list else {"name": "s", "layers": layers}}
    kept = layer_tree.model_until(row, ["custom"])
    assert kept is not None
    assert (kept["config"] if as_list else kept["config"]["layers"]) == layers[:2]
    assert layer_tree.model_until(row, ["a"]) is None
    assert not layer_tree.unreachable_layers(row)


def test_models_of_old_keras_get_the_names_of_their_file() -> None:
    """keras v2.1.6 models.py Sequential.get_config is a list; a functional model names its layers."""

    def listed(*layers: dict[str, Any]) -> dict[str, Any]:
        return {"class_name": "Sequential", "config": list(layers)}

    dense = {"class_name": "Dense", "config": {"name": "dense_1"}}
    model = listed(listed(listed(dense), dense), dense, listed(dense))
    named = layer_tree.name_models(model, ["sequential_5", "dense_1", "sequential_2"])
    assert layer_tree.names(named) == ["sequential_5", "dense_1", "sequential_2"]
    assert layer_tree.names(layer_tree.layer_entries(named)[0]) == ["sequential_5_1", "dense_1"]
    assert isinstance(named["config"], list)
    assert layer_tree.name_models(model, ["sequential_5"]) == model

    whole = {"class_name": "Model", "config": {"layers": [{**listed(dense), "name": "encoder"}]}}
    (encoder,) = layer_tree.layer_entries(layer_tree.name_models(whole, []))
    assert encoder["config"] == {"name": "encoder", "layers": [dense]}
