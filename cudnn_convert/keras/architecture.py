"""The layers of a Keras model, found in its config; nothing is built.

An *entry* is a layer as a config has it: `{"class_name": ..., "config": {...}}`, in a functional model with
`name` and `inbound_nodes` beside. Models hold entries in `layers`, wrappers in `layer` and `backward_layer`,
RNN layers in `cell`.
Source: keras 2.2.4 engine/network.py `get_config`, layers/wrappers.py; tf_keras v2.21.0, the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

MODELS: Final = frozenset({"Model", "Functional", "Sequential"})
#: Where the config of a layer holds other layers.
_HELD: Final = ("layer", "backward_layer", "cell", "cells")

Entry = Mapping[str, Any]


def is_entry(value: Any) -> bool:
    """Whether a value of a config is a layer, or another object with a config of its own."""
    return isinstance(value, Mapping) and isinstance(value.get("class_name"), str) and "config" in value


def is_model(entry: Entry) -> bool:
    """Whether an entry is a model of layers."""
    return entry["class_name"] in MODELS


def name(entry: Entry) -> str:
    """The name of a layer, "" where a config leaves it out."""
    config = entry["config"]
    found = config.get("name") if isinstance(config, Mapping) else None
    return str(found or entry.get("name") or "")


def layers(entry: Entry) -> list[Entry]:
    """The entries of a model; before Keras 2.2.3 a Sequential's config was the list itself."""
    config = entry["config"]
    found = config if isinstance(config, list) else config.get("layers", [])
    return [layer for layer in found if is_entry(layer)]


def inside(entry: Entry) -> list[Entry]:
    """The entries of the layers that a layer owns, in the order of their weights.

    A Bidirectional's other direction is listed twice where it is a copy of the first.
    """
    if is_model(entry):
        return layers(entry)
    config = entry["config"] if isinstance(entry["config"], Mapping) else {}
    held = [config[key] for key in _HELD if config.get(key) is not None]
    found = [
        one for value in held for one in (value if isinstance(value, list) else [value]) if is_entry(one)
    ]
    if entry["class_name"] == "Bidirectional" and len(found) == 1:
        return found * 2
    return found


def walk(entry: Entry, path: str = "") -> Iterator[tuple[str, Entry]]:
    """An entry and all below it, each with its path of names: `inner/bi/gru`."""
    here = f"{path}/{name(entry)}".strip("/")
    yield here, entry
    for below in inside(entry):
        yield from walk(below, here)


def below(model: Entry) -> Iterator[tuple[str, Entry]]:
    """All layers of a model at any depth, with their paths without the model's own name."""
    for entry in inside(model):
        yield from walk(entry)


def mapped(value: Any, change: Callable[[Entry], Entry]) -> Any:
    """A config with `change` done to every entry in it, inner ones first, also below unknown classes."""
    if isinstance(value, list):
        return [mapped(one, change) for one in value]
    if isinstance(value, Mapping):
        made = {key: mapped(one, change) for key, one in value.items()}
        return change(made) if is_entry(made) else made
    return value
