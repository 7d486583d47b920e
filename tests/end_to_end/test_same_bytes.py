"""The same input gives the same bytes: twice in a process, and in another one whose sets hash otherwise."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT, fixture

import cudnn_convert

SAMPLES = ("1.15.5-twins_training", "1.15.5-gru_bi", "1.15.5-v3_lengths_time_major", "1.12.3-while_refine")


def digests(out: Path) -> dict[str, str]:
    files = sorted(path for path in out.rglob("*") if path.is_file())
    assert files
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("form", ["savedmodel", "checkpoint", "frozen", "onnx", "tflite"])
@pytest.mark.parametrize("name", SAMPLES)
def test_same_bytes(tmp_path: Path, name: str, form: str) -> None:
    prefix = fixture(name).prefix
    for number in "12":
        cudnn_convert.convert(prefix, tmp_path / number, format=form, verify=False)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    command = [sys.executable, "-m", "cudnn_convert", str(prefix), str(tmp_path / "3"), "--format", form]
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--no-verify", "--quiet"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "3") == digests(tmp_path / "1")
