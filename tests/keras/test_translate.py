"""Keras 2's configs in the words of Keras 3: what changes, what goes, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.keras_files import entry, model, sequential

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.inspection import keras_model
from cudnn_convert.keras import build_keras3, translate
from cudnn_convert.keras.config import classes
from cudnn_convert.keras.translate import Log
from cudnn_convert.model import Architecture, Mode
from cudnn_convert.weights import layouts

HERE = Path("model.h5")
SHAPE = {"batch_input_shape": [None, 6, 5]}


def build(rewritten: Architecture) -> Any:
    return build_keras3.build_model(HERE, translate.modern(HERE, rewritten))


def layer(*layers: Any) -> list[dict[str, Any]]:
    return list(translate.modern(HERE, model(sequential(*layers), {})).config["config"]["layers"])


def test_the_first_shape_becomes_an_input_layer() -> None:
    first, dense = layer(entry("Dense", "dense", units=3, **SHAPE))
    assert first["class_name"] == "InputLayer"
    assert first["config"] == {
        "batch_shape": [None, 6, 5],
        "name": "dense_input",
        "sparse": False,
        "dtype": "float32",
    }
    assert dense == {
        "module": "keras.layers",
        "class_name": "Dense",
        "config": {"name": "dense", "units": 3},
        "registered_name": None,
    }


def test_initializers_lose_what_keras_3_does_not_take() -> None:
    scaled = {
        "class_name": "VarianceScaling",
        "config": {"scale": 2.0, "distribution": "normal", "dtype": "float32"},
    }
    _, dense = layer(entry("Dense", "dense", kernel_initializer=scaled, bias_regularizer=None, **SHAPE))
    assert dense["config"]["kernel_initializer"]["config"] == {
        "scale": 2.0,
        "distribution": "truncated_normal",
    }
    assert dense["config"]["bias_regularizer"] is None
    mine = entry("Dense", "dense", kernel_initializer={"class_name": "Mine", "config": {}}, **SHAPE)
    found = translate.modern(HERE, model(sequential(mine), {}))
    assert found.notes == ("layer dense: kernel_initializer Mine left out, for training alone needs it",)


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (entry("Lambda", "code"), "layer code: expected a Lambda's function as Keras 2 writes it, found"),
        (
            entry("TFOpLambda", "code"),
            "code: expected a layer of Keras 3, found TFOpLambda; write --format h5",
        ),
        (entry("ThresholdedReLU", "x"), "layer x: expected a layer of Keras 3, found ThresholdedReLU; write"),
        (
            entry("LSTM", "x", time_major=True),
            "layer x: expected time_major=False, found True; Keras 3 has no",
        ),
        (entry("Dense", "a/b"), "layer a/b: expected a name without /, as Keras 3 asks, found one with it"),
        (
            entry("Dense", "x", activation=entry("ReLU", "inner")),
            "layer x: expected activation to be a function, found ReLU; write --format h5",
        ),
        (
            entry("Dense", "x", activation=5),
            "layer x: expected activation to be a function, found 5; write --format h5",
        ),
        (
            entry("Dense", "x", activation="hard_sigmoid"),
            "layer x: expected activation to be equal in Keras 2 and 3",
        ),
        (
            entry("LSTM", "x", activation="hard_sigmoid"),
            "layer x: expected activation to be equal in Keras 2 and 3",
        ),
    ],
)
def test_what_would_be_another_model_is_refused(one: dict[str, Any], told: str) -> None:
    one["config"].update(SHAPE)
    with pytest.raises(UnsupportedModelError) as caught:
        layer(one, entry("ThresholdedReLU", "second"))
    assert told in caught.value.reasons[0]
    assert len(caught.value.reasons) == 2, "all reasons at once"


def test_a_class_that_nobody_brings_stays_as_it_is() -> None:
    wrapped = {"class_name": "CuDNNLSTM", "config": {"units": 3}}
    scale = entry("Mine>Scale", "scale", layer=wrapped, dtype=entry("Policy", "float16"), **SHAPE)
    made = layer(scale, {**entry("Dense", "dense"), "module": "os", "registered_name": "Mine>Dense"})
    assert made[0]["config"]["batch_shape"] == [None, 6, 5]
    assert made[1:] == [
        {
            "module": None,
            "class_name": "Scale",
            "config": {"name": "scale", "layer": wrapped, "dtype": "float16"},
            "registered_name": "Mine>Scale",
        },
        {"module": None, "class_name": "Dense", "config": {"name": "dense"}, "registered_name": "Mine>Dense"},
    ]


def test_a_function_that_nobody_brings_stays_a_name() -> None:
    dense = entry("Dense", "dense", activation={"class_name": "function", "config": "mine", "module": "os"})
    dense["config"].update(SHAPE)
    found = translate.modern(HERE, model(sequential(dense), {}))
    assert found.functions == ("mine",)
    made = found.config["config"]["layers"][1]["config"]["activation"]
    assert made == {"module": None, "class_name": "function", "config": "mine", "registered_name": "mine"}
    assert translate.modern(HERE, model(sequential(dense), {}), vouched={"mine": None}).functions == ()


def test_what_keras_got_later_stays_a_name() -> None:
    norm, dense = entry("LayerNormalization", "norm", eps=0.1), entry("Dense", "dense", activation="swish")
    written = model(sequential({**norm, "config": {**norm["config"], **SHAPE}}, dense), {})
    found = translate.modern(HERE, written)
    _, norm, dense = found.config["config"]["layers"]
    assert (norm["module"], norm["registered_name"]) == (None, "LayerNormalization")
    assert norm["config"]["eps"] == 0.1
    assert dense["config"]["activation"]["registered_name"] == "swish"
    assert found.functions == ("swish",)


@pytest.mark.parametrize(("version", "fits"), [("2.2.4", False), ("2.3.1", False), ("2.2.4-tf", True)])
def test_keras_team_resizes_images_otherwise(version: str, fits: bool) -> None:
    up = entry("UpSampling2D", "up", size=[2, 2], interpolation="bilinear", batch_input_shape=[None, 4, 4, 1])
    source = model(sequential(up), {}, keras_version=version)
    assert keras_model.fitting(HERE, source, classes.NOTHING) == ("keras" if fits else "savedmodel")
    if fits:
        translate.modern(HERE, source)
    else:
        with pytest.raises(
            UnsupportedModelError, match="layer up: expected a layer that later versions of Ker"
        ):
            translate.modern(HERE, source)


def test_a_model_without_a_shape_says_what_to_do() -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"model: expected an input shape, found none; build the model"
    ):
        layer(entry("Dense", "dense"))


def test_the_hdf5_of_keras_3_keeps_its_layers() -> None:
    dense = entry("Dense", "dense", units=3, **SHAPE)
    found = translate.modern(HERE, model(sequential(dense), {}, keras_version="3.4.1"))
    assert [layer["config"]["name"] for layer in found.config["config"]["layers"]][-1] == "dense"


def test_each_step_needs_no_wrapper() -> None:
    dense = entry("Dense", "inner", units=3)
    found = layer(entry("TimeDistributed", "steps", layer=dense, **SHAPE))[1]
    assert (found["class_name"], found["config"]["name"]) == ("Dense", "steps")
    kept = entry("TimeDistributed", "steps", layer=entry("LSTM", "inner", units=3), **SHAPE)
    assert layer(kept)[1]["class_name"] == "TimeDistributed"


def functional(*layers: Any, outputs: Any) -> Any:
    held = [{**one, "name": one["config"]["name"], "inbound_nodes": nodes} for one, nodes in layers]
    config = {"name": "m", "layers": held, "input_layers": [["x", 0, 0]], "output_layers": outputs}
    return {"class_name": "Model", "config": config}


def test_calls_of_a_functional_model() -> None:
    inner = sequential(entry("Dense", "dense", units=3, **SHAPE))
    inner["config"]["name"] = "inner"
    whole = functional(
        (entry("InputLayer", "x", batch_input_shape=[None, 6, 5]), []),
        (inner, [[["x", 0, 0, {}]]]),
        (entry("LSTM", "lstm", units=3), [[["inner", 1, 0, {}], ["h", 0, 0, {}], ["h", 0, 1, {}]]]),
        (entry("Add", "h"), [[["x", 0, 0, {}], ["inner", 1, 0, {}]]]),
        (entry("Dropout", "drop"), [[["lstm", 0, 0, {"training": True, "mask": ["h", 0, 0]}]]]),
        outputs=[["drop", 0, 0], ["inner", 1, 0]],
    )
    config = translate.modern(HERE, model(whole, {})).config["config"]
    calls = {one["name"]: one["inbound_nodes"] for one in config["layers"]}

    def history(tensor: Any) -> list[Any]:
        return list(tensor["config"]["keras_history"])

    (call,) = calls["lstm"]
    assert [history(tensor) for tensor in call["args"]] == [["inner", 0, 0]]
    assert [history(tensor) for tensor in call["kwargs"]["initial_state"]] == [["h", 0, 0], ["h", 0, 1]]
    (call,) = calls["h"]
    assert [[history(tensor) for tensor in one] for one in call["args"]] == [[["x", 0, 0], ["inner", 0, 0]]]
    (call,) = calls["drop"]
    assert call["kwargs"]["training"] is True
    assert history(call["kwargs"]["mask"]) == ["h", 0, 0]
    assert config["input_layers"] == ["x", 0, 0]
    assert config["output_layers"] == [["drop", 0, 0], ["inner", 0, 0]]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 5 + 0.5, 0, 1)


def test_old_hard_sigmoid_comes_out_of_a_new_layer(tmp_path: Path) -> None:
    """An LSTM of Keras 2, step by step in NumPy, against the layer of Keras 3 that is written for it."""
    rng = np.random.default_rng(2)
    weights = [rng.normal(size=shape) for shape in ((5, 12), (3, 12), (12,))]
    config = entry(
        "LSTM",
        "old",
        units=3,
        activation="tanh",
        recurrent_activation="hard_sigmoid",
        dtype="float64",
        **SHAPE,
    )
    listed = [(str(number), array) for number, array in enumerate(weights)]
    made = build(model(sequential(config), {"old": listed}))
    x = rng.normal(size=(2, 6, 5))
    h = c = np.zeros((2, 3))
    for step in range(6):
        i, f, n, o = np.split(x[:, step] @ weights[0] + h @ weights[1] + weights[2], 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
        h = sigmoid(o) * np.tanh(c)
    found = made.predict(x, verbose=0)
    np.testing.assert_allclose(found, h, rtol=1e-6, atol=1e-6)
    assert build_keras3.find_scaled(model(sequential(config), {})) == ("old",)


def test_scaling_leaves_the_candidate() -> None:
    row = np.arange(1.0, 13.0)
    lstm = layouts.scale_keras(Mode.LSTM, row, 2.0) / row
    assert lstm.tolist() == [2.0] * 6 + [1.0] * 3 + [2.0] * 3
    gru = layouts.scale_keras(Mode.GRU, np.stack([row, row]), 2.0) / row
    assert gru.tolist() == [[2.0] * 8 + [1.0] * 4] * 2


def test_time_distributed_over_open_steps_is_refused() -> None:
    inner = entry("LSTM", "inner", units=3, activation="tanh", recurrent_activation="sigmoid")
    config = entry("TimeDistributed", "steps", layer=inner, batch_input_shape=[None, None, 6, 5])
    rng = np.random.default_rng(2)
    listed = [(str(size), rng.normal(size=size).astype("f")) for size in ((5, 12), (3, 12), (12,))]
    with pytest.raises(UnsupportedModelError, match=r"layer steps: expected a fixed number of steps"):
        build(model(sequential(config), {"steps": listed}))
    config["config"]["batch_input_shape"] = [None, 4, 6, 5]
    assert build(model(sequential(config), {"steps": listed})).count_params() == 108


def test_only_a_list_of_one_axis_is_that_axis() -> None:
    for axis, found in (([2], 2), ([1, 2], [1, 2]), ([], []), (-1, -1)):
        told = Log()
        made = translate.translate_entry(entry("BatchNormalization", "x", axis=axis), "x", told)
        assert made["config"]["axis"] == found
        assert not told.reasons
