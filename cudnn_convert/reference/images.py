"""Layers of Keras over images and films, channels last, in float64 NumPy.

Sources: keras v2.2.4 and tf_keras v2.21.0 layers of convolutions, pools and resizing; utils/conv_utils.py
deconv_output_length; tensorflow v2.21.0 core/kernels/image/resize_bilinear_op.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cudnn_convert.reference.cells import Array, KerasLayer, UnknownError, activation
from cudnn_convert.reference.convolutions import Window, convolve, prepare, spread


def _per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """Return a setting for each axis of an image."""
    return (int(value),) * rank if isinstance(value, int) else tuple(int(each) for each in value)


def _size_after(size: int, kernel: int, stride: int, padding: str, more: int | None) -> int:
    """Return the size of an axis after a transposed convolution.

    `kernel` is dilated, `more` output_padding.
    """
    if more is None:
        return size * stride + (max(kernel - stride, 0) if padding == "valid" else 0)
    return (size - 1) * stride + kernel - 2 * (kernel // 2 if padding == "same" else 0) + more


def transpose_convolution(layer: KerasLayer, image: Array) -> Array:
    """Compute a Conv2DTranspose or Conv3DTranspose: `[N, *sizes, C]` to `[N, *sizes, filters]`."""
    config, (kernel, *bias) = layer.config, layer.weights
    rank = image.ndim - 2
    strides, dilations = (_per_axis(config.get(key, 1), rank) for key in ("strides", "dilation_rate"))
    padding = config["padding"]
    pads = None if padding == "same" else ((0, 0),) * rank
    if layer.has("transposed_as_convolution") and rank == 3:
        result = convolve(image, kernel, Window(strides, dilations, pads))
    else:
        if layer.has("transposed_without_dilation") and rank == 2:
            dilations = (1,) * rank
        more = config.get("output_padding")
        extra = (None,) * rank if more is None else _per_axis(more, rank)
        spans = [(k - 1) * step + 1 for k, step in zip(kernel.shape[:-2], dilations, strict=True)]
        axes = zip(image.shape[1:-1], spans, strides, extra, strict=True)
        sizes = [_size_after(size, span, stride, padding, own) for size, span, stride, own in axes]
        result = spread(sizes, kernel, image, Window(strides, dilations, pads))
    return activation(config)(result + sum(bias))


def pool(layer: KerasLayer, image: Array) -> Array:
    """Compute an average or a maximum pool: `[N, *sizes, C]` to `[N, *counts, C]`.

    An average is of the places in the image.
    """
    config, rank = layer.config, image.ndim - 2
    sizes = _per_axis(config["pool_size"], rank)
    strides = _per_axis(config.get("strides") or config["pool_size"], rank)
    pads = None if config["padding"] == "same" else ((0, 0),) * rank
    window, is_average = Window(strides, (1,) * rank, pads), layer.kind.startswith("Average")
    rows, counts = prepare(image, sizes, window, around=0 if is_average else -np.inf)
    there, _ = prepare(np.ones(image.shape), sizes, window)
    parts = [window.slices(offset, counts) for offset in np.ndindex(*sizes)]
    if is_average:
        total, count = (sum(each[part] for part in parts) for each in (rows, there))
        return np.asarray(total / count)
    return np.asarray(np.max([rows[part] for part in parts], axis=0))


def resize(layer: KerasLayer, image: Array) -> Array:
    """Compute an UpSampling2D: `[N, H, W, C]` to `[N, rows*H, columns*W, C]`."""
    factors = _per_axis(layer.config["size"], 2)
    method = layer.config.get("interpolation", "nearest")
    if method not in ("nearest", "bilinear"):
        raise UnknownError(f"interpolation={method}")
    for axis, factor in enumerate(factors, 1):
        if method == "nearest":
            image = np.repeat(image, factor, axis)
            continue
        size = image.shape[axis]
        places = np.arange(size * factor) / factor
        if not layer.has("bilinear_from_corners"):
            places = (np.arange(size * factor) + 0.5) / factor - 0.5
        first = np.floor(places)
        share = (places - first).reshape([-1 if k == axis else 1 for k in range(image.ndim)])
        low, high = (np.take(image, np.clip(first + k, 0, size - 1).astype(int), axis) for k in (0, 1))
        image = low * (1 - share) + high * share
    return image
