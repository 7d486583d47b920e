"""Refuses padded windows of Theano and CNTK placed elsewhere than in TensorFlow.

With `padding="same"` a row of n cells has ceil(n / stride) windows. The first one begins before the row:

* TensorFlow: half of the cells that the windows lack, rounded down (tensorflow v2.21.0
  core/framework/kernel_shape_util.cc GetWindowedOutputSizeVerbose).
* Theano: half of the window in a convolution, and more in a pool (keras 1.2.2 and 2.1.6
  backend/theano_backend.py _preprocess_padding, pool2d, pool3d).
* CNTK: the middles of the windows stand in the middle of the row (CNTK v2.7 Source/Math/ConvolveGeometry.h).

Some versions count Theano's padding into averages (keras 2.0.5 and 2.0.9 backend/theano_backend.py pool2d;
2.0.3 and 2.1.6 do not).
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras.config import layer_tree, versions
from cudnn_convert.keras.config.differences import Versions
from cudnn_convert.keras.config.layer_tree import Entry

THEANO: Final = "theano"
#: Where the first window begins, by its size and by the cells that the last step leaves over.
Begin = Callable[[int, int], int]


def _pad_pool(size: int) -> int:
    return size - 2 if size > 2 and size % 2 else size - 1


def _tensorflow(size: int, left: int) -> int:
    return -(max(size - 1 - left, 0) // 2)


#: By the backend, of convolutions and of pools.
_BEGINS: Final[Mapping[str, tuple[Begin, Begin]]] = MappingProxyType(
    {
        THEANO: (lambda size, _: -(size // 2), lambda size, _: -_pad_pool(size)),
        "cntk": (lambda size, left: left // 2 - (size - 1) // 2,) * 2,
    }
)


#: The versions of Keras that may count Theano's padding into averages.
_COUNTING: Final = Versions((2, 0, 4), (2, 1, 6))
_AVERAGES: Final = frozenset({"AveragePooling1D", "AveragePooling2D"})


def refuse_others(path: Path, config: Entry, backend: str, keras_version: str) -> None:
    """Raise UnsupportedModelError for layers with windows elsewhere in TensorFlow.

    The config is in the form of Keras 2, and `keras_version` that of its writer.
    """
    if backend not in _BEGINS:
        return
    written = versions.numbers(keras_version)
    has_zeros = backend == THEANO and (written is None or _COUNTING.has(written))
    expected = "expected windows that TensorFlow places alike"
    cure = "pad with a ZeroPadding layer and padding='valid' instead, and save it again"
    reasons = [
        f"layer {below}: {expected}, found padding='same' of {backend} with {what}; {cure}"
        for below, entry in layer_tree.below(config)
        if (what := _describe_other(entry, backend, has_zeros=has_zeros))
    ]
    if reasons:
        raise UnsupportedModelError(path, [*dict.fromkeys(reasons)])


def _describe_other(entry: Entry, backend: str, *, has_zeros: bool) -> str:
    """Describe a layer's windows placed elsewhere than in TensorFlow, "" if none are."""
    config, kind = layer_tree.settings(entry), str(entry["class_name"])
    if has_zeros and kind in _AVERAGES and config.get("padding") == "same":
        return "averages that count its zeros"
    begin = _BEGINS[backend]["pool_size" in config]
    for size, stride in _windows(kind, config):
        if any(begin(size, left) != _tensorflow(size, left) for left in range(stride)):
            return f"windows of {size} cells and steps of {stride}"
    return ""


def _windows(kind: str, config: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield the size and the step of a layer's padded windows along each axis."""
    sizes = _values(config.get("kernel_size") or config.get("pool_size") or [])
    strides = _values(config.get("strides") or (sizes if "pool_size" in config else 1))
    rates = _values(config.get("dilation_rate") or 1)
    for axis, size in enumerate(sizes):
        whole = (size - 1) * rates[axis % len(rates)] + 1
        if config.get("padding") == "same":
            yield whole, strides[axis % len(strides)]
        if kind == "ConvLSTM2D":  # its states are padded always
            yield size, 1


def _values(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]
