"""What a process of native code is given: threads, and words for its end."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROOT

from cudnn_convert import cli, process
from cudnn_convert.errors import AccessError, CudnnConvertError, ReadError, WriteError, name_access

# Products of a small source take one thread, unless the user says otherwise: said before NumPy is there.

THREADS = "OPENBLAS_NUM_THREADS"
SAID = (THREADS, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
LARGE = 64 << 20


@pytest.fixture
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said how many; what is said in a test is forgotten after it."""
    for name in SAID:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def sized(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.truncate(size)
    return path


@pytest.mark.usefixtures("unsaid")
@pytest.mark.parametrize(("size", "bound"), [(LARGE - 1, True), (LARGE, False)], ids=["small", "large"])
def test_a_file_counts(tmp_path: Path, size: int, bound: bool) -> None:
    sized(tmp_path / "other.pb", LARGE)
    process.limit_threads(sized(tmp_path / "model.pb", size))
    assert os.environ.get(THREADS) == ("1" if bound else None)


@pytest.mark.usefixtures("unsaid")
@pytest.mark.parametrize("named", ["model.ckpt", "model.ckpt.index", "model.ckpt.meta"])
def test_all_files_of_a_prefix_count(tmp_path: Path, named: str) -> None:
    for number in range(2):
        sized(tmp_path / f"model.ckpt.data-0000{number}-of-00002", LARGE // 2)
    sized(tmp_path / "model.ckpt.index", 1)
    process.limit_threads(tmp_path / named)
    assert THREADS not in os.environ


@pytest.mark.usefixtures("unsaid")
@pytest.mark.parametrize("inner", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
def test_all_files_of_a_folder_count(tmp_path: Path, inner: str) -> None:
    sized(tmp_path / "model" / "saved_model.pb", 1)
    sized(tmp_path / "model" / inner, LARGE)
    process.limit_threads(tmp_path / "model")
    assert THREADS not in os.environ


@pytest.mark.usefixtures("unsaid")
@pytest.mark.parametrize("name", SAID)
def test_what_the_user_said_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "3")
    process.limit_threads(sized(tmp_path / "model.pb", 1))
    assert {name: os.environ[name] for name in SAID if name in os.environ} == {name: "3"}


@pytest.mark.usefixtures("unsaid")
def test_a_source_that_is_not_there_is_for_its_reader_to_refuse(tmp_path: Path) -> None:
    process.limit_threads(tmp_path / "nowhere" / "model.ckpt")
    assert os.environ[THREADS] == "1"


@pytest.mark.usefixtures("unsaid")
def test_numpy_is_not_there_before(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom cudnn_convert import cli\nfrom cudnn_convert.cli import child_process\n"
        "def guarded(work, **_):\n"
        "    print('numpy' in sys.modules, os.environ.get('OPENBLAS_NUM_THREADS'))\n"
        "    return 0\n"
        "child_process.run_in_child = guarded\nchild_process.can_fork = lambda: True\ncli.run()"
    )
    call = [sys.executable, "-c", program, str(tmp_path / "model.pb"), str(tmp_path / "out")]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False 1\n"


def test_without_a_folder_for_temporary_files_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", find)
    expected = "expected a folder for temporary files that can be written, found none"
    with pytest.raises(WriteError) as caught, process.scratch_folder():
        pass
    assert str(caught.value) == f"TMPDIR: {expected}; set TMPDIR to one"
    assert caught.value.exit_code == 4


# A pool of processes: a map in order, and a line where native code ends one.


def test_a_pool_gives_results_in_the_order_of_its_calls() -> None:
    with process.open_pool(2) as share:
        assert [*share(divmod, [7, 8, 9], [2, 3, 4])] == [(3, 1), (2, 2), (2, 1)]
        with pytest.raises(ZeroDivisionError):
            [*share(divmod, [7], [0])]


def test_a_pool_whose_process_is_ended_by_native_code_ends_in_a_line() -> None:
    line = "^native code ended a process of --jobs; a file is damaged, or memory ran out "
    with pytest.raises(CudnnConvertError, match=line), process.open_pool(1) as share:
        [*share(os._exit, [3])]


def raised(do: Callable[[], Any]) -> Exception:
    with pytest.raises((CudnnConvertError, OSError)) as caught:
        do()
    return caught.value


def read_without_memory() -> None:
    with name_access("model.ckpt"):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "model.ckpt.index")


def read_without_permission() -> None:
    with name_access("model.ckpt"):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), "model.ckpt.index")


def read_damage() -> None:
    """A damaged file that asks for more memory than there is."""
    try:
        raise MemoryError("Unable to allocate 7.28 EiB")
    except MemoryError as cause:
        raise ReadError("a.h5", "w", expected="an array", found="7.28 EiB") from cause


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (ImportError("libtensorflow_cc.so.2: failed to map segment from shared object"), True),
        (ImportError("libtensorflow_cc.so.2: cannot map zero-fill pages"), True),
        (RuntimeError("Failed to allocate memory for requested buffer of size 4096"), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (SystemError("error return without exception set"), True),
        (raised(read_without_memory), True),
        (raised(read_without_permission), False),
        (raised(read_damage), False),
        (ImportError("No module named 'onnx'"), False),
    ],
    ids=[
        "memory",
        "segment",
        "pages",
        "onnxruntime",
        "system",
        "python",
        "access",
        "permission",
        "damage",
        "module",
    ],
)
def test_what_says_that_memory_ran_out(error: Exception, short: bool) -> None:
    """A file may be unreadable for want of memory; a damaged one asks for more than there is."""
    assert process.is_memory_short(error) == short


def test_a_file_that_cannot_be_read_for_want_of_memory_ends_with_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cudnn_convert.cli.commands.convert", lambda *_: read_without_memory())
    monkeypatch.setattr(process, "memory_knob", lambda: "--limit memory=NUMBER")
    assert cli.main(["model.ckpt", "out"]) == CudnnConvertError.exit_code != AccessError.exit_code
    assert capsys.readouterr().err == "cudnn-convert: memory ran out; raise it with --limit memory=NUMBER\n"


def test_an_error_has_an_outcome() -> None:
    short, refused, bug = map(process.outcome_of, (MemoryError(), WriteError("a", "b\nc"), RuntimeError("x")))
    assert (short.exit_code, short.is_memory, short.is_bug) == (1, True, False)
    assert (refused.exit_code, refused.is_memory, refused.is_bug) == (4, False, False)
    assert [*refused.lines] == str(WriteError("a", "b\nc")).split("\n")
    assert (bug.exit_code, bug.is_memory, bug.is_bug) == (70, False, True)
    assert bug.lines[-1].endswith("RuntimeError: x")
