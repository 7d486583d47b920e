"""Progress is heard by whoever listens, and seen at a terminal alone, where it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.samples import GRAPHLESS, ROOT, fixture

import cudnn_convert
from cudnn_convert import context
from cudnn_convert.cli import child_process
from cudnn_convert.model import InMemory

SOURCE = next(found for found in GRAPHLESS if "weights_lstm" in found.name).prefix
TWO = fixture("1.15.5-keras_lstm")
FLAGS = ("--format", "onnx", "--mode", "lstm")
#: The command line where a line of progress comes after `{after}` seconds, and a plan after `{before}`.
PROGRAM = """
import os, signal, time
from cudnn_convert import cli, pipeline
from cudnn_convert.cli import terminal
terminal._AFTER = {after}
planned = pipeline.make_plan
def slowly(*given):
    made = planned(*given)
    {before}
    return made
pipeline.make_plan = slowly
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in the background
cli.run()
"""
STEPS = ("reading", "planning", "digesting", "lowering", "writing", "verifying")
HIDDEN_CURSOR, CLEAR_LINE = "\x1b[?25l", "\x1b[2K"

at_a_terminal = pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no pty")


def test_every_step_is_heard_and_how_much_of_it_is_done(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    with context.listen(lambda step, done=0, total=0: heard.append((step, done, total))):
        cudnn_convert.convert(SOURCE, tmp_path / "out.onnx", format="onnx", mode="lstm")
    steps = [step for step, _, _ in heard]
    assert tuple(dict.fromkeys(steps)) == STEPS
    assert steps == sorted(steps, key=STEPS.index)
    size = (tmp_path / "out.onnx").stat().st_size
    written = [done for step, done, _ in heard if step == "writing"]
    assert written == sorted(written)
    assert written[-1] == size
    assert {total for step, _, total in heard if step == "writing"} == {size}
    # Two feeds, each for the source, the artifact and the source in float32; then recurrences by themselves.
    calls = [(done, total) for step, done, total in heard if step == "verifying" and total]
    assert [*dict.fromkeys(calls)] == [(done, 8) for done in range(7)]
    assert calls == sorted(calls)


@pytest.mark.first("model.onnx")
@pytest.mark.parametrize("out", ["saved", "model.onnx"])
def test_lowering_is_heard_as_bytes_of_weights(tmp_path: Path, out: str) -> None:
    """Of two recurrences: parameters of four gates, each with two biases."""
    heard: list[tuple[int, int]] = []

    def listen(step: str, done: int = 0, total: int = 0) -> None:
        heard.extend([(done, total)] if step == "lowering" and total else [])

    cudnn_convert.convert(TWO.prefix, tmp_path / out, verify=False, progress=listen)
    sizes = [
        4 * each["directions"] * 4 * each["units"] * (each["input_size"] + each["units"] + 2)
        for each in TWO.case["recurrences"]
    ]
    assert len(sizes) == 2
    assert len(set(sizes)) == 2
    done = [sum(sizes[:number]) for number in range(3)]
    assert [*dict.fromkeys(heard)] == [(each, sum(sizes)) for each in done if out == "saved" or each]


def test_the_files_of_a_bundle_are_heard_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cudnn_convert.targets import bundle  # TensorFlow writes them

    monkeypatch.setattr(bundle, "_SHARD", 100)
    sizes = {"a": 30, "b": 35, "c": 40}
    tensors = {name: InMemory(np.zeros(size, np.float32)) for name, size in sizes.items()}
    heard: list[tuple[str, int, int]] = []
    with context.listen(lambda step, done=0, total=0: heard.append((step, done, total))):
        bundle.write_bundle(tmp_path / "variables", tensors)
    assert heard == [("writing", done, 420) for done in (0, 120, 260, 420)]


def test_whoever_stops_listening_hears_no_more(tmp_path: Path) -> None:
    heard: list[str] = []
    with context.listen(lambda step, done=0, total=0: heard.append(step)):
        context.report_progress("one")
    context.report_progress("two")
    cudnn_convert.convert(SOURCE, tmp_path / "out.onnx", format="onnx", mode="lstm")
    assert heard == ["one"]


def seen(
    out: Path, *words: str, after: float = 0.0, before: str = "pass", term: str = "xterm"
) -> tuple[int, str]:
    """The exit code of a conversion, and all that a terminal got on stderr."""
    import pty  # not everywhere

    mine, its = pty.openpty()
    program = PROGRAM.format(after=after, before=before)
    call = [sys.executable, "-c", program, SOURCE, str(out), *FLAGS, *words]
    environment = {**os.environ, "TERM": term, "COLUMNS": "200"}
    child = subprocess.Popen(call, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=its)
    os.close(its)
    found = bytearray()
    try:
        while more := os.read(mine, 1 << 16):
            found += more
    except OSError:  # how Linux says that nobody writes any more
        pass
    finally:
        os.close(mine)
    return child.wait(), found.decode()


@at_a_terminal
def test_a_terminal_sees_a_line_that_goes(tmp_path: Path) -> None:
    code, text = seen(tmp_path / "out", before="time.sleep(0.5)")
    assert code == 0
    line, _, after = text.rpartition(CLEAR_LINE)
    assert re.search(r"planning.* \S*\d:\d\d:\d\d", line)
    assert HIDDEN_CURSOR not in text
    assert not any(step in after for step in STEPS)
    assert f"{tmp_path / 'out'}: recurrences alone, proven equal to " in after.splitlines()[-1]


@at_a_terminal
def test_amounts_are_shown_where_they_are_known(tmp_path: Path) -> None:
    told = (
        "from cudnn_convert import context; "
        "context.report_progress('writing', 1500, 4000000); time.sleep(0.5); "
        "context.report_progress('verifying', 3, 8); time.sleep(0.5)"
    )
    text = seen(tmp_path / "out", "--no-verify", before=told)[1]
    assert re.search("writing .*1.5 kB of 4.0 MB", text)
    assert re.search(r"verifying .* 3 of 8 \S*0:00:0[1-3] left", text)


@pytest.mark.slow()
@at_a_terminal
@pytest.mark.parametrize(
    ("words", "after", "term"),
    [((), 60.0, "xterm"), (("--quiet",), 0.0, "xterm"), ((), 0.0, "dumb")],
    ids=["soon done", "quiet", "without control sequences"],
)
def test_a_terminal_sees_no_line(tmp_path: Path, words: tuple[str, ...], after: float, term: str) -> None:
    code, text = seen(
        tmp_path / "out", "--no-verify", *words, after=after, term=term, before="time.sleep(0.3)"
    )
    assert code == 0
    assert not any(step in text for step in STEPS)
    assert CLEAR_LINE not in text
    assert bool(text) == ("--quiet" not in words)


@at_a_terminal
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGKILL, 1, "native code ended with SIGKILL"), (signal.SIGINT, 130, "")],
    ids=["killed", "interrupted"],
)
def test_a_child_that_ends_early_leaves_no_line(tmp_path: Path, number: int, code: int, said: str) -> None:
    stop = f"time.sleep(0.5); os.kill(os.getpid(), {int(number)})"
    ended, text = seen(tmp_path / "out", before=stop)
    assert ended == code
    line, _, after = text.rpartition(CLEAR_LINE)
    assert "planning" in line
    assert HIDDEN_CURSOR not in text
    assert said in after
    assert not any(step in after for step in STEPS)
    assert not (tmp_path / "out").exists()


def test_a_file_gets_no_progress(tmp_path: Path) -> None:
    program = PROGRAM.format(after=0.0, before="time.sleep(0.3)")
    call = [sys.executable, "-c", program, SOURCE, str(tmp_path / "out"), *FLAGS]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("note: ")
    assert not any(step in done.stderr for step in STEPS)
    assert "\x1b" not in done.stderr
