"""Keras layers of channels-first images, rewritten: their answers are those of a twin built channels last."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import keras
import numpy as np
import pytest
import tf_keras

from cudnn_convert.keras.config import channels_first, channels_last, layer_tree
from cudnn_convert.model import Architecture


@dataclass(frozen=True)
class Layout:
    """Layers of one layout; `permute` gives a tensor channels first what the twin has."""

    library: Any
    is_first: bool

    @property
    def format(self) -> str:
        return "channels_first" if self.is_first else "channels_last"

    @property
    def axis(self) -> int:
        return 1 if self.is_first else -1

    def image(self, channels: int, *sizes: int, steps: int | None = None) -> Any:
        shape = (channels, *sizes) if self.is_first else (*sizes, channels)
        return self.library.Input(shape if steps is None else (steps, *shape), name="image")

    def flat(self, image: Any, steps: int | None = None) -> Any:
        """The numbers of an image, row by row and channel by channel, as the twin has them."""
        if self.is_first:
            lead = 1 if steps is None else 2
            rank = len(image.shape)
            axes = [*range(1, lead), *range(lead + 1, rank), lead]
            image = self.library.layers.Permute(axes)(image)
        return self.library.layers.Flatten()(image)


def row(layout: Layout) -> Any:
    """A row of layers without an InputLayer."""
    layers = layout.library.layers
    data = {"data_format": layout.format}
    shape = (3, 7, 6) if layout.is_first else (7, 6, 3)
    first = {"batch_input_shape": (None, *shape)} if layout.library is tf_keras else {"input_shape": shape}
    model = layout.library.Sequential(
        [
            layers.Conv2D(4, (3, 2), padding="same", name="conv", **data, **first),
            layers.BatchNormalization(axis=layout.axis, name="norm"),
            layers.Activation("relu"),
            layers.MaxPooling2D((2, 3), padding="same", **data),
            layers.Dropout(0.3),
            layers.Conv2D(5, 2, strides=(1, 2), name="second", **data),
        ]
    )
    flat = layout.flat(model.outputs[0])
    return layout.library.Model(model.inputs, flat)


def apart(layout: Layout) -> Any:
    """A convolution that three layers read, one of which mixes channels; a layer that is called twice."""
    layers, data = layout.library.layers, {"data_format": layout.format}
    image = layout.image(2, 6, 5)
    conv = layers.Conv2D(3, 2, name="conv", **data)(image)
    shares = layers.Softmax(axis=layout.axis)(conv)
    pool = layers.AveragePooling2D(2, **data)
    twice = layers.Add()([pool(conv), pool(shares)])
    mean = layers.GlobalAveragePooling2D(**data)(conv)
    return layout.library.Model(image, layers.Concatenate()([layout.flat(twice), mean]))


def in_time(layout: Layout) -> Any:
    """Images of each step, and a convolution of steps."""
    layers, data = layout.library.layers, {"data_format": layout.format}
    each = layers.TimeDistributed
    image = layout.image(2, 5, 4, steps=3)
    x = each(layers.Conv2D(3, 2, **data))(image)
    x = each(layers.BatchNormalization(axis=layout.axis))(x)
    x = each(layers.MaxPooling2D(2, **data))(x)
    return layout.library.Model(image, layout.flat(x, steps=3))


def of_steps(layout: Layout) -> Any:
    """Convolutions of one axis, separable ones, padding."""
    layers, data = layout.library.layers, {"data_format": layout.format}
    image = layout.image(3, 11)
    x = layers.Conv1D(4, 3, dilation_rate=2, **data)(image)
    x = layers.LeakyReLU()(x)
    x = layers.SeparableConv1D(5, 2, **data)(x)
    return layout.library.Model(image, layout.flat(x))


def transposed(layout: Layout) -> Any:
    """Transposed convolutions of images, and depthwise ones."""
    layers, data = layout.library.layers, {"data_format": layout.format}
    image = layout.image(2, 4, 3)
    x = layers.Conv2DTranspose(3, (2, 3), strides=2, padding="same", **data)(image)
    x = layers.Conv2D(4, 2, **data)(x)
    return layout.library.Model(image, layout.flat(x))


def square(layout: Layout) -> Any:
    """Images as wide as they have channels, along whose width Keras 3 would add a bias."""
    layers, data = layout.library.layers, {"data_format": layout.format}
    image = layout.image(2, 5, 4)
    x = layers.SeparableConv2D(4, 2, padding="same", **data)(image)
    x = layers.DepthwiseConv2D(2, padding="same", **data)(x)
    x = layers.Conv2D(3, 2, **data)(x)
    return layout.library.Model(image, layout.flat(x))


def inner(layout: Layout) -> Any:
    """A model inside a model."""
    layers, data = layout.library.layers, {"data_format": layout.format}
    shape = (2, 6, 5) if layout.is_first else (6, 5, 2)
    within = layout.library.Sequential(
        [layout.library.Input(shape), layers.Conv2D(3, 2, **data)], name="within"
    )
    image = layout.image(2, 6, 5)
    x = layers.Conv2D(4, (2, 1), name="after", **data)(within(image))
    return layout.library.Model(image, layout.flat(x))


CASES: Final = (row, apart, in_time, of_steps, transposed, square, inner)


def described(model: Any) -> Architecture:
    """A model as a file has it."""
    return Architecture(json.loads(model.to_json()), {}, "2.15.0")


@pytest.mark.parametrize("library", [tf_keras, keras], ids=["tf_keras", "keras"])
@pytest.mark.parametrize("build", CASES)
def test_answers_are_those_of_the_twin(build: Callable[[Layout], Any], library: Any) -> None:
    model, twin = (build(Layout(library, is_first)) for is_first in (True, False))
    rng = np.random.default_rng(11)
    weights = [rng.uniform(0.1, 1, weight.shape) for weight in twin.get_weights()]
    is_keras3 = library is keras
    changed, names = channels_last.rewrite(described(model), keras3=is_keras3)
    assert names
    assert channels_first.find_layers(changed, keras3=is_keras3) == []
    rewritten = library.models.model_from_json(json.dumps(changed.config))
    for each in (rewritten, twin):
        each.set_weights(weights)
    x = rng.standard_normal((2, *twin.input_shape[1:])).astype(np.float32)
    lead = 2 if build is in_time else 1
    turned = np.moveaxis(x, -1, lead)
    np.testing.assert_allclose(
        np.asarray(rewritten(turned)), np.asarray(twin(x)), rtol=1e-5, atol=1e-5, err_msg=build.__name__
    )


def test_layers_between_two_that_are_turned_are_not_turned_back() -> None:
    changed, names = channels_last.rewrite(described(row(Layout(tf_keras, True))), keras3=False)
    kinds = [entry["class_name"] for _, entry in layer_tree.below(changed.config)]
    assert kinds.count("Permute") == 3  # one in, one out, and the model's own
    assert {"norm", "conv", "second"} < {*names}


def test_images_that_a_model_gives_out_stay_as_they_are() -> None:
    layout = Layout(tf_keras, True)
    image = layout.image(2, 4, 3)
    conv = tf_keras.layers.Conv2D(3, 2, data_format="channels_first", name="conv")(image)
    model = described(tf_keras.Model(image, conv))
    assert channels_last.rewrite(model, keras3=False) == (model, [])


def test_a_model_without_such_layers_is_the_same() -> None:
    model = described(row(Layout(tf_keras, False)))
    assert channels_last.rewrite(replace(model), keras3=False) == (model, [])
