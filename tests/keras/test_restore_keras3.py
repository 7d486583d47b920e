"""Models of Keras 3 from their config and weights; Keras itself is the judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras.config.classes import NOTHING
from cudnn_convert.keras.restore_keras3 import restore_model
from cudnn_convert.model import Architecture, InMemory

PATH = Path("model.keras")


def described(model: Any) -> Architecture:
    weights = {
        layer.name: tuple((weight.path, InMemory(np.asarray(weight))) for weight in layer.weights)
        for layer in model.layers
        if layer.weights
    }
    return Architecture(keras.saving.serialize_keras_object(model), weights, keras_version="3.0")


def small() -> Any:
    return keras.Sequential([keras.Input([4], name="x"), keras.layers.Dense(3, name="dense")])


def test_a_restored_model_answers_as_the_original() -> None:
    model = small()
    restored = restore_model(PATH, described(model), NOTHING)
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(restored(x), model(x))


def test_core_operations_and_an_identity_are_restored() -> None:
    x = keras.Input([4], name="x")
    first, *_ = keras.ops.unstack(keras.layers.Identity(name="same")(x), axis=1)
    model = keras.Model(x, keras.ops.cast(keras.ops.cast(3 * first, "int32"), "float32"))
    restored = restore_model(PATH, described(model), NOTHING)
    given = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(restored(given), np.trunc(3 * given[:, 0]))


def test_a_config_without_the_module_of_its_class_is_restored() -> None:
    model = described(small())
    without = {key: value for key, value in model.config.items() if key not in ("module", "registered_name")}
    assert isinstance(restore_model(PATH, replace(model, config=without), NOTHING), keras.Sequential)


def test_weights_of_another_model_are_refused() -> None:
    other = {"dense": (("kernel", InMemory(np.zeros([4, 2], np.float32))),)}
    with pytest.raises(
        UnsupportedModelError, match=r"layer dense: expected weights of shapes \[\[4, 3\], \[3\]\], found"
    ):
        restore_model(PATH, replace(described(small()), weights=other), NOTHING)
