"""`cudnn-convert map`: read again from both sides by NumPy alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from samples import GRAPHLESS, fixture
from sources import command

import cudnn_convert

SOURCE = fixture("1.15.5-lstm_bi_2l_states").prefix
FIELDS = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")


def taken(arrays: Mapping[str, np.ndarray], place: dict[str, str]) -> np.ndarray:
    """What a place says, as Python slices it."""
    parts = [part.split(":") for part in place["part"].strip("[]").split(", ")]
    ends = [[int(end) if end else None for end in part] for part in parts]
    return arrays[place["tensor"]][tuple(part[0] if len(part) == 1 else slice(*part) for part in ends)]


def mapped(*words: object) -> dict:
    done = command("map", *words, "--json")
    assert done.code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_every_gate_is_where_the_map_says(tmp_path: Path) -> None:
    """The gates of `load`, found in the checkpoint's tensors and in those of the file by the map's slices."""
    cudnn_convert.convert(SOURCE, tmp_path / "w.npz", format="npz")
    (one,) = cudnn_convert.load(SOURCE).recurrences
    found = mapped(SOURCE, tmp_path / "w.npz")
    assert (found["artifact"], found["format"]) == (str(tmp_path / "w.npz"), "npz")
    (rows,) = found["weights"]["gates"].values()
    assert len(rows) == 2 * 2 * 4 * len(FIELDS)
    reader, arrays = tf.train.load_checkpoint(str(SOURCE)), np.load(tmp_path / "w.npz")
    for row in rows:
        name = f"layer_{row['layer']}/{row['direction']}/{row['weights']}"
        gate = one.weights[name][one.gates.index(row["gate"])]
        source, target = row["source"], row["target"]
        np.testing.assert_array_equal(taken(arrays, target), gate)
        here = taken({source["tensor"]: reader.get_tensor(source["tensor"])}, source)
        if row["weights"].endswith("kernel"):
            np.testing.assert_array_equal(here.T, gate)
        else:
            both = (one.weights[f"layer_{row['layer']}/{row['direction']}/{field}"] for field in FIELDS[2:])
            total = sum(bias[one.gates.index(row["gate"])] for bias in both)
            np.testing.assert_allclose(here, total, rtol=1e-6)


@pytest.mark.parametrize("form", ["savedmodel", "onnx", "npz"])
def test_without_an_artifact_it_is_what_a_conversion_writes(tmp_path: Path, form: str) -> None:
    cudnn_convert.convert(SOURCE, tmp_path / "out", format=form, verify=False)
    kept, made = mapped(SOURCE, tmp_path / "out"), mapped(SOURCE, "--format", form)
    assert (kept["weights"], made["artifact"]) == (made["weights"], None)
    assert kept["recurrences"] == made["recurrences"]


def test_lines_for_a_person() -> None:
    done = command("map", SOURCE, "--format", "npz")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{SOURCE}: TensorFlow 1 checkpoint, to what --format npz writes"
    assert lines[2] == (
        "gates in the source: input, cell, forget, output; gates in the target: input, forget, cell, output"
    )
    assert lines[3].split() == ["layer", "direction", "gate", "weights", "source", "target"]
    cell = "cudnn_lstm/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/cudnn_compatible_lstm_cell"
    source, target = f"{cell}/kernel[0:7, 0:5]", "cudnn_lstm/CudnnRNN/layer_0/forward/kernel[0, :, :]"
    assert " ".join(lines[4].split()) == f"0 forward input kernel {source} transposed {target} as it is"


def test_weights_without_a_graph(tmp_path: Path) -> None:
    source = next(found for found in GRAPHLESS if "weights_lstm" in found.name).prefix
    found = mapped(source, "--format", "safetensors")
    (rows,) = found["weights"]["gates"].values()
    assert all(row["source"] and row["target"] for row in rows)


def test_an_artifact_has_its_own_format(tmp_path: Path) -> None:
    ended = command("map", SOURCE, tmp_path, "--format", "onnx")
    assert ended.code == 2
    assert ended.stderr == (
        f"cudnn-convert: --format: expected no ARTIFACT beside it, found {tmp_path}; leave one out\n"
    )


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    mapped(SOURCE, "--format", "npz")
    assert not [*tmp_path.iterdir()]
