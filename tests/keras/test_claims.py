"""What a Keras config must be before anything follows it; one change at a time to one that is sound."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.keras.config import validate

Config = dict[str, Any]


def layer(kind: str, name: str, *calls: Any, **config: Any) -> Config:
    return {"class_name": kind, "name": name, "config": {"name": name, **config}, "inbound_nodes": [*calls]}


def functional() -> Config:
    inner = layer("CuDNNGRU", "gru", units=3)
    way = layer("Bidirectional", "both", [["x", 0, 0, {}]], layer=inner, merge_mode=None)
    start = {"class_name": "Zeros", "config": {}}
    dense = layer("Dense", "dense", [["both", 0, 0, {}]], kernel_initializer=start, bias_initializer="zeros")
    layers = [layer("InputLayer", "x", batch_input_shape=[None, None, 4]), way, dense]
    config = {"name": "m", "layers": layers, "input_layers": [["x", 0, 0]]}
    return {"class_name": "Model", "config": {**config, "output_layers": {"a": [["dense", 0, 0]]}}}


def row() -> Config:
    return {
        "class_name": "Sequential",
        "config": [layer("CuDNNLSTM", "lstm", units=2, batch_input_shape=[None, 7, 4])],
    }


def refusal(config: Config) -> str:
    with pytest.raises(ReadError) as caught:
        validate.require(Path("m.h5"), "config", config)
    return str(caught.value).removeprefix("m.h5: config: ")


def test_sound_models_pass() -> None:
    own = {"class_name": "mine>Own", "config": {"units": "many", "batch_input_shape": "any"}}
    tensor = {"class_name": "__keras_tensor__", "config": {"shape": [1], "keras_history": ["x", 0, 0]}}
    newer = {"args": [tensor], "kwargs": {"mask": None}}
    nested = functional()
    nested["config"]["layers"].append(layer("Dense", "last", newer))
    for config in (functional(), row(), own, nested, {"class_name": "Sequential", "config": {"layers": []}}):
        validate.require(Path("m.h5"), "config", config)


def put(*path: Any, value: Any) -> Callable[[Config], None]:
    def change(config: Config) -> None:
        held: Any = config
        for key in path[:-1]:
            held = held[key]
        held[path[-1]] = value

    return change


LAYERS = ("config", "layers")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (put("class_name", value=3), "model: expected class_name and config, found {"),
        (put("config", value="m"), "model: expected class_name and config, found {"),
        (put("config", value=[]), "model: expected a config by names, found []"),
        (put("config", "name", value=["m"]), "model: expected one name, found ['m']"),
        (put(*LAYERS, value=None), "model m: expected a list of layers, found none"),
        (put(*LAYERS, value={}), "model m: expected a list of layers, found {}"),
        (put(*LAYERS, 1, value="both"), "layer: expected class_name and config, found 'both'"),
        (put(*LAYERS, 2, "name", value="other"), "layer: expected one name, found 'other'"),
        (put(*LAYERS, 2, "config", value=[]), "layer dense: expected a config by names, found []"),
        (put("build_config", value=[1]), "model m: expected a build_config by names, found [1]"),
        (put(*LAYERS, 2, "inbound_nodes", value=7), "layer dense: expected a list of inbound_nodes, found 7"),
        (
            put("config", "input_layers", value=None),
            "model m: input_layers: expected references to its layers, f",
        ),
        (
            put("config", "input_layers", value=[]),
            "model m: input_layers: expected references to its layers, found []",
        ),
        (
            put("config", "output_layers", value="dense"),
            "model m: output_layers: expected references to its layers",
        ),
        (
            put("config", "output_layers", value=["y", 0, 0]),
            "model m: output_layers: expected references to its l",
        ),
        (
            put("config", "output_layers", value=["x", 0, -1]),
            "model m: output_layers: expected references to its",
        ),
        (
            put("config", "output_layers", value=["x", True, 0]),
            "model m: output_layers: expected references to i",
        ),
        (
            put("config", "output_layers", value=["x", 0]),
            "model m: output_layers: expected references to its lay",
        ),
        (
            put(*LAYERS, 1, "config", "layer", value=None),
            "layer both: layer: expected the layer that it wraps, found none",
        ),
        (
            put(*LAYERS, 1, "config", "backward_layer", value=1),
            "layer: expected class_name and config, found 1",
        ),
        (
            put(*LAYERS, 1, "config", "merge_mode", value=[1]),
            "layer both: merge_mode: expected its name, found [1]",
        ),
        (
            put(*LAYERS, 1, "config", "layer", "config", "units", value=0),
            "layer gru: units: expected a number of at least 1, found 0",
        ),
        (
            put(*LAYERS, 1, "config", "layer", "config", "units", value=True),
            "layer gru: units: expected a number of at least 1, found True",
        ),
        (
            put(*LAYERS, 0, "config", "batch_input_shape", value=[None, 0]),
            "layer x: batch_input_shape: expected sizes, found [None, 0]",
        ),
        (
            put(*LAYERS, 0, "config", "batch_shape", value=["a"]),
            "layer x: batch_shape: expected sizes, found ['a']",
        ),
        (
            put(*LAYERS, 2, "config", "kernel_initializer", "config", value=5),
            "kernel_initializer: expected an object with a config, f",
        ),
        (
            put(*LAYERS, 2, "config", "bias_regularizer", value={"config": 1}),
            "bias_regularizer: expected an object with a config, f",
        ),
        (
            put(*LAYERS, 2, "config", "bias_constraint", value={"config": 1}),
            "bias_constraint: expected an object with a config, f",
        ),
        (
            put(*LAYERS, 2, "config", "axis", value=2**63),
            "JSON: expected numbers of 64 bits, found one of 64",
        ),
        (
            put(*LAYERS, 2, "config", "axis", value=-(2**63) - 1),
            "JSON: expected numbers of 64 bits, found one of 64",
        ),
    ],
)
def test_each_fault_is_told(change: Callable[[Config], None], told: str) -> None:
    config = functional()
    change(config)
    assert refusal(config).startswith(told), refusal(config)


@pytest.mark.parametrize("history", [None, "x", ["x", 0], [0, 0, 0], ["x", "0", 0]])
def test_a_tensor_has_a_history(history: Any) -> None:
    config = functional()
    tensor = {"class_name": "__keras_tensor__", "config": {"keras_history": history}}
    config["config"]["layers"][2]["inbound_nodes"] = [{"args": [tensor], "kwargs": {}}]
    assert refusal(config).startswith(
        "__keras_tensor__: expected a keras_history of a layer's name and two num"
    )


def test_depth_is_bounded() -> None:
    def deep(levels: int) -> Config:
        config = row()
        held = config["config"][0]["config"]
        for _ in range(levels - 4):
            held["x"] = {}
            held = held["x"]
        return config

    validate.require(Path("m.h5"), "config", deep(100))
    assert refusal(deep(102)) == "JSON: expected at most 100 levels, found more"


def test_a_row_and_its_inner_models_are_looked_through() -> None:
    config = row()
    config["config"].append(functional())
    validate.require(Path("m.h5"), "config", config)
    config["config"][1]["config"]["layers"][1]["config"]["layer"]["config"]["units"] = "3"
    assert refusal(config) == "layer gru: units: expected a number of at least 1, found '3'"
    again = json.loads(json.dumps(row()))
    again["config"][0]["config"]["batch_input_shape"] = {"class_name": "__tuple__", "items": [None, "a"]}
    assert refusal(copy.deepcopy(again)).startswith("layer lstm: batch_input_shape: expected sizes, found {")


@pytest.mark.parametrize(
    "flag", ["go_backwards", "return_sequences", "return_state", "stateful", "time_major"]
)
def test_settings_are_true_or_false(flag: str) -> None:
    for value in (None, True, False):
        config = functional()
        put(*LAYERS, 1, "config", "layer", "config", flag, value=value)(config)
        validate.require(Path("m.h5"), "config", config)
    for value in (float("-inf"), [], "yes", 2):
        put(*LAYERS, 1, "config", "layer", "config", flag, value=value)(config)
        assert refusal(config) == f"layer gru: {flag}: expected true or false, found {value!r}"


def test_the_cells_of_a_stack_are_layers() -> None:
    cells = [layer("LSTMCell", "cell", units=2)]
    stack = {
        "class_name": "RNN",
        "config": {"name": "rnn", "cell": layer("StackedRNNCells", "s", cells=cells)},
    }
    own = {"class_name": "Own", "config": {"name": "own", "cells": [1]}}
    config = {"class_name": "Sequential", "config": [layer("StackedRNNCells", "s", cells=cells), stack, own]}
    validate.require(Path("m.h5"), "config", config)
    cells.append("cell")
    assert refusal(config) == "layer: expected class_name and config, found 'cell'"
    config["config"] = [stack]
    assert refusal(config) == "layer: expected class_name and config, found 'cell'"


def test_a_type_that_is_an_object_has_a_config() -> None:
    config = row()
    config["config"][0]["config"]["dtype"] = {"class_name": "Policy", "config": {"name": "float32"}}
    validate.require(Path("m.h5"), "config", config)
    config["config"][0]["config"]["dtype"]["config"] = "float32"
    assert refusal(config).startswith(
        "dtype: expected an object with a config, found {'class_name': 'Policy'"
    )
