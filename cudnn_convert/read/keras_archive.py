"""Reads `.keras` archives and the weight groups of `.weights.h5` files.

A `.keras` archive is a zip of `config.json`, `metadata.json` and `model.weights.h5`, of Keras 3 or tf_keras.
Source: keras v3.15 src/saving/saving_lib.py, tf_keras v2.21.0 src/saving/saving_lib.py.

The weights are returned in the order of older HDF5 files. A layer's group is `layers/<class in snake case>`,
with `_1`, `_2` for the next layers of its class. It has the layer's weights as `vars/0`, `vars/1`, and below
it groups of nested layers: `cell`, `layer`, `forward_layer`, `backward_layer`, `layers/...`. Layer names are
not stored, so a config must give them.
Source: tf_keras v2.21.0 src/saving/saving_lib.py `_save_state`, `_save_container_state`.
"""

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cudnn_convert import context
from cudnn_convert.errors import AGAIN, ReadError, UnsupportedModelError
from cudnn_convert.keras.config import layer_tree, validate
from cudnn_convert.model import Architecture, KerasFile, Model, Tensor
from cudnn_convert.read import hdf5
from cudnn_convert.read.arrays import containers
from cudnn_convert.read.hdf5 import Store
from cudnn_convert.text import first_line

KIND: Final = "Keras archive"
TAGS: Final = False
_CONFIG: Final = "config.json"
METADATA: Final = "metadata.json"
_WEIGHTS: Final = "model.weights.h5"
_ENCRYPTED: Final = 1
#: The keys of `config.json` that describe the model; the others say how it was built and compiled.
_KEPT: Final = frozenset({"class_name", "config", "module", "registered_name"})


def recognise(path: Path) -> Path | None:
    """Return the file if a zip with a model's config and weights.

    Returns None otherwise.
    """
    names = containers.list_members(path) if path.is_file() else []
    return path if {_CONFIG, _WEIGHTS} <= {*names} else None


def read(path: Path) -> Model:
    """Read the model as its `architecture`. Raises ReadError, UnsupportedModelError."""
    config = hdf5.parse_json(path, _CONFIG, member(path, _CONFIG))
    if "class_name" not in config or not isinstance(config.get("config"), dict):
        raise ReadError(path, _CONFIG, expected="class_name and config", found=", ".join(config))
    validate.require(path, _CONFIG, {key: value for key, value in config.items() if key in _KEPT})
    metadata = hdf5.parse_json(path, METADATA, member(path, METADATA, default=b"{}"))
    store = Store(path, _WEIGHTS, member(path, _WEIGHTS)).check()
    with store.open() as file:
        weights = read_weights(store, file, config)
        optimizer: tuple[tuple[str, Tensor], ...] = ()
        if "optimizer" in file:
            group = hdf5.descend(store, file, "optimizer")
            optimizer = tuple(own(store, group, "optimizer"))
    architecture = Architecture(
        {name: value for name, value in config.items() if name in _KEPT},
        weights,
        keras_version=str(metadata.get("keras_version", "")),
        backend="tensorflow",
        training=_training(config.get("compile_config")),
        optimizer=optimizer,
    )
    return Model(path, KIND, None, {}, architecture=architecture, keras=KerasFile.ARCHIVE)


def _training(compiled: Any) -> Any:
    """Return a compile config under the keys of HDF5 files.

    Its optimizer is `optimizer_config` there.
    """
    if not isinstance(compiled, dict) or not isinstance(compiled.get("optimizer"), dict):
        return compiled
    entry = {key: compiled["optimizer"].get(key) for key in ("class_name", "config")}
    return {key: value for key, value in compiled.items() if key != "optimizer"} | {"optimizer_config": entry}


def require_whole(path: Path) -> None:
    """Check for all data in an archive, within the bounds of the stored bytes.

    Raises ReadError.
    """
    for name in (_CONFIG, METADATA):
        member(path, name)
    hdf5.require_whole(Store(path, _WEIGHTS, member(path, _WEIGHTS)))


