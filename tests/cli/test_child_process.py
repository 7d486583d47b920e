"""A command's work is done in a child: crashes, limits, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command_line import ends_within
from support.samples import ROOT

from cudnn_convert.cli import child_process

#: A command whose work is `{work}`, run as the console script runs it; `out` is what it would write.
PROGRAM = """
import argparse, os, signal, sys, tempfile, time
from pathlib import Path
from cudnn_convert import cli
from cudnn_convert import storage
out = Path(sys.argv[2])
def work():
{work}
    return 0
def stand_in(words, within):
    return within(work, argparse.Namespace(source="SOURCE", out=str(out), limit=words[1:]))
cli.SUBCOMMANDS["formats"] = stand_in
cli.run()
"""
#: Work that stands in the middle of writing to `out`, says so, and goes on as it is told.
WRITING = """
target = storage.Destination(out, lambda path: True, [("the source", Path("source"))], force=True)
with storage.atomic_output(target, folder=True) as fresh:
    (fresh / storage.RECORD).write_text("{{}}")
    print("ready", os.getpid(), flush=True)
    {then}
"""
#: As native code is that never returns: no handler of Python's interrupts it.
DEAF = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})"
#: Tests may be run in the background, where a shell has SIGINT ignored and nohup SIGHUP.
HEARING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""


def program(work: str) -> str:
    return PROGRAM.format(work="\n".join(f"    {line}" for line in work.strip().splitlines()))


def done(work: str, out: Path, *limits: str) -> tuple[int, str, str]:
    """What `work` ended with: the exit code, stdout and stderr."""
    call = [sys.executable, "-c", program(work), "formats", str(out), *limits]
    ended = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr


def beside(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir())


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_an_answer_passes_through(tmp_path: Path) -> None:
    work = "print('answer'); print('words', file=sys.stderr); os.write(2, b'native'); sys.exit(3)"
    assert done(work, tmp_path / "out") == (3, "answer\n", "words\n")


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_a_library_that_crashed_is_named(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "fragile"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("import os\ndef parse():\n    os.abort()\n")
    work = f"sys.path.insert(0, {str(library.parent)!r})\nimport fragile\nfragile.parse()"
    code, _, said = done(work, tmp_path / "out")
    what = "native code ended with SIGABRT in fragile"
    assert said == (
        f"cudnn-convert: SOURCE: {what}; the file is damaged, or memory ran out (--limit memory=NUMBER)\n"
    )
    assert code == 1


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
@pytest.mark.parametrize("code", [0, 1])
def test_a_library_that_ends_the_process_is_no_answer(tmp_path: Path, code: int) -> None:
    what = f"native code ended with exit code {code}"
    cure = "the file is damaged, or memory ran out (--limit memory=NUMBER)"
    found = done(f"import ctypes; ctypes.CDLL(None).exit({code})", tmp_path / "out")
    assert found == (1, "", f"cudnn-convert: SOURCE: {what}; {cure}\n")


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_crash_leaves_what_was_there(tmp_path: Path, end: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "conversion.json").write_text("old")
    assert done(WRITING.format(then=end), tmp_path / "out")[0] == 1
    assert beside(tmp_path / "out") == ["out"]
    assert (tmp_path / "out" / "conversion.json").read_text() == "old"


@pytest.mark.first("of native code")
@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
@pytest.mark.parametrize(
    "work", ["while True: pass", f"{DEAF}; time.sleep(60)"], ids=["of Python", "of native code"]
)
def test_a_loop_without_end_is_ended(tmp_path: Path, work: str) -> None:
    began = time.monotonic()
    code, _, said = done(WRITING.format(then=work), tmp_path / "out", "seconds=1")
    what = "it ran longer than the limit of 1 seconds; raise it with --limit seconds=NUMBER"
    assert (code, said) == (1, f"cudnn-convert: SOURCE: {what}\n")
    assert time.monotonic() - began < 30
    assert beside(tmp_path / "out") == []


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count the same memory")
def test_memory_has_an_end(tmp_path: Path) -> None:
    code, _, said = done(WRITING.format(then="held = bytearray(600 << 20)"), tmp_path / "out", "memory=512M")
    assert (code, said) == (1, "cudnn-convert: memory ran out; raise it with --limit memory=NUMBER\n")
    assert beside(tmp_path / "out") == []
    assert done("held = bytearray(600 << 20)", tmp_path / "out", "memory=2G")[0] == 0


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_a_file_has_an_end(tmp_path: Path) -> None:
    write = '(fresh / "large").write_bytes(bytes(1 << 20))'
    code, _, said = done(WRITING.format(then=write), tmp_path / "out", "file=64K")
    assert (code, said) == (4, f"cudnn-convert: {tmp_path / 'out'}: cannot write: File too large\n")
    assert beside(tmp_path / "out") == []


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_no_core_is_written(tmp_path: Path) -> None:
    work = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    assert done(work, tmp_path / "out")[1] == "0\n"


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_scratch_files_of_a_crash_are_gone(tmp_path: Path) -> None:
    work = "made = tempfile.mkdtemp(); print(made, os.environ['TMPDIR'], flush=True); os.abort()"
    made, folder = done(work, tmp_path / "out")[1].split()
    assert Path(made).parent == Path(folder)
    assert not Path(folder).exists()


#: A child on a machine that is busy gets longer to clean up than users wait.
PATIENT = """
from cudnn_convert import process
from cudnn_convert.cli import child_process
process.GRACE = 60
"""


def begun(work: str, out: Path, first: str = "") -> tuple[subprocess.Popen[str], int]:
    """A run that has said it is ready, and the process id of its child; `first` comes before all."""
    text = f"{HEARING}{PATIENT}{first}\n{program(work)}"
    call = [sys.executable, "-c", text, "formats", str(out)]
    run = subprocess.Popen(call, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    word, child = run.stdout.readline().split()
    assert word == "ready"
    return run, int(child)


#: The command, interrupted when it imports the module `{module}`.
STARTING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(name, path, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)
import cudnn_convert_command
sys.meta_path.insert(0, Interrupting)
sys.argv[1:] = ["formats"]
cudnn_convert_command.run()
"""


