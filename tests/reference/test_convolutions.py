"""Convolutions of the reference, against TensorFlow's kernels where every CPU has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.reference.convolutions import Window, convolve, convolve_depthwise, spread

RNG = np.random.default_rng(4)
IMAGE, FILM = RNG.uniform(-1, 1, (2, 7, 10, 3)), RNG.uniform(-1, 1, (2, 4, 5, 7, 3))


def pads(padding: str) -> Any:
    return None if padding == "SAME" else ((0, 0), (0, 0))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("strides", "dilations"), [((1, 2), (1, 1)), ((3, 2), (1, 1)), ((1, 1), (2, 3))])
def test_convolutions(padding: str, strides: tuple[int, int], dilations: tuple[int, int]) -> None:
    kernel = RNG.uniform(-1, 1, (3, 2, 3, 4))
    expected = tf.nn.conv2d(IMAGE, kernel, strides, padding, dilations=dilations)
    found = convolve(IMAGE, kernel, Window(strides, dilations, pads(padding)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_explicit_padding_and_three_axes() -> None:
    kernel, edges = RNG.uniform(-1, 1, (3, 2, 3, 4)), ((1, 2), (0, 3))
    expected = tf.nn.conv2d(IMAGE, kernel, (2, 1), [[0, 0], *edges, [0, 0]])
    np.testing.assert_allclose(convolve(IMAGE, kernel, Window((2, 1), (1, 1), edges)), expected, atol=1e-12)
    kernel, strides = RNG.uniform(-1, 1, (2, 3, 2, 3, 4)), (1, 2, 3)
    expected = tf.nn.conv3d(FILM, kernel, [1, *strides, 1], "SAME")
    found = convolve(FILM, kernel, Window(strides, (1, 1, 1), None))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("strides", "dilations"), [((2, 2), (1, 1)), ((1, 1), (2, 3))])
def test_depthwise_convolutions(padding: str, strides: tuple[int, int], dilations: tuple[int, int]) -> None:
    kernel = RNG.uniform(-1, 1, (3, 2, 3, 2))
    expected = tf.nn.depthwise_conv2d(IMAGE, kernel, [1, *strides, 1], padding, dilations=dilations)
    found = convolve_depthwise(IMAGE, kernel, Window(strides, dilations, pads(padding)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("padding", "sizes"), [("SAME", (13, 28)), ("VALID", (15, 31))])
def test_transposed_convolutions(padding: str, sizes: tuple[int, int]) -> None:
    kernel, strides = RNG.uniform(-1, 1, (3, 4, 4, 3)), (2, 3)
    expected = tf.nn.conv2d_transpose(IMAGE, kernel, [2, *sizes, 4], strides, padding)
    found = spread(sizes, kernel, IMAGE, Window(strides, (1, 1), pads(padding)))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
