"""Copies of a sample that a test may damage, the command line in this process, and the end of others."""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from cudnn_convert import cli
from cudnn_convert.cli import commands
from support.samples import fixture

#: The smallest sample with every kind of file and both copies of its weights.
SMALL = "1.15.5-v3_batch_major"
DATA = ".data-00000-of-00001"


def copied(folder: Path, name: str = SMALL) -> Path:
    """The prefix of a copy of a sample in `folder/source`."""
    shutil.copytree(fixture(name).folder, folder / "source")
    return folder / "source" / "model.ckpt"


def beside(prefix: Path, suffix: str) -> Path:
    """A file of a checkpoint, such as `.meta`."""
    return Path(f"{prefix}{suffix}")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything under `folder`: the bytes of files, None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@dataclass(frozen=True)
class Ended:
    """A finished call of the command line."""

    code: int
    stdout: str
    stderr: str


def command(*words: object) -> Ended:
    """`cudnn-convert WORDS`, in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        code = cli.main([str(word) for word in words])
    return Ended(code, stdout.getvalue(), stderr.getvalue())


def parsed(*words: object) -> argparse.Namespace:
    """The flags of `cudnn-convert WORDS`, which must be ones that it takes; nothing is done."""
    found: list[argparse.Namespace] = []

    def within(_: object, flags: argparse.Namespace) -> int:
        commands.read_options(flags)
        found.append(flags)
        return 0

    with redirect_stderr(io.StringIO()) as stderr:
        assert cli.main([str(word) for word in words], within=within) == 0, stderr.getvalue()
    (flags,) = found
    return flags


def refused(folder: Path, *words: object, code: int) -> list[str]:
    """The error lines of a call that must fail with `code` and leave everything under `folder` as it is."""
    before = contents(folder)
    ended = command(*words, "--quiet")
    assert ended.code == code, ended.stderr
    assert ended.stdout == ""
    assert contents(folder) == before
    lines = ended.stderr.splitlines()
    assert lines
    assert all(line.startswith("cudnn-convert: ") for line in lines), ended.stderr
    return [line.removeprefix("cudnn-convert: ") for line in lines]


def make_symlink(out: Path) -> None:
    """OUT as a link that somebody else made."""
    (out.parent / "target").mkdir()
    out.symlink_to("target")


def make_foreign(out: Path) -> None:
    """OUT as a folder with somebody else's file."""
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")


def run_python(program: str, **settings: str) -> str:
    """What a program prints in a process of its own, with `settings` in its environment."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | paths | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def ends_within(seconds: float, process: int) -> bool:
    """Whether a process ends in time; a zombie, whose parent has not waited for it, has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.1)
    return False
