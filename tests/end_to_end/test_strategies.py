"""`models/*/train.py --strategy`: losses fall on several devices, and what they leave is converted."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.samples import ROOT

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError

#: Recurrences by mode, layers, directions and units, as the scripts have them.
MODELS: dict[str, list[tuple[str, int, int, int]]] = {
    "crf_tagger": [("lstm", 1, 2, 24)],
    "char_lm": [("lstm", 1, 1, 40)] * 2,
    "gru_speech": [("gru", 2, 1, 24)],
    "ocr_crnn": [("lstm", 2, 2, 16)],
    "seq2seq": [("lstm", 1, 1, 40)] * 2,
}
STEPS = 10  # the last has as long lines as the first
#: Seconds, of which a run takes some 15 of one core.
LIMIT = 300
pytestmark = [pytest.mark.every, pytest.mark.xdist_group("strategies")]


def start(name: str, folder: Path, *flags: str, **environment: str) -> subprocess.Popen[str]:
    script = str(ROOT / "models" / name / "train.py")
    return subprocess.Popen(
        [sys.executable, script, str(folder), f"--steps={STEPS}", *flags],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def losses(process: subprocess.Popen[str]) -> list[float]:
    """The losses that a script printed, one for each step. It is killed where it takes too long."""
    try:
        told, complaints = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 0, complaints[-3000:]
    found = [float(value) for value in re.findall(r"^step \d+: loss (\S+)$", told, re.MULTILINE)]
    assert len(found) == STEPS
    return found


def vectors(prefix: Path, part: str) -> list[Any]:
    """The 1-D tensors of an object-based checkpoint whose key has a part, in the order of their sizes."""
    reader = tf.train.load_checkpoint(str(prefix))
    shapes = reader.get_variable_to_shape_map()
    keys = [key for key, shape in shapes.items() if part in key and len(shape) == 1]
    return sorted((reader.get_tensor(key) for key in keys), key=lambda value: (value.size, value.sum()))


@pytest.mark.parametrize("name", MODELS)
def test_a_mirrored_drop_in_trains_and_is_converted(tmp_path: Path, name: str) -> None:
    """Its SavedModel, which has cuDNN's ops, and the blobs of its checkpoint."""
    told = losses(start(name, tmp_path, "--strategy=mirrored", "--use_gpu", "--profile=4:6"))
    assert told[-1] < told[0]
    assert list(tmp_path.glob("profile/plugins/profile/*/*.xplane.pb"))
    report = cudnn_convert.convert(tmp_path / "export", tmp_path / "out")
    assert report.verification is not None and report.verification.passed
    sizes = {(r.mode, r.layers, r.directions, r.units) for r in report.recurrences}
    assert sizes == set(MODELS[name])
    trained = vectors(tmp_path / "ckpt-1", "/opaque_kernel/")
    exported = vectors(tmp_path / "export" / "variables" / "variables", "weights/")
    assert len(trained) == len(MODELS[name])
    for blob in trained:
        assert any(np.array_equal(blob, other) for other in exported)
    mode, layers, directions, units = MODELS[name][0]
    report = cudnn_convert.convert(
        tmp_path / "ckpt-1", tmp_path / "alone.npz",
        mode=mode, layers=layers, directions=directions, units=units,
    )  # fmt: skip
    assert report.verification is not None and report.verification.passed
    with np.load(tmp_path / "alone.npz") as stored:
        found = [stored[key].ravel() for key in stored.files if key != "cudnn_convert"]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.sort(np.concatenate(trained)))


@pytest.mark.parametrize("name", MODELS)
def test_mirrored_keras_layers_train_and_are_converted(tmp_path: Path, name: str) -> None:
    """The SavedModel becomes ONNX; of the checkpoint is said that its layers run as they are."""
    told = losses(start(name, tmp_path, "--strategy=mirrored"))
    assert told[-1] < told[0]
    report = cudnn_convert.convert(tmp_path / "export", tmp_path / "out.onnx")
    assert report.verification is not None and report.verification.passed
    with pytest.raises(UnsupportedModelError, match="no cuDNN recurrence in it"):
        cudnn_convert.convert(tmp_path / "ckpt-1", tmp_path / "out")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.parametrize("flags", [(), ("--use_gpu",)], ids=["keras", "drop_in"])
def test_two_workers_train_as_two_devices_of_one_do(tmp_path: Path, flags: tuple[str, ...]) -> None:
    mirrored = losses(start("gru_speech", tmp_path / "mirrored", "--strategy=mirrored", *flags))
    workers = [f"localhost:{port}" for port in free_ports(2)]
    processes = []
    for number in range(2):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": number}}
        processes.append(
            start(
                "gru_speech", tmp_path / "both", "--strategy=multi_worker", *flags, TF_CONFIG=json.dumps(task)
            )
        )
    try:
        both = [losses(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
    np.testing.assert_array_equal(*both)
    np.testing.assert_allclose(both[0], mirrored, rtol=2e-5)
    for folder in (tmp_path / "both", tmp_path / "both" / "worker-1"):
        assert (folder / "ckpt-1.index").exists()
    report = cudnn_convert.convert(tmp_path / "both" / "export", tmp_path / "out.onnx")
    assert report.verification is not None and report.verification.passed


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "no --strategy: expected TensorFlow 1, found 2."),
        (("--strategy=mirrored", "--profile=5"), "expected FROM:TO, such as 100:110, found 5"),
        (("--strategy=mirrored", "--profile=5:11"), "--profile: expected steps below 10, found 10"),
        (("--strategy=multi_worker",), "expected the workers in TF_CONFIG, found none"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_written(
    tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    process = start("gru_speech", tmp_path, *flags)
    _, complaints = process.communicate(timeout=LIMIT)
    assert process.returncode != 0
    assert message in complaints
    assert not list(tmp_path.iterdir())
