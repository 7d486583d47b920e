"""What an HDF5 file of Keras must have, and how its damage is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.read import read
from cudnn_convert.read.hdf5 import Store


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (ValueError("bad heap\nmore of it"), "bad heap"),
        (KeyError("weights"), "weights"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_the_first_line_of_a_failure_is_told(tmp_path: Path, cause: Exception, told: str) -> None:
    with h5py.File(tmp_path / "model.h5", "w"):
        pass
    with pytest.raises(ReadError) as caught, Store(tmp_path / "model.h5").open():
        raise cause
    assert str(caught.value) == (
        f"{tmp_path / 'model.h5'}: HDF5: expected a readable HDF5 file, found {told}; copy it again"
    )


def no_class(file: Any) -> None:
    file.attrs["model_config"] = json.dumps({"name": "m", "config": {}})


def no_names(file: Any) -> None:
    for number in range(7):
        file.create_group(f"model_weights/layer{number}")
    file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"layers": []}})


def no_weight_names(file: Any) -> None:
    file.create_group("dense").create_dataset("kernel", data=np.zeros((2, 3), np.float32))
    file.attrs["layer_names"] = [b"dense"]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (no_class, "model_config: expected class_name and config, found name, config"),
        (
            no_names,
            "HDF5 /model_weights: expected layer_names, as Keras writes, "
            "found layer0, layer1, layer2, layer3, layer4",
        ),
        (no_weight_names, "HDF5 /dense: expected a group with weight_names, found none"),
    ],
)
def test_what_keras_always_writes(tmp_path: Path, make: Callable[[Any], None], told: str) -> None:
    path = tmp_path / "model.h5"
    with h5py.File(path, "w") as file:
        make(file)
    with pytest.raises(ReadError) as caught:
        read(path)
    assert str(caught.value).partition(";")[0] == f"{path}: {told}"
