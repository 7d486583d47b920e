"""The shapes that layers may be built for, where only their weights tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cudnn_convert.keras import architecture, objects
from cudnn_convert.keras.architecture import Entry
from cudnn_convert.model import Tensor


def first(model: Entry) -> Sequence[int | None]:
    """The shape of a model's first input, its batch included; `[None]` where the config does not say."""
    for entry in architecture.layers(model)[:1]:
        if model["class_name"] == "Sequential" and entry["class_name"] != "InputLayer":
            return objects.input_of(model)[0] or [None]
        config = entry["config"]
        return objects.shape(config.get("batch_input_shape", config.get("batch_shape"))) or [None]
    return [None]


def tried(weights: Sequence[tuple[str, Tensor]], batch: int | None) -> Iterator[tuple[Any, ...]]:
    """Arguments for `build` of a layer with these weights, the likely ones first.

    One shape for most layers, a list of two or two shapes for those of attention. The last size of a shape is
    one of the weights' own; so are the others where a layer wants to know them.
    """
    kept = [tensor.shape for _, tensor in weights]
    sizes = dict.fromkeys(size for shape in kept for size in (*shape[-2:-1], *shape))
    shapes = [
        (batch, *[fill] * (rank - 2), size)
        for rank in (3, 2, 4, 5)
        for size in sizes or (1,)
        for fill in (None, size)
    ]
    shapes += [(batch, *shape) for shape in kept[:1]]
    yield from ((shape,) for shape in shapes)
    yield from (([shape, shape],) for shape in shapes)
    yield from ((shape, shape) for shape in shapes)
