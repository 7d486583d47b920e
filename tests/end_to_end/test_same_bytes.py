"""The same input gives the same bytes: twice in a process, and in another one whose sets hash otherwise."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.samples import FIXTURES, ROOT, Fixture, fixture
from support.tiers import tier

import cudnn_convert

SAMPLES = ("1.15.5-twins_training", "1.15.5-gru_bi", "1.15.5-v3_lengths_time_major", "1.12.3-while_refine")
FORMATS = ("savedmodel", "checkpoint", "frozen", "onnx", "tflite")
JOBS = (*((name, form) for name in SAMPLES for form in FORMATS), ("1.15.5-while_nested", "onnx"))
#: A sample of each format, and a format of each sample.
SOME = (("1.15.5-gru_bi", "onnx"), ("1.15.5-v3_lengths_time_major", "savedmodel"))
#: Converts what its lines of input say; answers each with a line.
PROGRAM = """
import json, pathlib, sys, cudnn_convert
for line in sys.stdin:
    source, out, options = json.loads(line)
    pathlib.Path(out).parent.mkdir(parents=True, exist_ok=True)
    cudnn_convert.convert(source, out, verify=False, **options)
    print("done", flush=True)
"""
#: What sorts sets of names: in most of these orders tf2onnx takes an outer loop before the one in it.
SEEDS = "01234567"


def digests(out: Path) -> dict[str, str]:
    files = sorted(path for path in out.rglob("*") if path.is_file())
    assert files
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class Elsewhere:
    """A process of its own, whose hashes have a seed; it converts to `folder/NAME/FORMAT`."""

    def __init__(self, folder: Path, seed: str) -> None:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        self._folder, self._errors = folder, (folder / "stderr.txt").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment, text=True,
        )  # fmt: skip

    def convert(self, sample: Fixture, form: str) -> Path:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out = self._folder / sample.name / form
        job = [str(sample.prefix), str(out), sample.options | {"format": form}]
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n", Path(self._errors.name).read_text()
        return out

    def close(self) -> None:
        self._process.communicate()
        self._errors.close()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    process = Elsewhere(tmp_path_factory.mktemp("elsewhere"), "77")
    yield process
    process.close()


@pytest.mark.parametrize(
    ("name", "form"), [pytest.param(*job, marks=tier(first=job in SOME)) for job in JOBS]
)
def test_same_bytes(tmp_path: Path, name: str, form: str) -> None:
    for number in "12":
        cudnn_convert.convert(fixture(name).prefix, tmp_path / number, format=form, verify=False)
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


@pytest.mark.every
@pytest.mark.parametrize(("name", "form"), JOBS)
@pytest.mark.xdist_group("same-bytes")
def test_same_bytes_in_another_process(tmp_path: Path, elsewhere: Elsewhere, name: str, form: str) -> None:
    """One of them each time: tests/cli/test_cli.py, where the command line makes it."""
    cudnn_convert.convert(fixture(name).prefix, tmp_path / "here", format=form, verify=False)
    assert digests(elsewhere.convert(fixture(name), form)) == digests(tmp_path / "here")


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
        process = Elsewhere(tmp_path / seed, seed)
        found[seed] = [digests(process.convert(sample, "onnx")) for sample in samples]
        process.close()
        assert found[seed] == found["0"], seed
