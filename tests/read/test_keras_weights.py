"""CuDNN layers in lists of weights that say nothing but names and shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from keras_files import Arrays, cudnn

from cudnn_convert.model import InMemory, Mode, Model
from cudnn_convert.read import keras_hdf5

RNG = np.random.default_rng(13)
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
    listed = [*DENSE[:before], *cudnn(RNG, 4, 3, 5, "fast/"), *DENSE[:behind]]
    assert found(listed) == [("layer/", Mode.LSTM, 1, 3, 5)]


def test_layers_of_a_model_are_named_after_their_kernels() -> None:
    first, second = cudnn(RNG, 4, 3, 5, "one/"), cudnn(RNG, 3, 4, 3, "two/")
    expected = [("layer/one/", Mode.LSTM, 1, 3, 5), ("layer/two/", Mode.GRU, 1, 4, 3)]
    assert found([*first, *second]) == expected
    assert found([*first, *DENSE, *second]) == expected
    third = cudnn(RNG, 4, 2, 4, "m/three/")
    assert found([*first, *second, *third]) == [*expected, ("layer/m/three/", Mode.LSTM, 1, 2, 4)]


@pytest.mark.parametrize("stem", ["", "both/"])
def test_both_directions_are_one_recurrence(stem: str) -> None:
    ways = [cudnn(RNG, 3, 4, 6, f"{stem}{way}_gru/") for way in ("forward", "backward")]
    assert found([*ways[0], *ways[1]]) == [("layer/", Mode.GRU, 2, 4, 6)]
    wrong = [("layer/" + stem + way, Mode.GRU, 1, 4, 6) for way in ("backward_gru/", "forward_gru/")]
    assert found([*ways[1], *ways[0]]) == wrong
    assert len(found([*ways[0], *ways[1], *cudnn(RNG, 3, 4, 8, "c/")])) == 3


def test_each_weight_is_a_variable_of_its_layer() -> None:
    listed = [*DENSE, *cudnn(RNG, 4, 3, 5, "fast/")]
    made = model({"a": DENSE, "b": listed})
    assert [*made.variables] == [
        *("a/dense/kernel", "a/dense/bias", "b/dense/kernel", "b/dense/bias"),
        *("b/fast/kernel", "b/fast/recurrent_kernel", "b/fast/bias"),
    ]
    np.testing.assert_array_equal(made.variables["b/fast/bias"].read(), listed[4][1], strict=True)
    [one] = made.canonical
    np.testing.assert_array_equal(one.tensors()["bias"], listed[4][1], strict=True)
