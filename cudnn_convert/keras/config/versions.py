"""The Keras behind a file: the version, and the names introduced later.

A class or function of a name that came later is the user's own, whatever Keras calls so today. keras-team's
Keras ended with 2.3.1. tf.keras counts on: `2.2.4-tf` is TensorFlow 1.13 to 1.15 (and 2.0 and 2.1 with the
behavior of 1), `2.3.0-tf` TensorFlow 2.0 to 2.2, 2.4.0 TensorFlow 2.3 and 2.4, and each later release has
TensorFlow's own number. What a config has tells the releases with `2.2.4-tf` apart.
Source: keras 2.1.6, 2.2.4 and 2.3.1 layers/__init__.py, activations.py; tensorflow v1.15.0, v2.1.0, v2.2.0,
v2.3.0, v2.8.0 and v2.13.0 python/keras/__init__.py, layers, activations.py.
"""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from cudnn_convert.keras.config import classes, layer_tree

_SHARED: Final = (2, 2, 4)
#: The version of JSON of Keras 3, which has none (read/architecture_file.py). Files have three numbers.
_UNTOLD: Final = (3, 0)


class Writer(NamedTuple):
    """The writer of a file: a version of Keras.

    `version` is the file's. `numbers` order versions: of `2.2.4-tf` a fourth is the minor release of
    TensorFlow 1, the newest that the config may be of. `oldest` is the oldest. Both are None where the
    version is unknown.
    """

    version: str
    numbers: tuple[int, ...] | None
    oldest: tuple[int, ...] | None

    @property
    def is_keras_team(self) -> bool:
        """True for keras-team's Keras 2, False for TensorFlow's."""
        return is_keras_team(self.version)


UNKNOWN: Final = Writer("", None, None)


def find_writer(keras_version: str, config: Mapping[str, Any]) -> Writer:
    """Find the writer of a model's `config`, `{"class_name": ..., "config": ...}`.

    An InputLayer has `ragged` from TensorFlow 1.15 on. A layer in a Bidirectional has `zero_output_for_mask`
    in 1.13 alone (tensorflow v1.13.2, v1.14.0 python/keras/layers/wrappers.py Bidirectional).
    """
    written = numbers(keras_version)
    if written == _UNTOLD:
        return Writer(keras_version, None, None)
    if written != _SHARED or not keras_version.endswith("-tf"):
        return Writer(keras_version, written, written)
    layers = [entry for _, entry in layer_tree.walk(config) if isinstance(entry["config"], Mapping)]
    inputs = [layer["config"] for layer in layers if layer["class_name"] == "InputLayer"]
    wrappers = (layer for layer in layers if layer["class_name"] == "Bidirectional")
    wrapped = (inner["config"] for wrapper in wrappers for inner in layer_tree.inside(wrapper))
    if any("ragged" in each for each in inputs):
        oldest, newest = 15, 15
    elif any(isinstance(each, Mapping) and each.get("zero_output_for_mask") for each in wrapped):
        oldest, newest = 13, 13
    else:
        oldest, newest = 13, 14 if inputs else 15
    return Writer(keras_version, (*_SHARED, newest), (*_SHARED, oldest))


#: The first version of tf.keras with a name; keras-team's Keras has none of them.
_NEW: Final[Mapping[tuple[int, ...], str]] = MappingProxyType(
    {
        (2, 2, 4): "AdditiveAttention Attention BatchNormalizationV1 BatchNormalizationV2 LayerNormalization",
        (2, 3, 0): "Rescaling SyncBatchNormalization swish",
        (2, 4, 0): "Conv1DTranspose EinsumDense MultiHeadAttention gelu",
        (2, 6, 0): "CategoryEncoding CenterCrop ConvLSTM1D ConvLSTM3D DepthwiseConv1D Discretization "
        "Normalization Resizing",
        (2, 9, 0): "UnitNormalization",
        (2, 11, 0): "GroupNormalization",
        (2, 12, 0): "Identity",
        (2, 13, 0): "mish",
        (3, 0, 0): "RMSNormalization",
    }
)


@cache
def newer_names(keras_version: str) -> frozenset[str]:
    """Return the names of classes and functions newer than a version of Keras.

    There are none where the version is unknown.
    """
    written = numbers(keras_version)
    if written is None:
        return frozenset()
    later = (names for first, names in _NEW.items() if is_keras_team(keras_version) or written < first)
    return frozenset(name for names in later for name in names.split())


def activations(keras_version: str) -> frozenset[str]:
    """Return the names of Keras's own activations in a version."""
    if (numbers(keras_version) or ()) >= (3,):
        return classes.ACTIVATIONS_OF_KERAS_3
    return classes.ACTIVATIONS.difference(newer_names(keras_version))


def is_keras_team(keras_version: str) -> bool:
    """Return True if a file is of keras-team's Keras 2.

    False for TensorFlow's own Keras.
    """
    written = numbers(keras_version)
    return written is not None and (2,) <= written < (2, 4) and not keras_version.endswith("-tf")


def numbers(keras_version: str) -> tuple[int, ...] | None:
    """Return the numbers at the start of a version.

    Returns None where there are none.
    """
    start = re.match(r"\d+(\.\d+)+", keras_version)
    return tuple(map(int, start[0].split("."))) if start else None
