"""Runs each command in a child process: a crash ends only a single command.

libhdf5, TensorFlow and ONNX Runtime may abort, loop or exhaust memory on malicious files. The child has
limits of memory, time and file size; a crash or a limit becomes one line and exit code 1, and the child's
files on the disk are removed. Where the system cannot fork there is neither child nor limit.
"""

import mmap
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from cudnn_convert import context, process, storage
from cudnn_convert.context import Limits
from cudnn_convert.errors import CudnnConvertError
from cudnn_convert.process import INTERRUPTED

_CRASHED: Final = CudnnConvertError.exit_code
#: Bytes that a child and its parent have in common.
_SHARED: Final = 8192
#: The value of TERM of a terminal without control sequences, and ECMA-48's for an empty line.
_DUMB, _CLEAR_LINE = "dumb", "\r\x1b[2K"


def run_in_child(
    work: Callable[[], int],
    *,
    subject: str,
    out: Path | None,
    limits: Limits,
    native: IO[bytes] | None,
    tell: Callable[[list[str]], object],
) -> int:
    """Do `work` in a child process, and return the child's exit code.

    `subject` is what messages are about, `out` what the child writes, `native` the file that native code and
    the fault handler of the child write to; `tell` gets the lines on an irregular end.
    """
    parent, shared = os.getpid(), _SharedMemory()
    with process.scratch_folder() as scratch:
        # Until each side has its own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, process.stop_signals())
        with process.name_start():
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
        tell([f"{where}: {why}"])
    return code


class _SharedMemory:
    """Memory shared by child and parent, still present after a crash of the child."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _SHARED)

    def end(self) -> None:
        """Note a regular end of the child.

        OpenBLAS exits where it finds no memory.
        """
        self._shared[0] = 1

    @property
    def has_ended(self) -> bool:
        return bool(self._shared[0])

    def mark(self, artifact: str) -> None:
        """Note the child's current artifact, or ""."""
        content = os.fsencode(artifact)[: _SHARED - 2]
        self._shared[1 : len(content) + 2] = content + b"\0"

    @property
    def artifact(self) -> str:
        return os.fsdecode(self._shared[1:].partition(b"\0")[0])


def _wipe() -> None:
    """Clear the progress line of a crashed child."""
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", _DUMB) != _DUMB:
        print(_CLEAR_LINE, end="", file=sys.stderr)


def can_fork() -> bool:
    """Return True if the system supports the child process."""
    return hasattr(os, "fork")


def _work(work: Callable[[], int], limits: Limits, scratch: Path, parent: int, shared: _SharedMemory) -> None:
    """Do the child's work and exit at once: destructors of native libraries have crashed."""
    code = _CRASHED
    try:
        _bind(limits, parent)
        process.use_scratch(scratch)
        context.mark_with(shared.mark)
        code = work()
        sys.stderr.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        shared.end()
        os._exit(code)


def _bind(limits: Limits, parent: int) -> None:
    process.set_limits(limits)
    process.end_with(parent, _CRASHED)
    # The terminal tells the child too, and cleaning up takes a moment.
    process.handle_stops(process.stop_once)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, process.stop_signals())


def _outcome(child: int, limits: Limits, native: IO[bytes] | None, shared: _SharedMemory) -> tuple[int, str]:
    """Wait for the child, and return the exit code with the cause of an end.

    The cause is that of an irregular end. The cause is "" for a regular end.
    """
    stopped, late = False, False

    def forward(number: int, _: Any) -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            with suppress(ProcessLookupError):  # it has ended just now
                os.kill(child, number)
            signal.alarm(process.GRACE)

    def end(*_: Any) -> None:
        nonlocal late
        late = True
        os.kill(child, signal.SIGKILL)

    process.handle_stops(forward)
    signal.signal(signal.SIGALRM, end)
    signal.alarm(limits.seconds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, process.stop_signals())
    _, status = os.waitpid(child, 0)
    process.handle_stops(signal.SIG_IGN)
    signal.alarm(0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0 and shared.has_ended:
        return code, ""
    if stopped:
        return INTERRUPTED, "stopped in the middle of native code"
    if late:
        return _CRASHED, process.explain_time(limits)
    return _CRASHED, process.explain_crash(code, native)
