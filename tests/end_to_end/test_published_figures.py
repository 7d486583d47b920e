"""Published sums of real cuDNN's outputs judge the float64 reference and artifacts in every format.

Each network is a frozen graph with one CudnnRNN node; one is a TensorFlow 1 checkpoint, one has CudnnRNNV3.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

import pytest
from support import artifacts
from support.published_artifacts import compare_answers, prepare_job, write_checkpoint, write_frozen
from support.published_networks import NETWORKS, ROWS, get_bound
from support.tiers import tier

from cudnn_convert.model import Mode

#: The formats in which each network is judged: every format has every mode, and both numbers of directions.
FORMS: Final = {
    "sample-relu": ("savedmodel",),
    "sample-tanh": ("frozen", "npz"),
    "sample-lstm": ("frozen", "tflite", "npz"),
    "sample-gru": ("savedmodel", "frozen", "tflite", "npz"),
    "torch-relu": ("frozen", "onnx", "npz"),
    "torch-tanh": ("savedmodel", "onnx", "tflite"),
    "torch-lstm": ("savedmodel", "onnx"),
    "torch-gru": ("onnx",),
    "contrib-lstm": ("onnx",),
    "contrib-gru": ("savedmodel", "onnx"),
    "contrib-tanh": ("onnx",),
    "contrib-relu": ("tflite",),
}
#: Each mode, both numbers of directions, both other sources; what a format computes is judged elsewhere too.
SOME: Final = {
    ("torch-relu", "onnx"),
    ("contrib-lstm", "onnx"),
    ("contrib-gru", "onnx"),
    ("contrib-tanh", "onnx"),
}
#: The sources that are no frozen graph with a CudnnRNN node.
FROM_CHECKPOINT, WITH_V3 = "torch-lstm", "torch-relu"


def test_every_row_names_its_source() -> None:
    assert len(NETWORKS) == len(ROWS) == 12
    for row in ROWS:
        assert all(row["source"][key] for key in ("project", "version", "file"))
        # Each output is in one of the sums.
        assert sorted("+".join(row["sums"]).split("+")) == sorted(NETWORKS[row["name"]].outputs)


def test_every_format_has_every_mode() -> None:
    assert FORMS.keys() == NETWORKS.keys()
    for form in ("savedmodel", "frozen", "onnx", "tflite", "npz"):
        networks = [NETWORKS[name] for name, forms in FORMS.items() if form in forms]
        assert {network.mode for network in networks} == {*Mode}, form
        assert {network.directions for network in networks} == {1, 2}, form


@pytest.mark.parametrize("name", NETWORKS)
def test_the_reference_gives_what_cudnn_gave(name: str) -> None:
    distances = NETWORKS[name].compare_reference()
    assert max(distances.values()) <= get_bound(NETWORKS[name]), distances


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=tier(first=(name, form) in SOME))
        for name, forms in FORMS.items()
        for form in forms
    ],
)
def test_an_artifact_gives_what_cudnn_gave(tmp_path: Path, name: str, form: str) -> None:
    network = NETWORKS[name]
    if name == WITH_V3:
        network = dataclasses.replace(network, op="CudnnRNNV3")
    write = write_checkpoint if name == FROM_CHECKPOINT else write_frozen
    job = prepare_job(network, write(network, tmp_path), form, tmp_path / "out")
    artifacts.answer([job])
    distances = compare_answers(network, job)
    assert max(distances.values()) <= get_bound(network, form), distances
