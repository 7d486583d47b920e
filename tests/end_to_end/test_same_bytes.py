"""The same input gives the same bytes: twice in a process, and in another one whose sets hash otherwise."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.samples import FIXTURES, ROOT, Fixture, fixture

import cudnn_convert

SAMPLES = ("1.15.5-twins_training", "1.15.5-gru_bi", "1.15.5-v3_lengths_time_major", "1.12.3-while_refine")
FORMATS = ("savedmodel", "checkpoint", "frozen", "onnx", "tflite")
JOBS = (*((name, form) for name in SAMPLES for form in FORMATS), ("1.15.5-while_nested", "onnx"))
#: What sorts sets of names: in most of these orders tf2onnx takes an outer loop before the one in it.
SEEDS = "01234567"


def digests(out: Path) -> dict[str, str]:
    files = sorted(path for path in out.rglob("*") if path.is_file())
    assert files
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all artifacts, `NAME/FORMAT`, from a process of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    convert_elsewhere(folder, [(fixture(name), form) for name, form in JOBS], seed="77")
    return folder


def convert_elsewhere(folder: Path, jobs: Iterable[tuple[Fixture, str]], *, seed: str) -> None:
    """Converts to `folder/NAME/FORMAT` in a process whose hashes have that seed."""
    described = [
        (str(sample.prefix), f"{sample.name}/{form}", sample.options | {"format": form})
        for sample, form in jobs
    ]
    program = (
        "import json, sys, pathlib, cudnn_convert\n"
        "for source, out, options in json.loads(sys.argv[1]):\n"
        "    pathlib.Path(out).parent.mkdir(exist_ok=True)\n"
        "    cudnn_convert.convert(source, out, verify=False, **options)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(described)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "form"), JOBS)
@pytest.mark.xdist_group("same-bytes")
def test_same_bytes(tmp_path: Path, elsewhere: Path, name: str, form: str) -> None:
    prefix = fixture(name).prefix
    for number in "12":
        cudnn_convert.convert(prefix, tmp_path / number, format=form, verify=False)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")
    assert digests(elsewhere / name / form) == digests(tmp_path / "1")


def has_control_flow(sample: Fixture) -> bool:
    """Whether a graph in the fixture's folder has branches or loops: a Switch begins both."""
    return any(b"Switch" in path.read_bytes() for path in sample.folder.rglob("*") if path.is_file())


@pytest.mark.slow("cudnn_convert/lower/onnx")
def test_no_seed_of_hashes_matters_to_control_flow(tmp_path: Path) -> None:
    samples = [sample for sample in FIXTURES if sample.fits("onnx") and has_control_flow(sample)]
    assert len(samples) > 10
    found = {}
    for seed in SEEDS:
        (tmp_path / seed).mkdir()
        convert_elsewhere(tmp_path / seed, [(sample, "onnx") for sample in samples], seed=seed)
        found[seed] = digests(tmp_path / seed)
        assert found[seed] == found["0"], seed


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
