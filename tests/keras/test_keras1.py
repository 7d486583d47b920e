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
