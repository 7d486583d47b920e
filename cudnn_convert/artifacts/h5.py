"""Opens an HDF5 file through tf_keras, up to the first refused layer."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cudnn_convert.artifacts import keras, runners
from cudnn_convert.formats import KERAS_PROVENANCE
from cudnn_convert.keras.config.classes import Vouched
from cudnn_convert.model import Array, Part
from cudnn_convert.private import keras_private


def provenance(path: Path) -> dict[str, Any] | None:
    """Return the provenance in an attribute of the file."""
    from cudnn_convert.read import hdf5

    with hdf5.Store(path).check().open() as file:
        text = file.attrs.get(KERAS_PROVENANCE)
    return None if text is None else runners.parse_provenance(path, text)


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Raise ReadError if weights lie outside the file."""
    from cudnn_convert.read import hdf5

    if not trust:
        hdf5.require_whole(hdf5.Store(path))


def open_parts(path: Path, parts: Sequence[Part], vouched: Vouched) -> list[runners.Runner]:
    """Open each part as a separate model."""
    return [_open(path, part, vouched) for part in parts]


def interfaces(path: Path, vouched: Vouched) -> list[runners.Interface]:
    """Return the model's inputs and outputs by name."""
    check(path, (), vouched.trust)
    model = _load(path, vouched)
    return [keras.interface(model, model.input_names)]


def _open(path: Path, part: Part, vouched: Vouched) -> runners.Runner:
    model = _load(path, vouched)
    return keras.as_layers(path, model, model.input_names, part)


def _load(path: Path, vouched: Vouched) -> Any:
    import h5py
    import tf_keras

    from cudnn_convert.keras.config import classes, layer_tree, validate, values
    from cudnn_convert.read import hdf5

    with h5py.File(path) as file:
        config, version = json.loads(file.attrs["model_config"]), hdf5.text(file.attrs["keras_version"])
    foreign = validate.foreign(config, vouched, version)
    brought = classes.by_all_names(vouched.tf_keras, config)
    if foreign or not validate.is_plain(config):
        kept = layer_tree.model_until(config, foreign) if foreign else config
        legacy = values.to_legacy_form(kept or config, kept=brought)
        with keras_private.load_code(allowed=vouched.trust):
            model = tf_keras.models.model_from_config(legacy, brought)
        model.load_weights(path, by_name=True)
        return model
    return tf_keras.models.load_model(path, brought, compile=False)


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the weights by path."""
    from cudnn_convert.read import hdf5

    hdf5.require_whole(hdf5.Store(path))
    yield from keras.datasets(path)
