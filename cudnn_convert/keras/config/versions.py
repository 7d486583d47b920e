"""What the Keras that wrote a file had not yet, by the version in the file.

A class or function of a name that came later is the user's own, whatever Keras calls so today. keras-team's
Keras ended with 2.3.1. tf.keras counts on: `2.2.4-tf` is TensorFlow 1.13 to 1.15 (and 2.0 and 2.1 with the
behavior of 1), `2.3.0-tf` TensorFlow 2.0 to 2.2, 2.4.0 TensorFlow 2.3 and 2.4, and each later release has
TensorFlow's own number.
Source: keras 2.1.6, 2.2.4 and 2.3.1 layers/__init__.py, activations.py; tensorflow v1.15.0, v2.1.0, v2.2.0,
v2.3.0, v2.8.0 and v2.13.0 python/keras/__init__.py, layers, activations.py.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

#: The first version of tf.keras with a name; keras-team's Keras has none of them.
_NEW: Final[Mapping[tuple[int, ...], str]] = MappingProxyType(
    {
        (2, 2, 4): "AdditiveAttention Attention BatchNormalizationV1 BatchNormalizationV2 LayerNormalization",
        (2, 3, 0): "Rescaling SyncBatchNormalization swish",
        (2, 4, 0): "Conv1DTranspose EinsumDense MultiHeadAttention gelu",
        (2, 6, 0): "ConvLSTM1D ConvLSTM3D DepthwiseConv1D",
        (2, 9, 0): "UnitNormalization",
        (2, 11, 0): "GroupNormalization",
        (2, 13, 0): "mish",
    }
)


@cache
def newer_names(keras_version: str) -> frozenset[str]:
    """The names of classes and functions that Keras got after a version; none where it is unknown."""
    written = numbers(keras_version)
    if written is None:
        return frozenset()
    later = (names for first, names in _NEW.items() if is_keras_team(keras_version) or written < first)
    return frozenset(name for names in later for name in names.split())


def is_keras_team(keras_version: str) -> bool:
    """Whether a file is of keras-team's Keras 2, not of TensorFlow's."""
    written = numbers(keras_version)
    return written is not None and (2,) <= written < (2, 4) and not keras_version.endswith("-tf")


def numbers(keras_version: str) -> tuple[int, ...] | None:
    """The numbers that a version begins with; None where there are none."""
    start = re.match(r"\d+(\.\d+)+", keras_version)
    return tuple(map(int, start[0].split("."))) if start else None
