"""Writes a Keras model in a single HDF5 file, as Keras 2 and tf_keras do.

The bytes are deterministic: h5py stores no times by default.

Source: tf_keras v2.21.0 src/saving/legacy/hdf5_format.py `save_model_to_hdf5`, `save_weights_to_hdf5_group`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import KERAS_PROVENANCE
from cudnn_convert.keras.config import classes, layer_tree, values
from cudnn_convert.model import Architecture, Tensor
from cudnn_convert.options import Options
from cudnn_convert.plan import Plan
from cudnn_convert.targets import layers

#: HDF5 stores an attribute in its object's header of at most 64 KiB.
_LIMIT: Final = 64512
#: Version for a config without one, which loaders would take for Keras 1's. It has all classes of Keras 2.
_VERSION: Final = "2.13.0"


def prepare(plan: Plan, options: Options) -> Plan:
    """Rewrite the layers, with notes on left-out training state.

    Raises UnsupportedModelError.
    """
    architecture = plan.model.layers
    if architecture.is_keras3:
        other = layers.choose_other(plan.model, "keras", options)
        actual = f"found one of Keras {architecture.keras_version}; choose --format {other}"
        raise UnsupportedModelError(
            plan.model.path, [f"model: expected a model of Keras 2 for tf_keras, {actual}"]
        )
    plan, rewritten = layers.rewrite(plan, options)
    own = (*rewritten.notes, *notes(rewritten.architecture))
    return replace(plan, target_model=rewritten, notes=(*plan.notes, *own))


def write_artifact(plan: Plan, path: Path, options: Options, *, provenance: str) -> tuple[str, ...]:
    """Write a plan's Keras model, with CPU layers, to the file `path`."""
    write(path, plan.target_model.architecture, provenance=provenance)
    return ()


def notes(model: Architecture) -> tuple[str, ...]:
    """Return notes on dropped training state, and on code kept in the file."""
    compiled, notes_of_training = values.keep_training_config(model.training)
    lost = (
        ("optimizer state dropped with its training config",) if model.optimizer and compiled is None else ()
    )
    return (*notes_of_training, *lost, *classes.notes(model.config, safe_mode=False))


def write(path: Path, model: Architecture, *, provenance: str) -> None:
    """Write `model` to the file `path`, reading weight by weight."""
    import h5py

    compiled, _ = values.keep_training_config(model.training)
    version, backend = model.keras_version or _VERSION, model.backend or "tensorflow"
    with h5py.File(path, "w") as file:
        for name, value in model.attributes.items():
            file.attrs[name] = value
        _put_text(file, "keras_version", version)
        _put_text(file, "backend", backend)
        _put_text(
            file, "model_config", json.dumps(layer_tree.map_objects(model.config, values.without_optional))
        )
        _put_text(file, KERAS_PROVENANCE, provenance)
        if compiled is not None:
            _put_text(file, "training_config", json.dumps(compiled))
        weights = file.create_group("model_weights")
        _put_text(weights, "keras_version", version)
        _put_text(weights, "backend", backend)
        names = _layer_names(model)
        _put_names(weights, "layer_names", names)
        for name in names:  # an op's layer may be called as the folder of others: `clip`, `clip/Minimum`
            _put(weights.require_group(name), model.weights.get(name, ()))
        if model.optimizer and compiled is not None:
            _put(file.create_group("optimizer_weights"), model.optimizer)
        for name, tensor in model.extras.items():
            file.create_dataset(name, data=tensor.read())


def _put_text(group: Any, attribute: str, text: str) -> None:
    """Write a text as bytes, for decoding by older Keras.

    Source: keras 2.2.4 engine/saving.py load_model.
    """
    group.attrs[attribute] = text.encode("utf-8")


def _layer_names(model: Architecture) -> list[str]:
    """Return all layer names in config order, adapted to the order of the weights.

    Loaders pair layers that have weights by order alone.
    """
    names = [layer_tree.layer_name(entry) for entry in layer_tree.layer_entries(model.config)]
    weighted = list(model.weights)
    if [name for name in names if name in model.weights] == weighted:
        return list(dict.fromkeys(names))
    return weighted + [name for name in dict.fromkeys(names) if name not in model.weights]


def _put(group: Any, listed: Sequence[tuple[str, Tensor]]) -> None:
    _put_names(group, "weight_names", [name for name, _ in listed])
    for name, tensor in listed:
        group.create_dataset(name, data=tensor.read())


def _put_names(group: Any, attribute: str, names: Sequence[str]) -> None:
    """Write a list of names, split over attributes if long (keras 2.2.4 engine/saving.py)."""
    stored = np.array([name.encode("utf-8") for name in names] or [], dtype="S" if names else np.float64)
    parts = [stored]
    while any(part.nbytes > _LIMIT for part in parts):
        parts = np.array_split(stored, len(parts) + 1)
    for position, part in enumerate(parts):
        group.attrs[attribute if len(parts) == 1 else f"{attribute}{position}"] = part
