"""Conversions of two models to one OUT, and what stands there afterwards, told by its bytes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODELS: Final = Path(__file__).resolve().parents[2] / "models"
NAMES: Final = ("crf_tagger", "gru_speech")


def digest(path: Path) -> str:
    """Of every name and byte at a path and below it; empty where there is nothing."""
    if not path.exists():
        return ""
    found = hashlib.sha256()
    for one in sorted([path, *path.rglob("*")]):
        found.update(str(one.relative_to(path)).encode() + b"\0")
        found.update(one.read_bytes() if one.is_file() else b"/")
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Job:
    """The conversion of a source to a format."""

    source: Path
    format: str

    def start(self, out: Path, *flags: str) -> subprocess.Popen[str]:
        """The conversion to `out`, begun, in a process group of its own."""
        words = [str(self.source), str(out), "--format", self.format, "--quiet", *flags]
        call = [sys.executable, "-m", "cudnn_convert", *words]
        return subprocess.Popen(
            call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, out: Path, *flags: str) -> tuple[int, list[str]]:
        """The exit code of the whole conversion, and its lines on stderr."""
        running = self.start(out, *flags)
        _, said = running.communicate()
        return running.returncode, said.splitlines()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs that write to one OUT, and the digest of what each writes: the same bytes every time."""

    format: str
    jobs: tuple[Job, Job]
    written: tuple[str, str]

    def stands(self, out: Path) -> str:
        """`whole`, `torn` or `missing`."""
        found = digest(out)
        return "whole" if found in self.written else "torn" if found else "missing"


def pair(folder: Path, form: str) -> Pair:
    """The jobs of a format, their sources in `folder`: without their graphs for ONNX, which is quick."""
    jobs = []
    for name in NAMES:
        source = folder / f"{name} {form}" / "model.ckpt"
        source.parent.mkdir()
        for file in (MODELS / name).glob("model.ckpt.*"):
            if form != "onnx" or file.suffix != ".meta":
                shutil.copy(file, source.parent)
        jobs.append(Job(source, form))
    written = []
    for number, job in enumerate(jobs):
        out = folder / f"{form} {number}"
        code, said = job.run(out)
        if code:
            raise SystemExit(f"{job.source}: {said}")
        written.append(digest(out))
    return Pair(form, (jobs[0], jobs[1]), (written[0], written[1]))
