"""The weights of a `.keras` archive and of a `.weights.h5` file, brought into the order of older HDF5 files.

A layer's group is `layers/<class in snake case>`, with `_1`, `_2` for the next ones of its class, and holds
its weights as `vars/0`, `vars/1`; below it stand those of its own layers: `cell`, `layer`, `forward_layer`,
`backward_layer`, `layers/...`. Names of layers are not in there, so a config must tell.
Source: tf_keras v2.21.0 src/saving/saving_lib.py `_save_state`, `_save_container_state`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import Tensor
from cudnn_convert.read import hdf5
from cudnn_convert.read.hdf5 import Store

#: Where layers stand: the second in Keras 2.12 and 2.13.
_CONTAINERS: Final = ("layers", "_layer_checkpoint_dependencies")
#: How many weights at the end of a layer's list training does not touch.
_UNTRAINED: Final = {"BatchNormalization": 2, "SyncBatchNormalization": 2, "Normalization": 3}

Named = list[tuple[str, Tensor]]


def present(file: Any) -> bool:
    """Whether a file has weights in this form."""
    return any(name in file for name in _CONTAINERS) and "layer_names" not in file.attrs


def lists(store: Store, file: Any) -> dict[str, Named]:
    """Without a config: every group's weights, by the group's path below the container."""
    found: dict[str, Named] = {}
    for container in _CONTAINERS:
        if container in file:
            _collect(store, hdf5.descend(store, file, container), "", found, set())
    return found


def _collect(store: Store, group: Any, path: str, found: dict[str, Named], seen: set[int]) -> None:
    """Adds to `found`. A group counts once, however many links lead to it: they may lead in circles."""
    if not hasattr(group, "keys") or hdf5.address(group) in seen:
        return
    seen.add(hdf5.address(group))
    for name, child in hdf5.children(group):
        if name == "seed_generator":
            continue  # Keras 3 counts it among a layer's variables, not its weights
        if name == "vars":
            kept = own(store, group, path)
            if kept:
                # Both directions of a Bidirectional belong into the list of their layer, forward first.
                owner = re.sub(r"/(forward|backward)_layer(/cell)?$|/cell$", "", path)
                found.setdefault(owner, []).extend(kept)
                found[owner].sort(key=lambda pair: "backward_layer" in pair[0])
        else:
            _collect(store, child, f"{path}/{name}".lstrip("/"), found, seen)


def own(store: Store, group: Any, path: str) -> Named:
    """The weights of one group in their order."""
    if "vars" not in group:
        return []
    held = hdf5.descend(store, group, "vars")
    names = sorted((name for name in held if name.isdecimal()), key=int)
    stem = path.removeprefix("/")
    return [(f"{stem}/{name}:0", hdf5.tensor(store, held, name)) for name in names]


def weights(store: Store, file: Any, config: Mapping[str, Any]) -> dict[str, tuple[tuple[str, Tensor], ...]]:
    """By top-level layer, `trainable_weights + non_trainable_weights`.

    Raises ReadError, UnsupportedModelError.
    """
    found: dict[str, tuple[tuple[str, Tensor], ...]] = {}
    for layer, group in _layers(store, file, config["config"]):
        trained, rest = _split(store, group, layer, str(layer["config"].get("name", "")))
        if trained or rest:
            found[str(layer["config"].get("name", ""))] = (*trained, *rest)
    return found


def _layers(store: Store, group: Any, config: Any) -> list[tuple[Mapping[str, Any], Any]]:
    """The layers of a model's config, each with its group or None."""
    listed = config if isinstance(config, list) else config.get("layers", [])
    held: Any = next((_child(store, group, name) for name in _CONTAINERS if name in group), {})
    used: dict[str, int] = {}
    found = []
    for layer in listed:
        name = _snake(str(layer["class_name"]))
        count = used.get(name, -1) + 1
        used[name] = count
        key = f"{name}_{count}" if count else name
        found.append((layer, _child(store, held, key)))
    return found


def _snake(name: str) -> str:
    """tf_keras v2.21.0 src/utils/generic_utils.py `to_snake_case`."""
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _split(store: Store, group: Any, layer: Mapping[str, Any], path: str) -> tuple[Named, Named]:
    """What of a layer is trained, and what is not."""
    if group is None:
        return [], []
    kind, config = str(layer["class_name"]), layer["config"]
    frozen = isinstance(config, Mapping) and config.get("trainable") is False
    trained: Named = []
    rest: Named = []
    if isinstance(config, list) or "layers" in config:
        inner = _layers(store, group, config)
        parts = [(part, below, f"{path}/{part['config'].get('name', '')}") for part, below in inner]
    elif kind == "Bidirectional":
        one = config["layer"]
        ways = (("forward_layer", one), ("backward_layer", config.get("backward_layer") or one))
        parts = [(part, _child(store, group, way), f"{path}/{way}") for way, part in ways]
    elif isinstance(config.get("layer"), Mapping):
        parts = [(config["layer"], _child(store, group, "layer"), path)]
    else:
        listed = _leaf(store, group, path)
        kept = 0 if frozen else len(listed) - _UNTRAINED.get(kind, 0)
        return listed[:kept], listed[kept:]
    for part, below, name in parts:
        more, fixed = _split(store, below, part, name)
        trained += more
        rest += fixed
    return ([], trained + rest) if frozen else (trained, rest)


def _child(store: Store, group: Any, name: str) -> Any:
    return hdf5.descend(store, group, name) if name in group else None


def _leaf(store: Store, group: Any, path: str) -> Named:
    """The weights of a layer that has one list of them, its own or that of its cell."""
    found: dict[str, Named] = {}
    _collect(store, group, path, found, set())
    if len(found) > 1:
        told = f"{path}: expected a layer with one list of weights, found {len(found)}; save the model as .h5"
        raise UnsupportedModelError(store.path, [told])
    return next(iter(found.values()), [])
