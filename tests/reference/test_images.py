"""Layers over images by hand: pools, upsampling, and transposed convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from cudnn_convert.reference.cells import UnknownError
from cudnn_convert.reference.images import pool, resize, transpose_convolution

IMAGE = np.arange(6.0).reshape(1, 2, 3, 1)
NONE: frozenset[str] = frozenset()


def test_an_average_is_of_the_places_in_the_image() -> None:
    config = {"pool_size": [2, 2], "strides": None, "padding": "same"}
    assert pool(config, IMAGE, is_average=True).ravel().tolist() == [2, 3.5]
    assert pool(config, IMAGE, is_average=False).ravel().tolist() == [4, 5]
    assert pool({**config, "padding": "valid"}, IMAGE, is_average=False).ravel().tolist() == [4]


def test_upsampling_repeats_or_mixes() -> None:
    row = np.array([0.0, 4.0]).reshape(1, 1, 2, 1)
    assert resize({"size": [1, 2]}, row, NONE).ravel().tolist() == [0, 0, 4, 4]
    mixed = {"size": [1, 2], "interpolation": "bilinear"}
    assert resize(mixed, row, NONE).ravel().tolist() == [0, 1, 3, 4]
    assert resize(mixed, row, frozenset({"bilinear_from_corners"})).ravel().tolist() == [0, 2, 4, 4]
    with pytest.raises(UnknownError, match="bicubic"):
        resize({"size": [1, 2], "interpolation": "bicubic"}, row, NONE)


def test_a_transposed_convolution_spreads_each_place() -> None:
    kernel, bias = np.array([1.0, 10.0]).reshape(1, 2, 1, 1), np.array([0.5])
    config = {"strides": [1, 2], "padding": "valid"}
    row = np.array([1.0, 2.0]).reshape(1, 1, 2, 1)
    found = transpose_convolution(config, [kernel, bias], row, NONE)
    assert found.ravel().tolist() == [1.5, 10.5, 2.5, 20.5]
