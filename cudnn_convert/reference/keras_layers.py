"""Layers of Keras in float64 NumPy, as computed by the version behind a file.

It judges what tf_keras makes of a file: `keras/config/differences.py` says which versions differ, and the
equations here are written apart from the layers that compute so.
Sources: keras v2.2.4, v2.3.1; tf_keras v2.21.0 src/layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from cudnn_convert.reference import images
from cudnn_convert.reference.cells import Array, KerasLayer, UnknownError, activation, recur

#: What a masked value of a Softmax has added to it (tf_keras v2.21.0 src/layers/activation/softmax.py).
_MASKED: Final = -1e9
#: cuDNN's least epsilon of a normalisation.
_EPSILON: Final = 1.001e-5


#: The layer, its inputs, and their masks: the outputs.
_Equation = Callable[[KerasLayer, Sequence[Array], Sequence[Array | None]], list[Array]]


def compute(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    """Compute the outputs of a layer for `inputs`, each with a mask or None.

    Raises UnknownError for a class or a setting that has no equation here.
    """
    if layer.kind not in EQUATIONS:
        raise UnknownError(layer.kind)
    return EQUATIONS[layer.kind](layer, inputs, masks)


def passes_mask(layer: KerasLayer) -> bool | None:
    """Return True if a layer hands on the mask of the input.

    The answer is None where that is not known here.
    """
    if layer.kind == "ReLU":
        return not layer.has("relu_without_mask")
    if layer.kind == "ActivityRegularization":
        return not layer.has("regularization_without_mask")
    if layer.kind == "MultiHeadAttention":
        return not layer.has("attention_without_mask")
    if layer.kind in ("SimpleRNN", "LSTM", "GRU", "RNN"):
        return bool(layer.config.get("return_sequences"))
    if layer.kind in ("Softmax", "LayerNormalization", "BatchNormalization", "GroupNormalization"):
        return True
    return None


def _time_distributed(
    layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]
) -> list[Array]:
    """Apply a layer at each step, with the mask of each step."""
    inner = layer.config["layer"]
    each = KerasLayer(inner["class_name"], inner["config"], layer.weights, layer.differences)
    mask = None if layer.has("time_distributed_without_mask") else masks[0]
    x = inputs[0]
    if mask is not None and mask.ndim < 3:
        raise UnknownError("a mask of steps")
    steps = [compute(each, [x[:, t]], [None if mask is None else mask[:, t]])[0] for t in range(x.shape[1])]
    return [np.stack(steps, axis=1)]


def _softmax(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    (x,) = inputs
    if masks[0] is not None and not layer.has("softmax_without_mask"):
        # In the type of the input: what is added swallows the value.
        x = x + ((1 - masks[0].astype(x.dtype)) * x.dtype.type(_MASKED))
    axis = layer.config.get("axis", -1)
    axis = tuple(axis) if isinstance(axis, list) else axis
    shares = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    return [shares / shares.sum(axis=axis, keepdims=True)]


def _dense(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    kernel, *bias = layer.weights
    return [activation(layer.config)(inputs[0].astype(np.float64) @ kernel + sum(bias))]


def _relu(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    (x,) = inputs
    most = layer.config.get("max_value")
    slope, threshold = (float(layer.config.get(key) or 0.0) for key in ("negative_slope", "threshold"))
    y = np.where(x >= threshold, x, slope * (x - threshold))
    return [y if most is None else np.minimum(y, float(most))]


def _dot(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    first, second = (np.asarray(x, np.float64) for x in inputs)
    axes = layer.config["axes"]
    axes = [axes, axes] if isinstance(axes, int) else axes
    axis_of_first, axis_of_second = (axis % x.ndim for axis, x in zip(axes, (first, second), strict=True))
    if layer.config.get("normalize"):
        first, second = (
            x / np.sqrt(np.maximum((x**2).sum(axis=axis, keepdims=True), 1e-12))
            for x, axis in ((first, axis_of_first), (second, axis_of_second))
        )
    most = max(first.ndim, second.ndim)
    if not layer.has("dot_of_leading_axes") or most < 4:
        rows = zip(first, second, strict=True)
        products = [np.tensordot(a, b, axes=([axis_of_first - 1], [axis_of_second - 1])) for a, b in rows]
        result = np.stack(products)
        return [result[:, None] if result.ndim == 1 else result]
    if first.ndim != second.ndim:
        raise UnknownError("two ranks")
    first = first if axis_of_first == most - 1 else first.swapaxes(-1, -2)
    second = second.swapaxes(-1, -2) if axis_of_second == most - 1 else second
    return [first @ second]


def _read_weights(layer: KerasLayer, shape: Sequence[int]) -> list[Array | float]:
    """Return the factor, the summand and the remaining weights of a normalisation, reshaped."""
    left = [*layer.weights]
    gamma = left.pop(0).reshape(shape) if layer.config.get("scale", True) else 1.0
    beta = left.pop(0).reshape(shape) if layer.config.get("center", True) else 0.0
    return [gamma, beta, *(np.asarray(each, np.float64).reshape(shape) for each in left)]


def _batch_norm(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    (x,) = inputs
    config = layer.config
    axis = config.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    if not isinstance(axis, int) or config.get("renorm") or config.get("virtual_batch_size"):
        raise UnknownError("axis, renorm or virtual_batch_size")
    shape = [-1 if k == axis % x.ndim else 1 for k in range(x.ndim)]
    gamma, beta, mean, variance = _read_weights(layer, shape)
    epsilon = float(config["epsilon"])
    rows = {4: "epsilon_of_cudnn", 5: "epsilon_of_cudnn_in_films"}
    if layer.has(rows.get(x.ndim, "")) and axis % x.ndim in (1, x.ndim - 1):
        epsilon = max(epsilon, _EPSILON)
    return [(x - mean) / np.sqrt(variance + epsilon) * gamma + beta]


def _layer_norm(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    x, config = inputs[0].astype(np.float64), layer.config
    axis = config.get("axis", -1)
    axes = tuple(each % x.ndim for each in ([axis] if isinstance(axis, int) else axis))
    shape = [size if k in axes else 1 for k, size in enumerate(x.shape)]
    gamma, beta = _read_weights(layer, shape)
    if config.get("rms_scaling"):
        raise UnknownError("rms_scaling")
    centered = x - x.mean(axis=axes, keepdims=True)
    variance = (centered**2).mean(axis=axes, keepdims=True)
    return [centered / np.sqrt(variance + float(config["epsilon"])) * gamma + beta]


def _group_norm(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    x, config = inputs[0].astype(np.float64), layer.config
    if config.get("axis", -1) not in (-1, x.ndim - 1):
        raise UnknownError("axis")
    channels = x.shape[-1]
    count = channels if config["groups"] == -1 else int(config["groups"])
    gamma, beta = _read_weights(layer, [-1])
    groups = x.reshape(len(x), -1, count, channels // count)
    shares = np.ones(groups.shape)
    if masks[0] is not None and not layer.has("group_normalization_without_mask"):
        if masks[0].ndim != x.ndim - 1:
            raise UnknownError("mask")
        shares = shares * masks[0].reshape(len(x), -1, 1, 1)
    total = np.maximum(shares.sum(axis=(1, 3), keepdims=True), 1e-300)
    mean = (shares * groups).sum(axis=(1, 3), keepdims=True) / total
    variance = (shares * (groups - mean) ** 2).sum(axis=(1, 3), keepdims=True) / total
    scaled = ((groups - mean) / np.sqrt(variance + float(config["epsilon"]))).reshape(x.shape)
    return [scaled * gamma + beta]


def _attend(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    config = layer.config
    axes = config.get("attention_axes")
    if (
        (axes is not None and [*np.atleast_1d(axes)] != [1])
        or not 2 <= len(inputs) <= 3
        or inputs[0].ndim != 3
    ):
        raise UnknownError("attention_axes or a mask that is an argument")
    query, value, key = (*inputs, inputs[1])[:3]
    has_bias = bool(config.get("use_bias", True))
    pairs = [
        (w, layer.weights[2 * k + 1] if has_bias else 0.0)
        for k, w in enumerate(layer.weights[::2] if has_bias else layer.weights)
    ]
    q, k, v = (
        np.einsum("abc,cde->abde", x.astype(np.float64), w) + b
        for x, (w, b) in zip((query, key, value), pairs, strict=False)
    )
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(float(config["key_dim"]))
    if not layer.has("attention_without_mask"):
        kept = np.ones((len(scores), 1, *scores.shape[2:]), bool)
        of_query, of_value, of_key = (*masks, None)[:3]
        for mask, axis in ((of_query, -1), (of_value, -2), (of_key, -2)):
            if mask is not None:
                kept &= np.expand_dims(mask.astype(bool), (1, axis))
        # In the type of the input: what is added swallows the value.
        single = scores.astype(query.dtype)
        scores = (single + (1 - kept).astype(query.dtype) * query.dtype.type(_MASKED)).astype(np.float64)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    w, b = pairs[3]
    return [np.einsum("bqhd,hde->bqe", np.einsum("bhqk,bkhd->bqhd", shares, v), w) + b]


def _of_image(equation: Callable[[KerasLayer, Array], Array], rank: int) -> _Equation:
    """Return an equation for channels last, for images of either layout."""

    def channels_last(
        layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]
    ) -> list[Array]:
        (image,) = inputs
        if image.ndim != rank + 2:
            raise UnknownError("rank")
        is_first = layer.config.get("data_format") == "channels_first"
        result = equation(layer, np.moveaxis(image, 1, -1) if is_first else image)
        return [np.moveaxis(result, -1, 1) if is_first else result]

    return channels_last


_POOLS: Final = ("Average", "Max")
#: The equation of each class.
EQUATIONS: Final[Mapping[str, _Equation]] = MappingProxyType(
    {
        **dict.fromkeys(("SimpleRNN", "LSTM", "GRU", "RNN"), recur),
        "TimeDistributed": _time_distributed,
        "Dense": _dense,
        "Softmax": _softmax,
        "ReLU": _relu,
        "ActivityRegularization": lambda layer, inputs, masks: [*inputs],
        "Dot": _dot,
        "BatchNormalization": _batch_norm,
        "LayerNormalization": _layer_norm,
        "GroupNormalization": _group_norm,
        "MultiHeadAttention": _attend,
        "UpSampling2D": _of_image(images.resize, 2),
        **{f"Conv{rank}DTranspose": _of_image(images.transpose_convolution, rank) for rank in (2, 3)},
        **{f"{kind}Pooling{rank}D": _of_image(images.pool, rank) for kind in _POOLS for rank in (1, 2, 3)},
    }
)