def member(path: Path, name: str, *, default: bytes | None = None) -> bytes:
    """Return the content of a member, or `default` if missing. Raises ReadError."""
    try:
        with zipfile.ZipFile(path) as archive:
            if default is not None and name not in archive.namelist():
                return default
            if archive.namelist().count(name) > 1:
                expected = "one file of this name in the archive"
                raise ReadError(path, name, expected=expected, found="several", advice=AGAIN)
            info: Any = archive.getinfo(name)
            if info.flag_bits & _ENCRYPTED:
                raise ReadError(path, name, expected="a file without encryption", found="an encrypted one")
            if context.is_bomb(info.file_size, info.compress_size):
                expected, advice = "a file of usual compression", context.raising(info.file_size)
                actual = f"{info.file_size} bytes packed into {info.compress_size}"
                raise ReadError(path, name, expected=expected, found=actual, advice=advice)
            return archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, KeyError, OSError) as cause:
        if isinstance(cause, OSError) and cause.filename is not None:
            raise  # the archive cannot be opened; an impossible offset in it has no file name
        expected = "a readable file in the archive"
        raise ReadError(path, name, expected=expected, found=first_line(cause), advice=AGAIN) from cause


#: The group of layers in Keras 2.12 and 2.13, whose models list a layer with weights twice: by its number
#: among all, and among those with weights. Each counts for the names of groups, the second has no group.
#: Source: keras v2.13.1 src/engine/functional.py `_layer_checkpoint_dependencies`, src/saving/saving_lib.py.
_TWICE: Final = "_layer_checkpoint_dependencies"
#: Groups that contain the layers.
_CONTAINERS: Final = ("layers", _TWICE)
#: The number of non-trainable weights at the end of a layer's list.
_UNTRAINED: Final = {"BatchNormalization": 2, "SyncBatchNormalization": 2, "Normalization": 3}

#: The projections of a MultiHeadAttention in the order of its weights.
#: Source: keras v3.15.0 src/layers/attention/multi_head_attention.py build; tf_keras v2.21.0, the same file.
_HEADS: Final = ("query_dense", "key_dense", "gate_dense", "value_dense", "output_dense")

Named = list[tuple[str, Tensor]]


def present(file: Any) -> bool:
    """Return True if a file has weights in the form of a `.weights.h5`."""
    return any(name in file for name in _CONTAINERS) and "layer_names" not in file.attrs


def lists(store: Store, file: Any) -> dict[str, Named]:
    """Return the weights of every group by path below the container.

    They are used without a config.
    """
    listed: dict[str, Named] = {}
    for container in _CONTAINERS:
        if container in file:
            _collect(store, hdf5.descend(store, file, container), "", listed, set())
    return listed


def _collect(store: Store, group: Any, path: str, listed: dict[str, Named], seen: set[int]) -> None:
    """Add the weights below a group to `listed`.

    Each group is visited once: links may form cycles.
    """
    if not hasattr(group, "keys") or hdf5.address(group) in seen:
        return
    seen.add(hdf5.address(group))
    for name, child in hdf5.children(group):
        if name == "seed_generator":
            continue  # Keras 3 counts it among a layer's variables, not its weights
        if name == "vars":
            kept = own(store, group, path)
            if kept:
                # Both directions of a Bidirectional belong to one list, forward first.
                owner = re.sub(r"/(forward|backward)_layer(/cell)?$|/cell$", "", path)
                listed.setdefault(owner, []).extend(kept)
                listed[owner].sort(key=lambda pair: "backward_layer" in pair[0])
        else:
            _collect(store, child, f"{path}/{name}".lstrip("/"), listed, seen)


def own(store: Store, group: Any, path: str) -> Named:
    """Return the weights in the `vars` of a group, in order."""
    if "vars" not in group:
        return []
    item = hdf5.descend(store, group, "vars")
    names = sorted((name for name in item if name.isdecimal()), key=int)
    stem = path.removeprefix("/")
    return [(f"{stem}/{name}:0", hdf5.tensor(store, item, name)) for name in names]


def read_weights(
    store: Store, file: Any, config: Mapping[str, Any]
) -> dict[str, tuple[tuple[str, Tensor], ...]]:
    """Return each top-level layer's weights: `trainable_weights + non_trainable_weights`.

    Raises ReadError, UnsupportedModelError.
    """
    weights: dict[str, tuple[tuple[str, Tensor], ...]] = {}
    for layer, group in _layers(store, file, config["config"]):
        trained, rest = _split(store, group, layer, str(layer["config"].get("name", "")))
        if trained or rest:
            weights[str(layer["config"].get("name", ""))] = (*trained, *rest)
    return weights


def _layers(store: Store, group: Any, config: Any) -> list[tuple[Mapping[str, Any], Any]]:
    """List the layers of a model's config, each with a group if present.

    A layer without a group has None.
    """
    listed = config if isinstance(config, list) else config.get("layers", [])
    container = next((name for name in _CONTAINERS if name in group), "")
    below: Any = _child(store, group, container) if container else {}
    return _pair_groups(store, below, listed, is_twice=container == _TWICE)


