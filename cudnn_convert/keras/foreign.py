"""Layers whose code neither Keras nor the user brings: they pass through to Keras 3 untouched.

Source: keras v3.15 src/saving/serialization_lib.py `_retrieve_class_or_fn`: a class is looked up by its
registered name among the loader's custom objects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cudnn_convert.keras import architecture, lambdas, layers, objects
from cudnn_convert.keras.architecture import Entry


def is_foreign(entry: Entry, brought: Collection[str]) -> bool:
    """Whether an entry is a Lambda, or of a class that is neither Keras's nor brought; those by name."""
    if layers.bare(entry) in brought:
        return False
    return lambdas.is_lambda(entry) or not (entry["class_name"] in layers.CODE or layers.is_own(entry))


def has_foreign(entry: Entry, brought: Collection[str]) -> bool:
    """Whether an entry is foreign, or a layer in it."""
    return any(is_foreign(found, brought) for _, found in architecture.walk(entry))


def untouched(entry: Entry, brought: Collection[str]) -> dict[str, Any]:
    """A foreign or brought layer as Keras 3 writes one, with its config as it was but for an input's shape
    and the writing of a dtype. Raises ValueError for a Lambda that Keras 3 has no place for.
    """
    config = entry["config"]
    if lambdas.is_lambda(entry) and "Lambda" not in brought:
        return objects.written("keras.layers", "Lambda", lambdas.modern(config))
    if isinstance(config, Mapping):
        # Keras 3's Layer, which a user's class hands both to, does not know the first: it has an InputLayer.
        kept = {key: value for key, value in config.items() if key != "batch_input_shape"}
        config = {**kept, "dtype": objects.dtype(kept["dtype"])} if kept.get("dtype") is not None else kept
    return objects.written(None, layers.bare(entry), config, layers.registered(entry))
