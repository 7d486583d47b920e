"""Each command works in a child process: what native code does there to a file cannot end this one.

libhdf5, TensorFlow and ONNX Runtime may abort, loop or eat memory on bytes that somebody made for that. The
child has limits of memory, time and file size; whatever ends it becomes one line and exit code 1, and what it
left on the disk is removed. Where the system cannot fork there is neither child nor limit.
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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from cudnn_convert.errors import CudnnConvertError, WriteError
from cudnn_convert.limits import Limits, machine_memory
from cudnn_convert.visible import visible
from cudnn_convert.write import place

#: How long a child has to clean up after it was told to stop.
_GRACE: Final = 10
_CRASHED: Final = CudnnConvertError.exit_code
INTERRUPTED: Final = 130
_STOPS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
_PR_SET_PDEATHSIG: Final = 1
#: The value of TERM of a terminal without control sequences, and ECMA-48's for an empty line.
_DUMB, _CLEAR_LINE = "dumb", "\r\x1b[2K"


def guarded(
    work: Callable[[], int], *, subject: str, out: Path | None, limits: Limits, native: IO[bytes] | None
) -> int:
    """The exit code of `work`, done in a child process.

    `subject` is what messages are about, `out` what the child writes, `native` the file that native code and
    the fault handler of the child write to.
    """
    scratch, parent, ended = _scratch(), os.getpid(), mmap.mmap(-1, 1)
    try:
        child = os.fork()
        if not child:
            _work(work, limits, scratch, parent, ended)
        code, why = _outcome(child, limits, native, ended)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if why:
        if out is not None:
            with suppress(OSError):
                place.sweep(out.resolve())
        _wipe()
        print(visible(f"cudnn-convert: {subject}: {why}"), file=sys.stderr)
    return code


def _wipe() -> None:
    """Takes away the line of progress that a child left behind when it could do nothing more."""
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", _DUMB) != _DUMB:
        print(_CLEAR_LINE, end="", file=sys.stderr)


def _scratch() -> str:
    """A folder for the child's temporary files, which it cannot remove when it crashes."""
    try:
        return tempfile.mkdtemp(prefix="cudnn_convert.")
    except OSError as cause:
        raise WriteError(tempfile.gettempdir(), f"cannot write: {cause.strerror or cause}") from cause


def can_fork() -> bool:
    """Whether this system has what a child needs."""
    return hasattr(os, "fork")


def _work(work: Callable[[], int], limits: Limits, scratch: str, parent: int, ended: mmap.mmap) -> None:
    """The child's whole life. It ends at once: destructors of native libraries have crashed before.

    That the end was its own it says in the first byte of `ended`: OpenBLAS exits where it finds no memory.
    """
    code = _CRASHED
    try:
        _bind(limits, parent)
        tempfile.tempdir = os.environ["TMPDIR"] = scratch
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass
    finally:
        ended[0] = 1
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

    def stop(*_: Any) -> None:
        for name in _STOPS:  # the terminal tells the child too: once is enough, cleaning up takes a moment
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        raise KeyboardInterrupt

    _handle(stop)


def _handle(handler: Callable[..., None]) -> None:
    """Sets the handler of the signals that stop a program, but for those that nohup or a shell ignores."""
    for name in _STOPS:
        number = getattr(signal, name)
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _outcome(child: int, limits: Limits, native: IO[bytes] | None, ended: mmap.mmap) -> tuple[int, str]:
    """The child's exit code, and in words why it is not its own."""
    told, late = False, False

    def forward(number: int, _: Any) -> None:
        nonlocal told
        told = True
        os.kill(child, number)
        signal.alarm(_GRACE)

    def end(*_: Any) -> None:
        nonlocal late
        late = True
        os.kill(child, signal.SIGKILL)

    _handle(forward)
    signal.signal(signal.SIGALRM, end)
    signal.alarm(limits.seconds)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0 and ended[0]:
        return code, ""
    if told:
        return INTERRUPTED, "stopped in the middle of native code"
    if late:
        what = f"expected an end within {limits.seconds} seconds, found none"
        return _CRASHED, f"{what}; raise it with --limit seconds=NUMBER"
    return _CRASHED, _crash(signal.Signals(-code).name if code < 0 else f"an exit with {code}", native)


def _crash(end: str, native: IO[bytes] | None) -> str:
    where = ""
    if native is not None:
        native.seek(0)
        # The fault handler's first line of a stack is the innermost: the library that was called.
        found = re.search(rb'File "[^"]*site-packages[/\\]([^/\\"]+)', native.read())
        where = f" in {found[1].decode()}" if found else ""
    what = f"expected native code that returns, found {end}{where}"
    return f"{what}; the file is damaged, or memory ran out (--limit memory=NUMBER)"
