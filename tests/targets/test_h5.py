"""Keras's HDF5 files: groups of layers whose names have parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cudnn_convert.model import Architecture, InMemory
from cudnn_convert.targets import h5


def layer(name: str) -> dict[str, Any]:
    return {"class_name": "Dense", "config": {"name": name}}


@pytest.mark.parametrize("names", [("clip/Minimum", "clip"), ("clip", "clip/Minimum")])
def test_a_layer_may_be_called_as_the_folder_of_another(tmp_path: Path, names: tuple[str, str]) -> None:
    """TensorFlow names the ops of one call so, and Keras a layer after each op."""
    values = {name: np.full([k + 2], k + 1.5, np.float32) for k, name in enumerate(names)}
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [layer(name) for name in names]}}
    weights = {name: (("own/bias:0", InMemory(value)),) for name, value in values.items()}
    h5.write(tmp_path / "m.h5", Architecture(config, weights), provenance="{}")
    with h5py.File(tmp_path / "m.h5") as file:
        group = file["model_weights"]
        assert [name.decode() for name in group.attrs["layer_names"]] == [*names]
        for name, value in values.items():
            assert [weight.decode() for weight in group[name].attrs["weight_names"]] == ["own/bias:0"]
            np.testing.assert_array_equal(group[name]["own/bias:0"], value)


def test_texts_are_bytes_for_keras_of_tensorflow_1(tmp_path: Path) -> None:
    """keras 2.2.4 engine/saving.py decodes them; h5py 2 reads a text of UTF-8 decoded already."""
    config = {"class_name": "Sequential", "config": {"name": "m\u00e9", "layers": [layer("d")]}}
    h5.write(tmp_path / "m.h5", Architecture(config, {}, keras_version="2.2.4-tf"), provenance="{}")
    with h5py.File(tmp_path / "m.h5") as file:
        kinds = {name: h5py.check_string_dtype(file.attrs.get_id(name).dtype) for name in file.attrs}
        assert {kind.encoding for kind in kinds.values() if kind} == {"ascii"} and None not in kinds.values()
        assert json.loads(file.attrs["model_config"])["config"]["name"] == "m\u00e9"
