"""Layers over images by hand: pools, upsampling, and transposed convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudnn_convert.reference.cells import KerasLayer, UnknownError
from cudnn_convert.reference.images import pool, resize, transpose_convolution

IMAGE = np.arange(6.0).reshape(1, 2, 3, 1)


def layer(
    kind: str, config: dict[str, Any], *weights: Any, differences: frozenset[str] = frozenset()
) -> KerasLayer:
    return KerasLayer(kind, config, weights, differences)


def test_an_average_is_of_the_places_in_the_image() -> None:
    config = {"pool_size": [2, 2], "strides": None, "padding": "same"}
    assert pool(layer("AveragePooling2D", config), IMAGE).ravel().tolist() == [2, 3.5]
    assert pool(layer("MaxPooling2D", config), IMAGE).ravel().tolist() == [4, 5]
    valid = layer("MaxPooling2D", {**config, "padding": "valid"})
    assert pool(valid, IMAGE).ravel().tolist() == [4]


def test_upsampling_repeats_or_mixes() -> None:
    row = np.array([0.0, 4.0]).reshape(1, 1, 2, 1)
    kind, size = "UpSampling2D", {"size": [1, 2]}
    assert resize(layer(kind, size), row).ravel().tolist() == [0, 0, 4, 4]
    mixed = {**size, "interpolation": "bilinear"}
    assert resize(layer(kind, mixed), row).ravel().tolist() == [0, 1, 3, 4]
    from_corners = layer(kind, mixed, differences=frozenset({"bilinear_from_corners"}))
    assert resize(from_corners, row).ravel().tolist() == [0, 2, 4, 4]
    with pytest.raises(UnknownError, match="bicubic"):
        resize(layer(kind, {**size, "interpolation": "bicubic"}), row)


def test_a_transposed_convolution_spreads_each_place() -> None:
    kernel, bias = np.array([1.0, 10.0]).reshape(1, 2, 1, 1), np.array([0.5])
    config = {"strides": [1, 2], "padding": "valid"}
    row = np.array([1.0, 2.0]).reshape(1, 1, 2, 1)
    found = transpose_convolution(layer("Conv2DTranspose", config, kernel, bias), row)
    assert found.ravel().tolist() == [1.5, 10.5, 2.5, 20.5]
