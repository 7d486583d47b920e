"""What layers of Keras 3 compute as older ones, within a context only."""

from __future__ import annotations

import keras
import numpy as np

from cudnn_convert.keras.config import differences
from cudnn_convert.private import older_keras3

ROWS = {difference.name for difference in differences.DIFFERENCES if difference.keras_3 is not None}


def test_layers_of_keras_3_compute_as_older_ones_within_a_context() -> None:
    names = ("Layer", "Maximum", "Minimum", "Multiply", "Softmax")
    owners = [getattr(keras.layers, name) for name in names]
    kept = [dict(vars(owner)) for owner in owners]
    with older_keras3.compute_as(ROWS):
        assert all(vars(owner) != before for owner, before in zip(owners, kept, strict=True))
    assert [dict(vars(owner)) for owner in owners] == kept


def test_a_layer_without_masks_is_not_told_of() -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    with older_keras3.compute_as(ROWS) as others:
        doubled = keras.layers.Multiply()([x, x])
        keras.layers.Softmax()(keras.layers.Add()([doubled, x]))
    np.testing.assert_array_equal(doubled, x * x)
    assert others == {}


def test_a_layer_whose_masks_are_lost_is_told_of() -> None:
    first, second = (keras.layers.Masking(name=name) for name in ("first", "second"))
    x = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)
    x[0, 1] = 0
    with older_keras3.compute_as(ROWS) as others:
        added = keras.layers.Add(name="added")([first(x), second(2 * x)])
        # One of the two has no mask, and Keras 3 of today gives the sum none either.
        keras.layers.Add(name="half")([first(x), x])
    assert keras.src.backend.get_keras_mask(added) is None
    assert others == {"masks_of_several": ["added"]}
