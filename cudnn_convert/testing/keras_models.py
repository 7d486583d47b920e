"""Models of Keras 3 and tf_keras, in memory and in their files."""

from __future__ import annotations

import importlib
import json
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudnn_convert.errors import UsageError
from cudnn_convert.testing.sides import Feed, Side


def of_model(model: Any, name: str) -> Side:
    """The model in inference, by the names of its inputs and outputs if it has any."""
    known = getattr(model, "output_names", None)
    taken = tuple(found.name for found in getattr(model, "inputs", None) or ()) or None
    # Keras 3 calls several outputs of a layer alike.
    names = known if known and len(set(known)) == len(known) else None

    def run(feed: Feed) -> Any:
        given: Any = [feed[key] for key in taken] if taken else dict(feed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a list stands for a dict
            found = model(*feed.values(), training=False) if len(feed) == 1 else model(given, training=False)
        values = found if isinstance(found, list | tuple) else [found]
        if isinstance(found, Mapping) or not names or len(values) != len(names):
            return found
        return dict(zip(names, values, strict=True))

    return Side("Keras", name, run, taken)


def of_archive(path: Path) -> Side:
    """A `.keras` archive, by the Keras that wrote it, which runs no code of the file's."""
    with zipfile.ZipFile(path) as archive:
        version = json.loads(archive.read("metadata.json"))["keras_version"]
    return _loaded(path, version)


def of_hdf5(path: Path, where: str) -> Side:
    """A model in HDF5. Raises UsageError where tf_keras would run code that lies in the file."""
    import h5py

    from cudnn_convert.keras import vetting

    with h5py.File(path) as file:
        config = json.loads(file.attrs.get("model_config", "null"))
        version = str(file.attrs.get("keras_version", "2."))
    if config is None:
        cure = "load them into it, and give the model"
        raise UsageError(f"{where} {path}: expected a model, found weights alone; {cure}")
    running = [found for found in vetting.refused(config) if found.runs]
    if running or (_is_old(version) and not vetting.is_plain(config)):
        found = ", ".join(f"layer {one.layer}, {one.class_name}" for one in running) or "modules of others"
        raise UsageError(f"{where} {path}: expected layers, found code: {found}; load it, and give the model")
    return _loaded(path, version)


def _is_old(version: str) -> bool:
    return not version.startswith("3.")


def _loaded(path: Path, version: str) -> Side:
    library = importlib.import_module("tf_keras" if _is_old(version) else "keras")
    return of_model(library.models.load_model(path, compile=False), str(path))
