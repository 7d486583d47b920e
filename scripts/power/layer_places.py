"""Places of Keras files, archives and HDF5: weights, layers, their options and what they read."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from corruptions import Array, Corruption, of_constants

#: Classes of layers that take and give the same, in pairs.
LIKE: Final = (
    *(("Add", "Subtract"), ("Multiply", "Add"), ("Maximum", "Minimum"), ("Average", "Add")),
    *(("GlobalMaxPooling1D", "GlobalAveragePooling1D"), ("Subtract", "Multiply")),
)
#: Values of options that are exchanged, in pairs.
WORDS: Final = (
    *(("relu", "elu"), ("tanh", "sigmoid"), ("sigmoid", "hard_sigmoid"), ("linear", "tanh"), ("elu", "selu")),
    *(("ave", "sum"), ("sum", "mul"), ("same", "valid"), ("causal", "valid")),
)
#: Options that are not of a layer's own computation.
_ASIDE: Final = ("trainable", "sparse", "ragged", "seed", "rate", "units", "filters", "stateful", "unroll")
_ENDS: Final = ("_initializer", "_regularizer", "_constraint", "dtype", "shape", "_dim", "supports_masking")


def list_corruptions(path: Path, seed: int) -> Iterator[Corruption]:
    """All corruptions of a Keras artifact."""
    weights = _weights(path)
    yield from of_constants(weights, store, seed)
    config = _config(path)
    for place in _layers(config):
        yield from _of_layer(config, place)


def store(path: Path, changed: Mapping[str, Array]) -> None:
    """Write new values of weights."""

    def change(file: Any) -> None:
        for name, value in changed.items():
            file[name][...] = value

    if not zipfile.is_zipfile(path):
        with h5py.File(path, "r+") as file:
            change(file)
        return
    members = _members(path)
    held = io.BytesIO(members["model.weights.h5"])
    with h5py.File(held, "r+") as file:
        change(file)
    _pack(path, members | {"model.weights.h5": held.getvalue()})


Place = tuple[Any, ...]


def _of_layer(config: Any, place: Place) -> Iterator[Corruption]:
    layer = _get(config, place)
    name = layer["config"].get("name", "/".join(map(str, place)))
    for pair in LIKE:
        if layer["class_name"] in pair:
            other = pair[1 - pair.index(layer["class_name"])]
            what = f"{name}: {layer['class_name']} to {other}"
            yield Corruption("op", what, _at(place, lambda one, other=other: _set_class(one, other)))
    for key, value in sorted(layer["config"].items()):
        if key in _ASIDE or key.endswith(_ENDS):
            continue
        for new in _other_values(value):
            change = lambda one, key=key, new=new: one["config"].__setitem__(key, new)  # noqa: E731
            yield Corruption("attribute", f"{name}: {key} {value} to {new}", _at(place, change))
    names = [
        _get(config, other)["config"].get("name") for other in _layers(config) if other[:-1] == place[:-1]
    ]
    for number, read in enumerate(_reads(layer.get("inbound_nodes"))):
        for other in names[: names.index(name)] if name in names else ():
            if other is not None and other != read[0]:
                change = lambda one, k=number, other=other: _rewire(one, k, other)  # noqa: E731
                yield Corruption("wire", f"{name}: input {number} to {other}", _at(place, change))


def _set_class(layer: Any, name: str) -> None:
    layer["class_name"] = name
    layer.pop("registered_name", None)
    layer.pop("build_config", None)


def _rewire(layer: Any, number: int, other: str) -> None:
    _reads(layer["inbound_nodes"])[number][0] = other


def _reads(nodes: Any) -> list[Any]:
    """The `[layer, node, tensor]` lists that a layer reads, in the words of either Keras."""
    found: list[Any] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            look(
                value["config"]["keras_history"]
                if value.get("class_name") == "__keras_tensor__"
                else [*value.values()]
            )
        elif isinstance(value, list):
            if len(value) >= 3 and isinstance(value[0], str) and isinstance(value[1], int):
                found.append(value)
            else:
                for one in value:
                    look(one)

    look(nodes)
    return found


def _other_values(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, float):
        yield value * 1.5 if value else 0.5
    elif isinstance(value, str):
        for pair in WORDS:
            if value in pair:
                yield pair[1 - pair.index(value)]
    elif isinstance(value, list) and len(value) == 2 and value[0] != value[1]:
        yield value[::-1]


def _layers(config: Any) -> list[Place]:
    """The places of all layers below a model, those of wrappers and nested models too."""
    found: list[Place] = []

    def look(value: Any, place: Place) -> None:
        if isinstance(value, dict):
            is_layer = isinstance(value.get("config"), dict) and "class_name" in value
            if is_layer and "name" in value["config"] and len(place) > 1:
                found.append(place)
            for key, one in value.items():
                look(one, (*place, key))
        elif isinstance(value, list):
            for k, one in enumerate(value):
                look(one, (*place, k))

    look(config, ())
    return found


def _get(config: Any, place: Place) -> Any:
    for key in place:
        config = config[key]
    return config


def _at(place: Place, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        config = copy.deepcopy(_config(path))
        change(_get(config, place))
        text = json.dumps(config)
        if zipfile.is_zipfile(path):
            _pack(path, _members(path) | {"config.json": text.encode()})
            return
        with h5py.File(path, "r+") as file:
            file.attrs["model_config"] = text

    return write


def _config(path: Path) -> Any:
    if zipfile.is_zipfile(path):
        return json.loads(_members(path)["config.json"])
    with h5py.File(path) as file:
        return json.loads(file.attrs["model_config"])


def _weights(path: Path) -> dict[str, Array]:
    found: dict[str, Array] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = np.asarray(item[...])

    held = io.BytesIO(_members(path)["model.weights.h5"]) if zipfile.is_zipfile(path) else path
    with h5py.File(held) as file:
        file.visititems(visit)
    return found


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _pack(path: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
