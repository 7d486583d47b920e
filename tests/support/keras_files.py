"""HDF5 files of Keras's kinds, made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from cudnn_convert.model import Architecture, InMemory

Arrays = Sequence[tuple[str, np.ndarray]]


def cudnn(rng: np.random.Generator, gates: int, units: int, inputs: int, stem: str = "") -> Arrays:
    """The weights of a CuDNNLSTM (4 gates) or a CuDNNGRU (3), all different."""
    return [
        (f"{stem}kernel:0", rng.normal(size=(inputs, gates * units)).astype(np.float32)),
        (f"{stem}recurrent_kernel:0", rng.normal(size=(units, gates * units)).astype(np.float32)),
        (f"{stem}bias:0", rng.normal(size=2 * gates * units).astype(np.float32)),
    ]


def entry(kind: str, name: str, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "config": {"name": name, **config}}


def sequential(*layers: Mapping[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "model", "layers": list(layers)}}


def model(config: Mapping[str, Any], weights: Mapping[str, Arrays], **more: Any) -> Architecture:
    held = {name: tuple((key, InMemory(array)) for key, array in listed) for name, listed in weights.items()}
    return Architecture(config, held, **{"keras_version": "2.2.4", "backend": "tensorflow", **more})


def put(group: h5py.Group, weights: Mapping[str, Arrays]) -> None:
    group.attrs["layer_names"] = np.array([name.encode() for name in weights])
    for name, listed in weights.items():
        below = group.create_group(name)
        below.attrs["weight_names"] = np.array([key.encode() for key, _ in listed])
        for key, array in listed:
            below[key] = array


def whole(path: Path, config: Any, weights: Mapping[str, Arrays], *, as_bytes: bool = False) -> Path:
    text = json.dumps(config)
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = np.bytes_(text.encode()) if as_bytes else text
        file.attrs["keras_version"] = np.bytes_(b"2.2.4") if as_bytes else "2.2.4"
        put(file.create_group("model_weights"), weights)
    return path
