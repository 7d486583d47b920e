"""Stdout and stderr that nobody reads, that are full, or that are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without /dev/full")

#: A command that does its work as a conversion does: in a child, which says something on either stream.
PROGRAM = """
import argparse, sys
from pathlib import Path
from cudnn_convert import cli
def work():
    print("begun", file=sys.stderr)
    Path(sys.argv[2]).write_text("done")
    print("answer" * int(sys.argv[3]))
    return 0
cli.SUBCOMMANDS["formats"] = lambda words, within: within(
    work, argparse.Namespace(source="SOURCE", out=None, limit=())
)
cli.run()
"""
FULL = "cudnn-convert: stdout: cannot write: No space left on device\n"
#: Within Python's buffer, so that it is written at the end, and past it.
COUNTS = pytest.mark.parametrize("count", [1, 100_000])
WORDS = (["-c", "from cudnn_convert import cli; cli.run()", "formats"], ["-m", "cudnn_convert", "--help-all"])


@contextmanager
def closed_pipe() -> Iterator[int]:
    """The end of a pipe that nobody reads."""
    end, begin = os.pipe()
    os.close(end)
    yield begin
    os.close(begin)


@contextmanager
def full() -> Iterator[int]:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


def ended(words: list[str], **streams: Any) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of Python with these words."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    done = subprocess.run([sys.executable, *words], cwd=ROOT, text=True, check=False, timeout=60, **pipes)
    return done.returncode, done.stdout or "", done.stderr or ""


def worked(out: Path, count: int, **streams: Any) -> tuple[int, str, str]:
    answer = ended(["-c", PROGRAM, "formats", str(out), str(count)], **streams)
    assert out.read_text() == "done"
    return answer


@COUNTS
def test_a_reader_that_has_gone_ends_a_command_without_a_word(tmp_path: Path, count: int) -> None:
    with closed_pipe() as pipe:
        code, _, said = worked(tmp_path / "out", count, stdout=pipe)
    assert (code, said) == (141, "begun\n")


@COUNTS
def test_a_full_disk_at_stdout_is_one_line(tmp_path: Path, count: int) -> None:
    with full() as disk:
        code, _, said = worked(tmp_path / "out", count, stdout=disk)
    assert (code, said) == (4, f"begun\n{FULL}")


@pytest.mark.parametrize("stream", [closed_pipe, full])
def test_what_cannot_be_said_on_stderr_changes_nothing(tmp_path: Path, stream: Any) -> None:
    with stream() as descriptor:
        assert worked(tmp_path / "out", 1, stderr=descriptor)[:2] == (0, "answer\n")


@pytest.mark.first("2")
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stream_that_is_not_there_is_no_failure(tmp_path: Path, number: int) -> None:
    """The first file that the command opens must not take its place."""
    closing = f"import os; os.close({number}); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    words = ["-c", f"import sys; {closing}", "-c", PROGRAM, "formats", str(tmp_path / "out"), "1"]
    code, told, said = ended(words)
    assert code == 0
    assert told == ("" if number == 1 else "answer\n")
    assert said == ("" if number == 2 else "begun\n")


@pytest.mark.parametrize("words", WORDS)
def test_what_needs_no_work_ends_alike(words: list[str]) -> None:
    with closed_pipe() as pipe:
        assert ended(words, stdout=pipe) == (141, "", "")
    with full() as disk:
        assert ended(words, stdout=disk) == (4, "", FULL)
