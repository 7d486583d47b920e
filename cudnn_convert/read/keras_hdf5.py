"""Reads Keras HDF5 files: whole models, or weights alone.

A whole model has the root attribute `model_config` and its weights in the group `model_weights`. A weights
file has the content of that group at its root, or from Keras 2.13 on the groups of an archive's weights.
The file's name does not matter. No layer is built: the config is parsed as JSON, and weights are found by
the lists `layer_names` and `weight_names`.
Source: keras 2.2.4 engine/saving.py, tf_keras v2.21.0 src/saving/legacy/hdf5_format.py.

In a weights file without the layers' config, recurrences are recognised by the shapes of their weights.
Source: as `dialects.keras`, whose rule of recognition holds here too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import ReadError, UnsupportedModelError
from cudnn_convert.keras.config import layer_tree, validate
from cudnn_convert.model import Architecture, CanonicalParameters, Graphless, KerasFile, Model, Tensor
from cudnn_convert.read import architecture_file, hdf5, keras_archive
from cudnn_convert.read.dialects import keras
from cudnn_convert.read.dialects.keras import CudnnLayer
from cudnn_convert.read.hdf5 import Store

KIND: Final = "Keras HDF5 file"
TAGS: Final = False
_WEIGHTS: Final = "model_weights"
_OPTIMIZER: Final = "optimizer_weights"
#: The group of weights outside all layers, which only subclassed models have.
_TOP_LEVEL: Final = "top_level_model_weights"
_NOT_EQUAL: Final = {"module": "keras.src.ops.numpy", "registered_name": "NotEqual"}
#: The version of weights that do not name theirs. Source: keras 2.2.4 engine/saving.py
#: load_weights_from_hdf5_group.
_FIRST_VERSION: Final = "1"
_ATTRIBUTES: Final = frozenset({"model_config", "training_config", "keras_version", "backend"})

Weights = Mapping[str, tuple[tuple[str, Tensor], ...]]


def recognise(path: Path) -> Path | None:
    """Return the path if the content is HDF5, with any suffix.

    Returns None otherwise.
    """
    return path if hdf5.is_hdf5(path) else None


def read(path: Path) -> Model:
    """Read a whole model as its `architecture`, or a weights file as recurrences.

    Raises ReadError where the file is damaged or another program's.
    """
    store = Store(path).check()
    with store.open() as file:
        if "model_config" in file.attrs:
            architecture = _architecture(store, file)
            return Model(path, KIND, None, {}, architecture=architecture, keras=KerasFile.HDF5)
        if keras_archive.present(file):
            return model(path, KIND, keras_archive.lists(store, file))
        return model(path, KIND, _weights(store, file))


def with_architecture(model: Model, path: Path) -> Model:
    """Add the layers in the `model.json` or `model.yaml` at `path` to a weights file.

    Weights of other names are those of the layers in order, as Keras loads them. Raises ReadError where
    either file is malformed, AccessError, MissingDependencyError for YAML without PyYAML.
    """
    config = architecture_file.read_config(path)
    store, version, backend = Store(model.path), "", ""
    with store.open() as file:
        if keras_archive.present(file):
            weights: Weights = keras_archive.read_weights(store, file, config)
        else:
            holder = _holder(store, file)
            weights = _weights(store, holder)
            version, backend = (_origin(file, holder, key) for key in ("keras_version", "backend"))
            version = version or _FIRST_VERSION
            config = _name_models(holder, config, str(config.get("keras_version", "")))
    weights, notes = architecture_file.pair_by_order(weights, config)
    architecture = architecture_file.describe(
        config, weights, weights_version=version, weights_backend=backend
    )
    return Model(model.path, KIND, None, {}, architecture=architecture, keras=KerasFile.HDF5, notes=notes)


def _name_models(holder: Any, config: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Name the Sequential models in a config of Keras 2; Keras 1 lists the layers of all of them."""
    is_keras2 = version.partition(".")[0] == "2" and layer_tree.is_model(config)
    return layer_tree.name_models(config, hdf5.names(holder, "layer_names") or ()) if is_keras2 else config


def _holder(store: Store, file: Any) -> Any:
    return hdf5.descend(store, file, _WEIGHTS) if _WEIGHTS in file else file


def _origin(file: Any, holder: Any, key: str) -> str:
    """Return an attribute on the writer of a file, "" if missing."""
    return hdf5.text(file.attrs.get(key, holder.attrs.get(key, "")))


def _architecture(store: Store, file: Any) -> Architecture:
    config = hdf5.parse_json(store.path, "model_config", file.attrs["model_config"])
    if "class_name" not in config or "config" not in config:
        raise ReadError(store.path, "model_config", expected="class_name and config", found=", ".join(config))
    validate.require(store.path, "model_config", config)
    holder, stored = _holder(store, file), file.attrs.get("training_config")
    version = _origin(file, holder, "keras_version")
    if version.partition(".")[0] == "3":
        config = layer_tree.map_entries(config, _with_module_of_mask)
    config = _name_models(holder, config, version)
    return Architecture(
        config,
        _weights(store, holder),
        keras_version=version,
        backend=_origin(file, holder, "backend"),
        training=None if stored is None else hdf5.parse_json(store.path, "training_config", stored),
        optimizer=_list_weights(store, file, _OPTIMIZER) if _OPTIMIZER in file else (),
        extras=dict(_extras(store, file)),
        attributes={name: value for name, value in file.attrs.items() if name not in _ATTRIBUTES},
    )


