"""Layers that not every CPU runs channels first, by their configs."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_convert.keras.config import channels_first
from cudnn_convert.model import Architecture


def entry(kind: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": kind.lower(), "data_format": "channels_first", **config}}


LAYERS = [
    entry("Conv2D"),
    entry("MaxPooling2D"),
    entry("Conv2DTranspose"),
    entry("Flatten"),
    entry("Conv1D", data_format="channels_last"),
]


@pytest.mark.parametrize(
    ("keras3", "expected"), [(True, ["conv2d", "conv2dtranspose"]), (False, ["conv2d", "maxpooling2d"])]
)
def test_layers_are_listed_by_their_paths(keras3: bool, expected: list[str]) -> None:
    model = Architecture({"class_name": "Sequential", "config": {"name": "m", "layers": LAYERS}}, {})
    assert channels_first.find_layers(model, keras3=keras3) == expected


def test_a_layer_in_a_wrapper_is_rewritten_with_it() -> None:
    wrapped = {"class_name": "TimeDistributed", "config": {"name": "each", "layer": entry("Conv2D")}}
    assert channels_first.needs_rewriting(wrapped, keras3=False)
    assert not channels_first.needs_rewriting(entry("Flatten"), keras3=True)


def test_keras_3_adds_a_bias_elsewhere() -> None:
    assert channels_first.needs_rewriting(entry("Conv3D"), keras3=True)
    assert not channels_first.needs_rewriting(entry("Conv3D", use_bias=False), keras3=True)
    assert channels_first.needs_rewriting(entry("Conv3D", use_bias=False), keras3=False)
