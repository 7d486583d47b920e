"""Runs each command in a child process: a crash there ends one command only.

libhdf5, TensorFlow and ONNX Runtime may abort, loop or exhaust memory on malicious files. The child has
limits of memory, time and file size; a crash or a limit becomes one line and exit code 1, and the child's
files on the disk are removed. Where the system cannot fork there is neither child nor limit.

`limit_threads` sets the threads of NumPy's products before NumPy is imported. NumPy splits every product of
more than 2^18 multiplications, and its threads spin while they wait for each other: one step of a small
recurrence then takes several times as long if anything else runs. Source: OpenBLAS v0.3.31
interface/gemm.c (SMP_THRESHOLD_MIN), driver/others/blas_server.c (THREAD_TIMEOUT),
driver/others/openblas_env.c.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import IO, Any, Final

from cudnn_convert import context, storage
from cudnn_convert.context import Limits, machine_memory
from cudnn_convert.errors import CudnnConvertError, WriteError, visible

#: How long a child has to clean up after it was told to stop.
_GRACE: Final = 10
_CRASHED: Final = CudnnConvertError.exit_code
INTERRUPTED: Final = 130
_STOPS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_PR_SET_PDEATHSIG: Final = 1
#: Set once this process was told to stop.
stopping: Final = Event()
#: What the names of folders for temporary files have in common.
_SCRATCH: Final = "cudnn_convert"
#: Bytes that a child and its parent have in common.
_SHARED: Final = 8192
#: The value of TERM of a terminal without control sequences, and ECMA-48's for an empty line.
_DUMB, _CLEAR_LINE = "dumb", "\r\x1b[2K"


def run_in_child(
    work: Callable[[], int], *, subject: str, out: Path | None, limits: Limits, native: IO[bytes] | None
) -> int:
    """Do `work` in a child process, and return its exit code.

    `subject` is what messages are about, `out` what the child writes, `native` the file that native code and
    the fault handler of the child write to.
    """
    parent, shared = os.getpid(), _Shared()
    with _scratch() as scratch:
        signal.pthread_sigmask(signal.SIG_BLOCK, _numbers())  # until each side has its own handlers
        child = os.fork()
        if not child:
            _work(work, limits, scratch, parent, shared)
        code, why = _outcome(child, limits, native, shared)
    if why:
        if out is not None:
            with suppress(OSError):
                storage.remove_stale(Path(os.path.realpath(out)))
        _wipe()
        # The user does not know an artifact that a conversion has just written.
        where = subject if out is not None else shared.artifact or subject
        print(visible(f"cudnn-convert: {where}: {why}"), file=sys.stderr)
    return code


class _Shared:
    """Memory shared by child and parent, which outlives a crash of the child."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _SHARED)

    def end(self) -> None:
        """Note a regular end of the child: OpenBLAS exits where it finds no memory."""
        self._shared[0] = 1

    @property
    def has_ended(self) -> bool:
        return bool(self._shared[0])

    def mark(self, artifact: str) -> None:
        """Note the artifact that the child works on, "" for none."""
        content = os.fsencode(artifact)[: _SHARED - 2]
        self._shared[1 : len(content) + 2] = content + b"\0"

    @property
    def artifact(self) -> str:
        return os.fsdecode(self._shared[1:].partition(b"\0")[0])


def stop_once(*_: Any) -> None:
    """Stop the work, as a handler of signals; later signals are ignored."""
    stopping.set()
    for number in _numbers():
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def memory_knob() -> str:
    """The flag or command that gives this process more memory."""
    import resource

    is_open = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    return "--limit memory=NUMBER" if is_open else "ulimit -v"


def _numbers() -> set[signal.Signals]:
    return {getattr(signal, name) for name in _STOPS}