@pytest.mark.parametrize(
    "module", ["cudnn_convert", "cudnn_convert.errors", "argparse", "cudnn_convert.cli.streams"]
)
def test_an_interruption_ends_the_start_without_a_word(module: str) -> None:
    call = [sys.executable, "-c", STARTING.format(module=module)]
    ended = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_start_that_is_not_interrupted_goes_on() -> None:
    call = [sys.executable, "-c", STARTING.format(module="no such module")]
    ended = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("savedmodel")


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_stop_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    run, _ = begun(WRITING.format(then="time.sleep(60)"), tmp_path / "out")
    run.send_signal(number)
    assert (run.wait(90), run.communicate()[1]) == (130, "")
    assert beside(tmp_path / "out") == []


#: Each removal of a folder, the child's and the parent's, takes a moment and is told of.
SLOW = """
import shutil, time
remove = shutil.rmtree
def slowly(*given, **named):
    print("removing", flush=True)
    time.sleep(0.5)
    remove(*given, **named)
shutil.rmtree = slowly
"""


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_a_run_that_is_told_to_stop_again_goes_on_stopping(tmp_path: Path) -> None:
    run, _ = begun(WRITING.format(then="time.sleep(60)"), tmp_path / "out", first=SLOW)
    run.send_signal(signal.SIGINT)
    assert run.stdout is not None
    for _ in range(2):
        assert run.stdout.readline() == "removing\n"
        run.send_signal(signal.SIGINT)
    assert (run.wait(90), run.communicate()[1]) == (130, "")
    assert beside(tmp_path / "out") == []


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_a_library_that_makes_an_error_of_an_interruption_is_interrupted(tmp_path: Path) -> None:
    work = """
try:
    print("ready", os.getpid(), flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    raise ImportError("could not import datetime")
"""
    run, _ = begun(work, tmp_path / "out")
    run.send_signal(signal.SIGINT)
    assert (run.wait(90), run.communicate()[1]) == (130, "")


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_temporary_folders_of_a_run_that_was_killed_are_removed_by_the_next(tmp_path: Path) -> None:
    common = tmp_path / "common"
    common.mkdir()
    first = f"import tempfile; tempfile.tempdir = {str(common)!r}"
    work = (
        "Path(tempfile.mkdtemp(), 'large').touch(); print('ready', os.getpid(), flush=True); time.sleep(60)"
    )
    run, child = begun(work, tmp_path / "out", first=first)
    alive, _ = begun(work, tmp_path / "out", first=first)
    run.kill()
    run.communicate()
    assert ends_within(10, child)
    assert len([*common.rglob("large")]) == 2
    (common / ".cudnn_convert.somebody.tmp").symlink_to(tmp_path)  # what others lay out is left alone
    third, _ = begun("print('ready', os.getpid(), flush=True)", tmp_path / "out", first=first)
    assert third.wait(30) == 0
    third.communicate()
    assert len([*common.rglob("large")]) == 1  # of the run that is alive
    alive.terminate()
    assert alive.wait(30) == 130
    alive.communicate()
    assert [path.name for path in common.iterdir()] == [".cudnn_convert.somebody.tmp"]


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
@pytest.mark.parametrize("end", ["os.abort()", "time.sleep(60)"])
def test_the_file_that_a_crash_was_on_is_named(tmp_path: Path, end: str) -> None:
    text = f"from cudnn_convert import context\nwith context.on('their\x1bs.onnx'): {end}"
    _, _, said = done(text, tmp_path / "out", "seconds=1")
    ends = ("native code ended with ", "it ran longer than ")
    # A conversion made that file itself.
    assert said.startswith(tuple(f"cudnn-convert: SOURCE: {how}" for how in ends))
    reads = program(text).replace("out=str(out), ", "")
    call = [sys.executable, "-c", reads, "formats", str(tmp_path / "out"), "seconds=1"]
    ended = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr.startswith(tuple(f"cudnn-convert: their\\x1bs.onnx: {how}" for how in ends))


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_native_code_that_does_not_stop_is_ended(tmp_path: Path) -> None:
    run, _ = begun(DEAF + WRITING.format(then="time.sleep(60)"), tmp_path / "out", first="process.GRACE = 1")
    run.send_signal(signal.SIGINT)
    assert run.wait(90) == 130
    assert run.communicate()[1] == "cudnn-convert: SOURCE: stopped in the middle of native code\n"
    assert beside(tmp_path / "out") == []


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child")
def test_a_child_does_not_outlive_its_parent(tmp_path: Path) -> None:
    run, child = begun(WRITING.format(then="time.sleep(60)"), tmp_path / "out")
    run.kill()
    run.communicate()
    assert ends_within(10, child)
    assert len(beside(tmp_path / "out")) == 1  # which the next run removes
    assert done(WRITING.format(then=""), tmp_path / "out")[0] == 0
    assert beside(tmp_path / "out") == ["out"]


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_signals_that_nohup_ignores_stay_ignored(tmp_path: Path) -> None:
    work = "signal.raise_signal(signal.SIGHUP); os.kill(os.getppid(), signal.SIGHUP); time.sleep(0.2)"
    text = f"import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n{program(work)}"
    call = [sys.executable, "-c", text, "formats", str(tmp_path / "out")]
    ended = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(not child_process.can_fork(), reason="a system without fork has no child")
def test_where_no_process_can_be_started_the_environment_is_named(tmp_path: Path) -> None:
    """As under `ulimit -u`."""
    refuses = "raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))"
    begin = program("pass").replace("cli.run()", f"def fork():\n    {refuses}\nos.fork = fork\ncli.run()")
    call = [sys.executable, "-c", f"import errno{begin}", "formats", str(tmp_path / "out")]
    ended = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    cure = "end other processes, or raise the limit of `ulimit -u`"
    reason = f"the system: cannot start a process: Resource temporarily unavailable; {cure}"
    assert (ended.returncode, ended.stdout) == (4, "")
    assert ended.stderr == f"cudnn-convert: {reason}\n"
    assert beside(tmp_path / "out") == []


def test_where_nothing_can_be_made_the_environment_is_named(tmp_path: Path) -> None:
    text = f"import tempfile\ntempfile.tempdir = {str(tmp_path / 'none')!r}\n{program('pass')}"
    call = [sys.executable, "-c", text, "formats", str(tmp_path / "out")]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "none")}
    ended = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 4
    assert ended.stderr == f"cudnn-convert: {tmp_path / 'none'}: cannot write: No such file or directory\n"
