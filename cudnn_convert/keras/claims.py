"""What the config of a Keras model claims, checked once where it is read: what comes later may rely on it.

A config is JSON that anybody may have written. Models hold layers, layers have names, calls refer to layers
that are there, sizes are numbers. What only a layer's own class understands is left to that class.
Source: keras 2.2.4 engine/network.py, engine/sequential.py; tf_keras v2.21.0 src/engine/functional.py; keras
v3.15 src/models/functional.py, src/saving/serialization_lib.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import ReadError
from cudnn_convert.keras import architecture, calls, layers, objects

#: Levels of lists and objects in each other: a model in a model takes four, and each a few of Python's own.
_DEEPEST: Final = 100
_LARGEST: Final = 1 << 63
_WRAPPERS: Final = frozenset({"Bidirectional", "TimeDistributed"})
_ENDS: Final = ("input_layers", "output_layers")
#: What a recurrence's outputs depend on beside its weights.
_FLAGS: Final = ("go_backwards", "return_sequences", "return_state", "stateful", "time_major")
#: Objects that have a config of their own where they have any.
_HELD: Final = ("_initializer", "_regularizer", "_constraint", "dtype")

#: Where it is, what was expected, what was found.
Fault = tuple[str, str, str]


def require(path: Path, where: str, config: Mapping[str, Any]) -> None:
    """Raises ReadError where the config of a model, from `where` in the file at `path`, is none."""
    faults = chain(_values(config), _model(config, "model"))
    if fault := next(faults, None):
        place, expected, found = fault
        raise ReadError(path, f"{where}: {place}", expected=expected, found=found)


def _told(value: object) -> str:
    return "none" if value is None else repr(value)


def _values(config: Any) -> Iterator[Fault]:
    """Faults of values wherever they stand, found before anything is followed by a function of itself."""
    todo = [(config, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > _DEEPEST:
            yield "JSON", f"at most {_DEEPEST} levels", "more"
            return
        if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
            yield "JSON", "numbers of 64 bits", f"one of {value.bit_length()}"
        if isinstance(value, Mapping):
            todo += [(key, depth) for key in value]
            yield from _object(value)
        if isinstance(value, Mapping | list):
            below = value.values() if isinstance(value, Mapping) else value
            todo += [(found, depth + 1) for found in below]


def _object(value: Mapping[str, Any]) -> Iterator[Fault]:
    if value.get("class_name") == calls.TENSOR and not _is_reference(
        _of(value.get("config"), "keras_history")
    ):
        yield calls.TENSOR, "a keras_history of a layer's name and two numbers", _told(value.get("config"))
    for key, held in value.items():
        if (
            key.endswith(_HELD)
            and isinstance(held, Mapping)
            and not isinstance(held.get("config", {}), Mapping)
        ):
            yield key, "an object with a config", _told(held)


def _of(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _model(entry: Any, place: str) -> Iterator[Fault]:
    """Faults of a layer or model, and of all in it."""
    if not architecture.is_entry(entry) or not isinstance(entry["config"], Mapping | list):
        yield place, "class_name and config", _told(entry)
        return
    name, config = _own_name(entry), entry["config"]
    if not isinstance(name, str | None) or entry.get("name", name) not in (None, name):
        yield place, "one name", _told(entry.get("name", name))
        return
    place = f"{place} {name}" if name else place
    if architecture.is_model(entry):
        yield from _layers(entry, place)
    elif not isinstance(config, Mapping):
        yield place, "a config by names", _told(config)
    else:
        yield from _layer(entry["class_name"], config, place)


def _own_name(entry: Mapping[str, Any]) -> Any:
    return _of(entry["config"], "name") or entry.get("name")


def _layers(entry: Mapping[str, Any], place: str) -> Iterator[Fault]:
    config = entry["config"]
    listed = config if isinstance(config, list) else config.get("layers")
    if not isinstance(listed, list):
        yield place, "a list of layers", _told(listed)
        return
    for one in listed:
        yield from (found := list(_model(one, "layer")))
        if found:
            return
    built = entry.get("build_config")
    if not isinstance(built, Mapping | None):
        yield place, "a build_config by names", _told(built)
    if entry["class_name"] == "Sequential":
        return
    if not isinstance(config, Mapping):
        yield place, "a config by names", _told(config)
        return
    names = {architecture.name(one) for one in listed}
    for key in _ENDS:
        if not _are_ends(config.get(key), names):
            yield f"{place}: {key}", "references to its layers", _told(config.get(key))
    for one in listed:
        if not isinstance(one.get("inbound_nodes", []), list):
            yield f"layer {architecture.name(one)}", "a list of inbound_nodes", _told(one["inbound_nodes"])


def _are_ends(value: Any, names: set[str]) -> bool:
    """Whether these are references to layers, in lists and by names as a loader may nest them."""
    if _is_reference(value):
        return value[0] in names
    below = [*value.values()] if isinstance(value, Mapping) else value
    return isinstance(below, list) and bool(below) and all(_are_ends(one, names) for one in below)


def _is_reference(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (3, 4):
        return False
    return isinstance(value[0], str) and all(type(number) is int and number >= 0 for number in value[1:3])


def _layer(kind: str, config: Mapping[str, Any], place: str) -> Iterator[Fault]:
    if kind in _WRAPPERS and config.get("layer") is None:
        yield f"{place}: layer", "the layer that it wraps", _told(None)
    for key in ("layer", "backward_layer"):
        if kind in _WRAPPERS and config.get(key) is not None:
            yield from _model(config[key], "layer")
    cells = config.get("cells") if kind in layers.BUILT_IN else None
    if kind in layers.BUILT_IN and architecture.is_entry(config.get("cell")):
        yield from _model(config["cell"], "layer")
    for cell in cells if isinstance(cells, list) else ():
        yield from _model(cell, "layer")
    if kind in layers.MODES and not _is_size(config.get("units")):
        yield f"{place}: units", "a number of at least 1", _told(config.get("units"))
    for key in _FLAGS if kind in layers.MODES else ():
        if config.get(key) not in (None, False, True):
            yield f"{place}: {key}", "true or false", _told(config[key])
    if not isinstance(config.get("merge_mode"), str | None):
        yield f"{place}: merge_mode", "its name", _told(config["merge_mode"])
    for key in ("batch_input_shape", "batch_shape"):
        shape = objects.shape(config.get(key)) if kind in layers.BUILT_IN else None
        if shape is not None and not all(size is None or _is_size(size) for size in shape):
            yield f"{place}: {key}", "sizes", _told(config[key])


def _is_size(value: Any) -> bool:
    return type(value) is int and value > 0