def _with_module_of_mask(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Give the mask op of an Embedding the module found in archives.

    Keras 3 leaves modules out of HDF5 files, and itself finds no layer of that name.
    Source: keras v3.15.0 src/layers/core/embedding.py compute_mask, src/legacy/saving/legacy_h5_format.py.
    """
    is_mask = entry["class_name"] == "NotEqual" and "module" not in entry
    return {**entry, **(_NOT_EQUAL if is_mask else {})}


def _weights(store: Store, holder: Any) -> Weights:
    layers = hdf5.names(holder, "layer_names")
    if layers is None:
        actual = ", ".join(list(holder)[:5]) or "nothing"
        expected = "layer_names, as Keras writes them"
        raise ReadError(store.path, f"{store.where} {holder.name}", expected=expected, found=actual)
    if _TOP_LEVEL in holder and _list_weights(store, holder, _TOP_LEVEL):
        reason = "model: expected weights in layers alone, found some of the model itself"
        raise UnsupportedModelError(store.path, [f"{reason}; save the model with those in a layer"])
    listed = {name: _list_weights(store, holder, name) for name in layers}
    return {name: weights for name, weights in listed.items() if weights}


def _list_weights(store: Store, holder: Any, name: str) -> tuple[tuple[str, Tensor], ...]:
    """Return the weights of a group, in the order of the `weight_names`."""
    group = hdf5.descend(store, holder, name) if name in holder else None
    listed = None if group is None else hdf5.names(group, "weight_names")
    if listed is None:
        where = f"{store.where} {holder.name}/{name}".replace("//", "/")
        raise ReadError(store.path, where, expected="a group with weight_names", found="none")
    return tuple((weight, hdf5.tensor(store, group, weight)) for weight in listed)


def _extras(store: Store, file: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the datasets beside the model, by path, for an uninterpreted copy."""
    own = (dataset for name, dataset in hdf5.children(file) if name in (_WEIGHTS, _OPTIMIZER))
    return _arrays(store, file, "", {hdf5.address(file), *map(hdf5.address, own)})


def _arrays(store: Store, group: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield the datasets below a group by path, each once despite several links."""
    import h5py

    for name, item in hdf5.children(group):
        if hdf5.address(item) in seen:
            continue
        seen.add(hdf5.address(item))
        if isinstance(item, h5py.Group):
            yield from _arrays(store, item, f"{path}{name}/", seen)
        elif isinstance(item, h5py.Dataset) and item.shape is not None and np.dtype(item.dtype).kind != "O":
            yield f"{path}{name}", hdf5.tensor(store, group, name)


_NAMES: Final = ("kernel", "recurrent_kernel", "bias")
_WAY: Final = re.compile(r"(?:^|/)(forward|backward)(?=[_/])")

_CURE: Final = "give the JSON of the model with --architecture"

Listed = Sequence[tuple[str, Tensor]]


def model(path: Path, kind: str, lists: Mapping[str, Listed]) -> Model:
    """Return a graphless model: a recurrence for each CuDNN layer in `lists`.

    `lists` has the weights of each layer by layer name. Three consecutive weights with the shapes of a CuDNN
    layer are one: no other Keras layer has a bias of 8 or 6 times the units.
    """
    variables = {
        f"{layer}/{_bare(name)}": tensor for layer, listed in lists.items() for name, tensor in listed
    }
    canonical = tuple(_canonical(lists))
    plain = keras.describe_layers(variables, canonical)
    return Model(
        path,
        kind,
        None,
        variables,
        canonical,
        plain=plain,
        keras=KerasFile.HDF5,
        graphless=Graphless(f"{path.name} has no layers, only their weights", _CURE),
    )


def _bare(name: str) -> str:
    return re.sub(r":\d+$", "", name)


def _canonical(lists: Mapping[str, Listed]) -> Iterator[CanonicalParameters]:
    for layer, listed in lists.items():
        layers = list(triples(listed))
        if _is_pair([name for name, _ in layers]):
            yield keras.parameters(f"{layer}/", [direction for _, direction in layers])
        elif len(layers) == 1:
            yield keras.parameters(f"{layer}/", [layers[0][1]])
        else:
            for name, alone in layers:
                yield keras.parameters(f"{layer}/{_bare(name).removesuffix('kernel')}", [alone])


def _is_pair(names: Sequence[str]) -> bool:
    ways = [_WAY.search(name) for name in names]
    return [direction and direction[1] for direction in ways] == ["forward", "backward"]


def triples(listed: Listed) -> Iterator[tuple[str, CudnnLayer]]:
    """Yield the CuDNN layers in a list of weights, each with the kernel's name."""
    for three in zip(listed, listed[1:], listed[2:], strict=False):
        layer = keras.recognise_layer(dict(zip(_NAMES, (tensor for _, tensor in three), strict=True)))
        if layer is not None:
            yield three[0][0], layer
