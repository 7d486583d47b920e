"""Layers with channels-first images, runnable on some CPUs only.

They give TensorFlow convolutions and pools of `NCHW`, which it has with oneDNN alone. Other layers turn their
images themselves where no GPU is seen, or have kernels for either layout.
Source: tf_keras v2.21.0 src/layers/convolutional, pooling (`tf.nn.*` with their data_format), src/backend.py
`_preprocess_conv2d_input` (what turns); keras v3.15.1 src/backend/tensorflow/nn.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from cudnn_convert.keras.config import classes, layer_tree
from cudnn_convert.model import Architecture

_BOTH: Final = "Conv1D Conv2D Conv1DTranspose Conv3DTranspose Convolution1D Convolution2D".split()
#: By whether Keras 3 runs them.
_CLASSES: Final[Mapping[bool, frozenset[str]]] = MappingProxyType(
    {
        True: frozenset(
            "Conv2DTranspose Convolution1DTranspose Convolution2DTranspose Convolution3DTranspose "
            "ConvLSTM1D ConvLSTM2D".split()
            + _BOTH
        ),
        False: frozenset(
            "Conv3D Convolution3D Convolution1DTranspose Convolution3DTranspose SeparableConv1D "
            "SeparableConv2D SeparableConvolution1D SeparableConvolution2D DepthwiseConv1D MaxPooling2D "
            "MaxPool2D AveragePooling2D AvgPool2D".split()
            + _BOTH
        ),
    }
)


#: Convolutions that Keras 3 runs so. Where an image is as wide as it has channels it adds a bias along the
#: width (keras v3.15.1 src/backend/tensorflow/numpy.py `add`).
_BIASED: Final = frozenset(
    "Conv3D Convolution3D SeparableConv1D SeparableConv2D SeparableConvolution1D SeparableConvolution2D "
    "DepthwiseConv1D DepthwiseConv2D".split()
)


def find_layers(model: Architecture, *, keras3: bool) -> list[str]:
    """List the paths of a model's layers runnable on some CPUs only.

    Runnable by Keras 3 with `keras3`, else by tf_keras.
    """
    return [path for path, entry in layer_tree.below(model.config) if _is_one(entry, _CLASSES[keras3])]


def needs_rewriting(entry: layer_tree.Entry, *, keras3: bool) -> bool:
    """Return True if a layer, or a layer in a wrapper, needs channels-last images.

    It needs them where not every CPU runs it, or where Keras 3 runs it with its bias elsewhere. Models in it
    are not looked into.
    """
    if layer_tree.is_model(entry):
        return False
    inner = any(needs_rewriting(each, keras3=keras3) for each in layer_tree.inside(entry))
    is_biased = keras3 and _is_one(entry, _BIASED) and entry["config"].get("use_bias") is not False
    return inner or is_biased or _is_one(entry, _CLASSES[keras3])


def _is_one(entry: layer_tree.Entry, names: Iterable[str]) -> bool:
    is_first = layer_tree.settings(entry).get("data_format") == "channels_first"
    return is_first and entry["class_name"] in names and classes.is_keras_class(entry)
