"""Reads a Keras model's config from JSON or YAML, and pairs weights with layers.

Source: keras 2.2.4 engine/network.py to_json, to_yaml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cudnn_convert.errors import ReadError, name_access
from cudnn_convert.keras.config import layer_tree, validate
from cudnn_convert.model import Architecture, Tensor
from cudnn_convert.read import hdf5, yaml_config

Weights = Mapping[str, tuple[tuple[str, Tensor], ...]]
#: The version of a config that names modules, and no version: JSON of Keras 3.
#: Source: keras v3.15.0 src/models/model.py to_json; tf_keras v2.21.0 src/engine/training.py _updated_config.
_KERAS_3: Final = "3.0"
#: Layers that never have weights.
_BARE: Final = frozenset(
    "Activation Add Average Concatenate Cropping1D Cropping2D Dot Dropout ELU Flatten GaussianDropout "
    "GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D GlobalMaxPooling1D GlobalMaxPooling2D "
    "InputLayer Lambda LeakyReLU Masking MaxPooling1D MaxPooling2D AveragePooling1D AveragePooling2D Maximum "
    "Merge Multiply Permute ReLU RepeatVector Reshape Softmax SpatialDropout1D SpatialDropout2D Subtract "
    "TFOpLambda TensorFlowOpLayer UpSampling1D UpSampling2D ZeroPadding1D ZeroPadding2D".split()
)


def is_config(path: Path) -> bool:
    """Return True if a file is JSON or YAML of a model. Raises AccessError."""
    with name_access(path):
        content = path.read_bytes()
    return yaml_config.is_yaml(content) or (content.lstrip()[:1] == b"{" and b'"class_name"' in content)


def read_config(path: Path) -> Mapping[str, Any]:
    """Return the config in a file. Raises ReadError, AccessError, MissingDependencyError.

    MissingDependencyError is for YAML where PyYAML is missing.
    """
    with name_access(path):
        content = path.read_bytes()
    if yaml_config.is_yaml(content):
        config = yaml_config.parse_yaml(path, content)
    else:
        config = hdf5.parse_json(path, "model.json", content)
    if "class_name" not in config or "config" not in config:
        expected = "class_name and config, as model.to_json() writes them"
        raise ReadError(path, "model.json", expected=expected, found="a file without them")
    validate.require(path, "model.json", config)
    return config


def describe(
    config: Mapping[str, Any], weights: Weights, *, weights_version: str = "", weights_backend: str = ""
) -> Architecture:
    """Return a model of a config and of weights by layer.

    The weights are of the Keras and the backend that wrote them, whatever the config says. Those of Keras 1
    name no backend. Source: keras 2.2.4 engine/saving.py load_weights_from_hdf5_group.
    """
    version, backend = (str(config.get(name, "")) for name in ("keras_version", "backend"))
    if not version and "module" in config:
        version = _KERAS_3
    if weights_backend or weights_version.partition(".")[0] == "1":
        backend = weights_backend
    return Architecture(
        config, weights, keras_version=version, backend=backend, weights_version=weights_version
    )


def pair_by_order(weights: Weights, config: Mapping[str, Any]) -> tuple[Weights, tuple[str, ...]]:
    """Return the weights by the names of the config's layers.

    A note comes with them where their order tells the layers. Keras pairs layers that have weights by order,
    whatever they are called: counters of another process, as in lstm_3, do not matter. Source: keras 2.2.4
    engine/saving.py load_weights_from_hdf5_group.
    """
    names = layer_tree.names(config) if layer_tree.is_model(config) else []
    if {*weights} <= {*names}:
        return weights, ()
    able = list_able(config)
    if len(able) != len(weights):
        return weights, ()  # refused by name, where the layers are built
    pairs = [f"{stored} is {name}" for stored, name in zip(weights, able, strict=True) if stored != name]
    note = f"weights are paired with layers by order, as Keras loads them: {', '.join(pairs)}"
    return dict(zip(able, weights.values(), strict=True)), (note,)


def list_able(config: Mapping[str, Any]) -> list[str]:
    """List the top-level layers able to have weights, in order."""
    entries = layer_tree.layer_entries(config) if layer_tree.is_model(config) else []
    return [layer_tree.layer_name(entry) for entry in entries if not _is_bare(entry)]


def _is_bare(entry: Mapping[str, Any]) -> bool:
    """Return True if a layer is weightless, or a wrapper of a weightless layer."""
    inner = layer_tree.inside(entry)
    return all(map(_is_bare, inner)) if inner else str(entry["class_name"]) in _BARE
