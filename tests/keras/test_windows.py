"""Padded windows of Theano and CNTK, where TensorFlow places them alike and where not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.keras_files import entry, sequential

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.keras import windows

HERE = Path("model.h5")


def convolution(kind: str, size: int, step: int, **more: Any) -> dict[str, Any]:
    return entry(kind, "it", kernel_size=[size, 3], strides=[step, 1], padding="same", **more)


def pool(kind: str, size: int, step: int) -> dict[str, Any]:
    return entry(kind, "it", pool_size=[size, 1], strides=[step, 1], padding="same")


def is_refused(layer: dict[str, Any], backend: str = "theano", version: str = "2.1.6") -> bool:
    try:
        windows.refuse_others(HERE, sequential(layer), backend, version)
    except UnsupportedModelError:
        return True
    return False


@pytest.mark.parametrize("kind", ["Conv2D", "Conv2DTranspose", "DepthwiseConv2D"])
def test_convolutions_of_theano(kind: str) -> None:
    """Keras 1.2.2 and 2.1.6 on Theano 1.0.5 beside TensorFlow 1.4.1, images of 6 and 7 cells."""
    alike = {
        (size, step) for size in (1, 2, 3) for step in (1, 2) if not is_refused(convolution(kind, size, step))
    }
    assert alike == {(1, 1), (1, 2), (3, 1)}


def test_dilated_convolutions_of_theano() -> None:
    assert not is_refused(convolution("Conv2D", 2, 1, dilation_rate=[2, 1]))
    assert is_refused(convolution("Conv2D", 2, 1, dilation_rate=[3, 1]))


@pytest.mark.parametrize("kind", ["MaxPooling2D", "AveragePooling2D"])
def test_pools_of_theano(kind: str) -> None:
    """As the convolutions; of the averages, Keras 2.0.5 to 2.0.9 counts the padding."""
    sizes = [(size, step) for size in range(1, 6) for step in (1, 2)]
    alike = {(size, step) for size, step in sizes if not is_refused(pool(kind, size, step))}
    assert alike == {(1, 1), (1, 2), (3, 1)}
    for version, counts in (("1.2.2", False), ("2.0.3", False), ("2.0.5", True), ("2.0.9", True)):
        assert is_refused(pool(kind, 3, 1), version=version) is (counts and kind == "AveragePooling2D")


def test_states_of_a_convolutional_recurrence_are_always_padded() -> None:
    layer = entry("ConvLSTM2D", "it", kernel_size=[2, 3], strides=[1, 1], padding="valid")
    assert is_refused(layer)
    layer["config"]["kernel_size"] = [3, 3]
    assert not is_refused(layer)


def test_cntk_differs_in_steps_of_odd_windows() -> None:
    """CNTK v2.7 Source/Math/ConvolveGeometry.h: the first middle is at half of what the steps leave over."""
    sizes = [(size, step) for size in range(1, 6) for step in (1, 2)]
    refused = {(size, step) for size, step in sizes if is_refused(pool("MaxPooling2D", size, step), "cntk")}
    assert refused == {(3, 2), (5, 2)}


def test_other_layers_and_backends_pass() -> None:
    assert not is_refused(convolution("Conv2D", 2, 2), "tensorflow")
    assert not is_refused(convolution("Conv2D", 2, 2), "")
    valid = convolution("Conv2D", 2, 2)
    valid["config"]["padding"] = "valid"
    assert not is_refused(valid)
    assert not is_refused(entry("Dense", "it", units=3))


def test_the_refusal_names_the_layer_and_a_cure() -> None:
    inner = {
        **sequential(convolution("Conv2D", 4, 2)),
        "config": {"name": "deep", "layers": [convolution("Conv2D", 4, 2)]},
    }
    with pytest.raises(UnsupportedModelError) as caught:
        windows.refuse_others(HERE, sequential(inner, pool("MaxPooling2D", 2, 2)), "theano", "2.1.6")
    what = "expected windows that TensorFlow places alike, found padding='same' of theano with windows of"
    cure = "pad with a ZeroPadding layer and padding='valid' instead, and save it again"
    assert [str(reason) for reason in caught.value.reasons] == [
        f"layer {layer}: {what} {size} cells and steps of 2; {cure}"
        for layer, size in (("deep/it", 4), ("it", 2))
    ]