def _wipe() -> None:
    """Clear the progress line of a child that crashed."""
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", _DUMB) != _DUMB:
        print(_CLEAR_LINE, end="", file=sys.stderr)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for the child's temporary files, which it cannot remove when it crashes.

    First those go that runs left which were killed before they could remove theirs.
    """
    common = Path(tempfile.gettempdir(), _SCRATCH)
    with ExitStack() as stack:
        try:
            for left in storage.stale_folders(common):
                shutil.rmtree(left, ignore_errors=True)
            folder = stack.enter_context(storage.staging_folder(common))
        except OSError as cause:
            raise WriteError(common.parent, f"cannot write: {cause.strerror or cause}") from cause
        yield folder


def can_fork() -> bool:
    """Whether this system supports the child process."""
    return hasattr(os, "fork")


def _work(work: Callable[[], int], limits: Limits, scratch: Path, parent: int, shared: _Shared) -> None:
    """Do the child's work and exit at once: destructors of native libraries have crashed."""
    code = _CRASHED
    try:
        _bind(limits, parent)
        tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
        context.mark_with(shared.mark)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        shared.end()
        os._exit(code)


def _bind(limits: Limits, parent: int) -> None:
    import resource

    bounds = {
        resource.RLIMIT_DATA: limits.memory or machine_memory(),
        resource.RLIMIT_FSIZE: limits.file,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in bounds.items():
        _, hard = resource.getrlimit(kind)
        if most is not None:
            soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
            with suppress(OSError, ValueError):  # macOS knows some of them only by name
                resource.setrlimit(kind, (soft, hard))
    if sys.platform == "linux":  # elsewhere a child whose parent is killed goes on to the end
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be told of
            os._exit(_CRASHED)

    # The terminal tells the child too, and cleaning up takes a moment.
    _handle(stop_once)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _numbers())


def _handle(handler: Callable[..., None] | signal.Handlers) -> None:
    """Set the handler of stop signals, but for those that nohup or a shell ignores."""
    for number in _numbers():
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _outcome(child: int, limits: Limits, native: IO[bytes] | None, shared: _Shared) -> tuple[int, str]:
    """Wait for the child; return its exit code and the cause of an irregular end.

    The cause is "" for a regular end.
    """
    stopped, late = False, False

    def forward(number: int, _: Any) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(child, number)
            signal.alarm(_GRACE)

    def end(*_: Any) -> None:
        nonlocal late
        late = True
        os.kill(child, signal.SIGKILL)

    _handle(forward)
    signal.signal(signal.SIGALRM, end)
    signal.alarm(limits.seconds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _numbers())
    _, status = os.waitpid(child, 0)
    _handle(signal.SIG_IGN)
    signal.alarm(0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0 and shared.has_ended:
        return code, ""
    if stopped:
        return INTERRUPTED, "stopped in the middle of native code"
    if late:
        what = f"it ran longer than the limit of {limits.seconds} seconds"
        return _CRASHED, f"{what}; raise it with --limit seconds=NUMBER"
    return _CRASHED, _crash(signal.Signals(-code).name if code < 0 else f"exit code {code}", native)


def _crash(end: str, native: IO[bytes] | None) -> str:
    where = ""
    if native is not None:
        native.seek(0)
        # The fault handler's first line of a stack is the innermost: the library that was called.
        match = re.search(rb'File "[^"]*site-packages[/\\]([^/\\"]+)', native.read())
        where = f" in {match[1].decode()}" if match else ""
    what = f"native code ended with {end}{where}"
    return f"{what}; the file is damaged, or memory ran out ({memory_knob()})"


_THREADS: Final = "OPENBLAS_NUM_THREADS"
#: What OpenBLAS looks at in this order; one that is set is what the user wants.
_THREAD_SETTINGS: Final = (_THREADS, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
#: The weights of an LSTM of 2048 units: from there on threads gain more than they lose.
_SMALL: Final = 64 << 20


def limit_threads(source: Path) -> None:
    """Set one thread for NumPy's products where the files of `source` are small."""
    if not any(name in os.environ for name in _THREAD_SETTINGS) and _size(source) < _SMALL:
        os.environ[_THREADS] = "1"


def _size(source: Path) -> int:
    """Bytes of the files in a folder, or of those that share a prefix."""
    folders = [source, source / "variables"] if source.is_dir() else [source.parent]
    start = "" if source.is_dir() else source.with_suffix("").name
    size = 0
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            size += sum(entry.stat().st_size for entry in entries if entry.name.startswith(start))
    return size
