"""Convolutions in float64, channels last, a product for each place of the window.

It judges those for which TensorFlow has no kernel on every CPU: depthwise ones with dilations or unequal
strides, dilated ones over three axes, transposed ones with dilations. Images are `[N, *sizes, C]`.
Source: tensorflow v2.21.0 core/ops/nn_ops.cc (shapes of filters), core/framework/kernel_shape_util.cc
(GetWindowedOutputSizeVerbose: SAME and VALID).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Window:
    """The movement of a convolution over each axis: strides, dilations, and `pads` or SAME.

    SAME is where `pads` are None.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...] | None

    def edges(self, sizes: Sequence[int], kernel: Sequence[int]) -> list[tuple[int, int]]:
        """Return the zeros before and behind each axis."""
        if self.pads is not None:
            return [*self.pads]
        pairs = []
        for size, places, stride, dilation in zip(sizes, kernel, self.strides, self.dilations, strict=True):
            missing = max(0, (-(-size // stride) - 1) * stride + (places - 1) * dilation + 1 - size)
            pairs.append((missing // 2, missing - missing // 2))
        return pairs

    def slices(self, offset: Sequence[int], counts: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices of a padded image met by a place of the window."""
        axes = zip(offset, counts, self.strides, self.dilations, strict=True)
        parts = [slice(p * d, p * d + (count - 1) * s + 1, s) for p, count, s, d in axes]
        return (slice(None), *parts)


def prepare(
    image: Array, sizes: Sequence[int], window: Window, *, around: float = 0
) -> tuple[Array, list[int]]:
    """Return the padded image, and the counts of window places along each axis.

    `around` is the padding's value.
    """
    edges = [(0, 0), *window.edges(image.shape[1:-1], sizes), (0, 0)]
    padded = np.pad(image.astype(np.float64), edges, constant_values=around)
    spans = [(places - 1) * dilation + 1 for places, dilation in zip(sizes, window.dilations, strict=True)]
    rows = zip(padded.shape[1:-1], spans, window.strides, strict=True)
    return padded, [(size - span) // stride + 1 for size, span, stride in rows]


def convolve(image: Array, kernel: Array, window: Window) -> Array:
    """Convolve `[N, *sizes, C]` with `[*window, C, O]` to `[N, *counts, O]`."""
    sizes = kernel.shape[:-2]
    padded, counts = prepare(image, sizes, window)
    total = np.zeros((len(image), *counts, kernel.shape[-1]))
    for offset in np.ndindex(*sizes):
        total += padded[window.slices(offset, counts)] @ kernel[offset].astype(np.float64)
    return total


def convolve_depthwise(image: Array, kernel: Array, window: Window) -> Array:
    """Convolve each channel apart: `[N, H, W, C]` and `[h, w, C, m]` to `[N, H', W', C*m]`."""
    sizes = kernel.shape[:-2]
    padded, counts = prepare(image, sizes, window)
    total = np.zeros((len(image), *counts, *kernel.shape[-2:]))
    for offset in np.ndindex(*sizes):
        total += padded[window.slices(offset, counts)][..., None] * kernel[offset].astype(np.float64)
    return total.reshape(*total.shape[:-2], -1)


def spread(sizes: Sequence[int], kernel: Array, image: Array, window: Window) -> Array:
    """Compute the transposed convolution: `[N, *counts, O]` with `[*window, C, O]` to `[N, *sizes, C]`."""
    edges = window.edges(sizes, kernel.shape[:-2])
    whole = [size + before + behind for size, (before, behind) in zip(sizes, edges, strict=True)]
    total = np.zeros((len(image), *whole, kernel.shape[-2]))
    for offset in np.ndindex(*kernel.shape[:-2]):
        part = image.astype(np.float64) @ kernel[offset].T.astype(np.float64)
        total[window.slices(offset, image.shape[1:-1])] += part
    inner = [slice(before, before + size) for size, (before, _) in zip(sizes, edges, strict=True)]
    places = (slice(None), *inner)
    return np.asarray(total[places])
