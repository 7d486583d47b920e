"""The same input gives the same bytes: twice in a process, and in another one whose sets hash otherwise."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from samples import ROOT, fixture

import cudnn_convert

SAMPLES = ("1.15.5-twins_training", "1.15.5-gru_bi", "1.15.5-v3_lengths_time_major", "1.12.3-while_refine")
FORMATS = ("savedmodel", "checkpoint", "frozen", "onnx", "tflite")


def digests(out: Path) -> dict[str, str]:
    files = sorted(path for path in out.rglob("*") if path.is_file())
    assert files
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all artifacts, `NAME/FORMAT`, from a process of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    jobs = [(str(fixture(name).prefix), f"{name}/{form}", form) for name in SAMPLES for form in FORMATS]
    program = (
        "import json, sys, pathlib, cudnn_convert\n"
        "for source, out, form in json.loads(sys.argv[1]):\n"
        "    pathlib.Path(out).parent.mkdir(exist_ok=True)\n"
        "    cudnn_convert.convert(source, out, format=form, verify=False)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(jobs)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.xdist_group("same-bytes")
def test_same_bytes(tmp_path: Path, elsewhere: Path, name: str, form: str) -> None:
    prefix = fixture(name).prefix
    for number in "12":
        cudnn_convert.convert(prefix, tmp_path / number, format=form, verify=False)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    assert digests(elsewhere / name / form) == digests(tmp_path / "1")


def test_the_command_line_writes_what_the_library_writes(tmp_path: Path) -> None:
    prefix = fixture(SAMPLES[0]).prefix
    cudnn_convert.convert(prefix, tmp_path / "1", verify=False)
    command = [sys.executable, "-m", "cudnn_convert", str(prefix), str(tmp_path / "2")]
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--no-verify", "--quiet"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "2") == digests(tmp_path / "1")