def _pair_groups(
    store: Store, group: Any, listed: Sequence[Any], *, is_twice: bool = False
) -> list[tuple[Mapping[str, Any], Any]]:
    """Pair each layer of a list with the group named after the class.

    None stands for a missing group. `is_twice`: a layer with weights takes two numbers.
    """
    used = Counter[str]()
    layers = []
    for layer in listed:
        name = _snake(str(layer["class_name"]))
        below = _child(store, group, f"{name}_{used[name]}" if used[name] else name)
        used[name] += 2 if is_twice and _has_weights(store, below) else 1
        layers.append((layer, below))
    return layers


def _has_weights(store: Store, group: Any) -> bool:
    """Return True if a group, or a group below, has weights."""
    listed: dict[str, Named] = {}
    _collect(store, group, "", listed, set())
    return bool(listed)


def _snake(name: str) -> str:
    """Return a class name in snake case.

    Source: tf_keras v2.21.0 src/utils/generic_utils.py `to_snake_case`.
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _split(store: Store, group: Any, layer: Mapping[str, Any], path: str) -> tuple[Named, Named]:
    """Return the trainable and the non-trainable weights of a layer and nested layers."""
    if group is None:
        return [], []
    kind, config = str(layer["class_name"]), layer["config"]
    frozen = layer_tree.settings(layer).get("trainable") is False
    trained: Named = []
    rest: Named = []
    if isinstance(config, list) or "layers" in config:
        inner = _layers(store, group, config)
        parts = [(part, below, f"{path}/{part['config'].get('name', '')}") for part, below in inner]
    elif kind == "Bidirectional":
        wrapped = config["layer"]
        ways = (("forward_layer", wrapped), ("backward_layer", config.get("backward_layer") or wrapped))
        parts = [(part, _child(store, group, direction), f"{path}/{direction}") for direction, part in ways]
    elif isinstance(config.get("layer"), Mapping):
        parts = [(config["layer"], _child(store, group, "layer"), path)]
    elif (cells := _cells(config)) and "cell" in group:
        stack = _child(store, _child(store, group, "cell"), "cells")
        inner = _pair_groups(store, {} if stack is None else stack, cells)
        parts = [(part, below, f"{path}/{part['config'].get('name', '')}") for part, below in inner]
    elif kind == "MultiHeadAttention":
        listed = [pair for name in _HEADS for pair in _head(store, group, name, path)]
        return ([], listed) if frozen else (listed, [])
    else:
        listed = _leaf(store, group, path)
        kept = 0 if frozen else len(listed) - _UNTRAINED.get(kind, 0)
        return listed[:kept], listed[kept:]
    for part, below, name in parts:
        more, fixed = _split(store, below, part, name)
        trained += more
        rest += fixed
    return ([], trained + rest) if frozen else (trained, rest)


def _cells(config: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the entries of an RNN's stacked cells, empty for a single cell."""
    cell = config.get("cell")
    inner = cell.get("config") if isinstance(cell, Mapping) else None
    cells = inner.get("cells") if isinstance(inner, Mapping) else None
    return cells if isinstance(cells, list) and all(map(_is_entry, cells)) else []


def _is_entry(value: Any) -> bool:
    return layer_tree.is_entry(value) and isinstance(value["config"], Mapping)


def _head(store: Store, group: Any, name: str, path: str) -> Named:
    """Return the weights of a projection of a MultiHeadAttention.

    tf_keras has an underscore before its name.
    """
    below = next((_child(store, group, key) for key in (name, f"_{name}") if key in group), None)
    return [] if below is None else own(store, below, f"{path}/{name}")


def _child(store: Store, group: Any, name: str) -> Any:
    return hdf5.descend(store, group, name) if name in group else None


def _leaf(store: Store, group: Any, path: str) -> Named:
    """Return the single list of weights of a layer, direct or in a cell.

    Raises UnsupportedModelError where there are several lists.
    """
    listed: dict[str, Named] = {}
    _collect(store, group, path, listed, set())
    if len(listed) > 1:
        reason = f"{path}: expected a layer with one list of weights, found {len(listed)}"
        raise UnsupportedModelError(store.path, [f"{reason}; save the model as .h5"])
    return next(iter(listed.values()), [])
