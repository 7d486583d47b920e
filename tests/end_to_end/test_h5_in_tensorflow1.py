"""`--format h5` on old servers: what TensorFlow 1.15 made of it (scripts/check_tf1_keras.py)."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.keras_samples import KERAS_FIXTURES, keras_fixture
from support.samples import ROOT
from support.tiers import tier

import cudnn_convert

RECORD = json.loads((ROOT / "tests" / "data" / "tf1_keras.json").read_text())
#: What tf_keras writes today names classes and arguments that TensorFlow 1.15 has not.
TODAY = "tf_keras-2.21.0"
FIRST = {"tf.keras-1.15.5-stateful_gru"}


def digest(path: Path) -> str:
    """A checksum of the config and of every weight, as the script computes it."""
    weights: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        config = json.dumps(json.loads(file.attrs["model_config"]), sort_keys=True)
        file["model_weights"].visititems(
            lambda name, item: weights.update({name: item[()]} if isinstance(item, h5py.Dataset) else {})
        )
    found = zlib.crc32(config.encode())
    for name, value in sorted(weights.items()):
        found = zlib.crc32(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes(), found)
    return f"{found:08x}"


@pytest.mark.parametrize("name", [pytest.param(name, marks=tier(first=name in FIRST)) for name in RECORD])
def test_a_file_is_the_one_that_tensorflow_1_was_asked_of(name: str, tmp_path: Path) -> None:
    """Another one is to be asked of again: `TF1_PYTHON scripts/check_tf1_keras.py PYTHON`."""
    sample = keras_fixture(name)
    out = tmp_path / "out.h5"
    cudnn_convert.convert(
        sample.path, out, architecture=sample.architecture, verify=False, force_convert=True
    )
    assert digest(out) == RECORD[name]["values"]


def test_every_file_of_an_old_keras_opens_there_and_answers_alike() -> None:
    """Within 1e-5, or 1e-12 of doubles, as the script demands; the class of a user's own is not there."""
    opened = {name for name, said in RECORD.items() if "worst" in said}
    old = {
        sample.name
        for sample in KERAS_FIXTURES
        if not sample.name.startswith(TODAY)
        and not any(word in sample.name for word in ("lambda", "custom_layer"))
    }
    assert old == opened
    refused = {said["refused"] for said in RECORD.values() if "worst" not in said}
    assert refused == {
        "Unknown layer: Scale",
        "Unknown layer: Functional",
        "('Unrecognized keyword arguments:', dict_keys(['optional']))",
    }
