"""The part of a Keras 3 archive that stands before certain layers, loaded as Keras 3 loads the whole.

Source: keras v3.15 src/saving/saving_lib.py `H5IOStore.make`, which leaves each layer's name in its group;
src/models/functional.py `functional_from_config`.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cudnn_convert.keras import architecture, calls
from cudnn_convert.keras.architecture import Entry


def before(path: Path, layers: Collection[str], custom_objects: Mapping[str, Any]) -> Any:
    """The `keras.Model` before the top-level `layers` of an archive, `calls.ends` of them its outputs.

    Raises ValueError where nothing stands before them, and what Keras raises for what does not load.
    """
    import keras

    with zipfile.ZipFile(path) as archive:
        config, weights = json.loads(archive.read("config.json")), archive.read("model.weights.h5")
    part = calls.before(_outputs_counted(config, -1), layers)
    if part is None:
        raise ValueError("nothing stands before the first layer of a class that is not here")
    told = _outputs_counted(part, 1)
    model = keras.saving.deserialize_keras_object(told, custom_objects=dict(custom_objects), safe_mode=True)
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "part.weights.h5"
        model.save_weights(saved)
        _copy(weights, saved)
        model.load_weights(saved)
    return model


def _outputs_counted(model: Entry, more: int) -> Entry:
    """A functional model whose outputs count the calls of models in it as the arguments do (-1), or again as
    Keras 3 does (1): from one more, for the call that made such a model.
    """
    config = model["config"]
    if "output_layers" not in config:
        return model
    entries = architecture.layers(model)
    inner = {architecture.name(entry) for entry in entries if entry["class_name"] == "Functional"}

    def counted(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: counted(one) for key, one in value.items()}
        if isinstance(value, list) and value and isinstance(value[0], str):
            return [value[0], value[1] + (more if value[0] in inner else 0), value[2]]
        return [counted(one) for one in value]

    return {**model, "config": {**config, "output_layers": counted(config["output_layers"])}}


def _copy(weights: bytes, path: Path) -> None:
    """The weights of an archive into a file of some of its layers, by names: their groups have others."""
    import h5py

    with h5py.File(io.BytesIO(weights)) as whole, h5py.File(path, "r+") as part:
        groups = {group["vars"].attrs["name"]: group for group in whole["layers"].values()}
        for place, group in list(part["layers"].items()):
            name = group["vars"].attrs["name"]
            if name in groups:  # an input need not have a group
                del part["layers"][place]
                whole.copy(groups[name], part["layers"], place)
