"""The proof of a correct artifact passes with any seed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.samples import ROOT


@pytest.mark.every
@pytest.mark.parametrize("form", ["savedmodel", "onnx", "tflite", "keras"])
def test_no_correct_artifact_is_refused(form: str) -> None:
    """Three minutes of pairs of sample and seed, drawn from those whose names have a GRU."""
    command = [sys.executable, str(ROOT / "scripts" / "prove_seeds.py"), "--only", "gru", "--formats", form]
    done = subprocess.run([*command, "--seconds", "180"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "verified" in done.stdout
