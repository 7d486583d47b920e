"""Settings of a process with native code: limits, threads, stop signals, messages at the end.

libhdf5, TensorFlow and ONNX Runtime may abort, loop or exhaust memory on malicious files. The child process
of a command and `workers` have limits of memory, time and file size, and a folder of their own
for temporary files, which somebody else removes when they crash.

`thread_settings` has the threads of NumPy's products, to be set before NumPy is imported. NumPy splits every
product of more than 2^18 multiplications, and its threads spin while they wait for each other: one step of a
small recurrence then takes several times as long if anything else runs. Source: OpenBLAS v0.3.31
interface/gemm.c (SMP_THRESHOLD_MIN), driver/others/blas_server.c (THREAD_TIMEOUT),
driver/others/openblas_env.c.
"""

import ctypes
import errno
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import IO, Any, Final

from cudnn_convert import storage
from cudnn_convert.context import Limits, hide_gpus, machine_memory, use_plain_keras
from cudnn_convert.errors import CudnnConvertError, WriteError, name_write

#: The exit code of a command that was told to stop.
INTERRUPTED: Final = 130
#: How long a process has to clean up after it was told to stop, in seconds.
GRACE: Final = 10
_STOPS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
#: Set once this process was told to stop.
stopping: Final = Event()


def stop_signals() -> set[signal.Signals]:
    """Return the system's signals for stopping a process."""
    return {getattr(signal, name) for name in _STOPS if hasattr(signal, name)}


def stop_once(*_: Any) -> None:
    """Stop the work, as a handler of signals; later signals are ignored."""
    stopping.set()
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def handle_stops(handler: Callable[..., None] | signal.Handlers) -> None:
    """Set the handler of stop signals, except signals ignored by nohup or a shell."""
    for number in stop_signals():
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


@contextmanager
def note_stops() -> Iterator[Event]:
    """Make stop signals only set the yielded event, within the context.

    A stop signal then ends nothing. After one has come, those that follow end nothing either, so that what is
    left to do is done.
    """
    noted = Event()
    before = {number: signal.getsignal(number) for number in stop_signals()}
    handle_stops(lambda *_: noted.set())
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if noted.is_set() else handler)


def set_limits(limits: Limits) -> None:
    """Limit the memory and files of the process, until the next call.

    No core is written. Limits that the system has not are left out.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
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


_PR_SET_PDEATHSIG: Final = 1


def end_with(parent: int, exit_code: int) -> None:
    """Have the process killed at the parent's end, on Linux.

    Elsewhere it goes on to the end.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be told of
            os._exit(exit_code)


def count_cores() -> int:
    """Return the number of cores usable by the process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def name_start() -> Iterator[None]:
    """Turn an OSError of the context into a WriteError on starting a process."""
    try:
        yield
    except OSError as cause:
        cure = "end other processes, or raise the limit of `ulimit -u`"
        reason = f"cannot start a process: {cause.strerror or cause}; {cure}"
        raise WriteError("the system", reason) from cause


#: What the names of folders for temporary files have in common.
_SCRATCH: Final = "cudnn_convert"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for another process's temporary files, removed even after a crash.

    First those go that runs left which were killed before they could remove theirs. Raises WriteError.
    """
    try:
        common = Path(tempfile.gettempdir(), _SCRATCH)
    except OSError as cause:
        expected = "expected a folder for temporary files that can be written, found none"
        raise WriteError("TMPDIR", f"{expected}; set TMPDIR to one") from cause
    with ExitStack() as stack:
        with name_write(common.parent):
            for left in storage.stale_folders(common):
                storage.remove_folder(left)
            folder = stack.enter_context(storage.staging_folder(common))
        yield folder


def use_scratch(folder: Path) -> None:
    """Keep the process's temporary files in a folder."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)


@contextmanager
def open_pool(workers: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a `map` over new processes, ended together with the current process.

    Raises CudnnConvertError where native code ends one.
    """
    spawn = get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, initializer=_begin, initargs=(os.getpid(),)) as pool:

        def share(function: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
            try:
                yield from pool.map(function, *columns)
            except BrokenProcessPool as cause:
                what = "native code ended a process of --jobs; a file is damaged, or memory ran out"
                raise CudnnConvertError(f"{what} ({memory_knob()})") from cause

        try:
            yield share
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(parent: int) -> None:
    """Begin a process of a pool, to end with the parent.

    The parent alone hears a terminal.
    """
    end_with(parent, CudnnConvertError.exit_code)
    handle_stops(signal.SIG_IGN)
    prepare_libraries()


def memory_knob() -> str:
    """Return the flag or command for more memory of the process."""
    try:
        import resource
    except ImportError:  # Windows
        return "--limit memory=NUMBER"
    is_open = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    return "--limit memory=NUMBER" if is_open else "ulimit -v"


#: What the system's loader, TensorFlow and ONNX Runtime say where something does not fit into memory.
_SHORTAGE: Final = re.compile(
    "failed to map|annot map zero-fill|annot allocate memory|ailed to allocate memory|OOM when allocating"
    "|^error return without exception set$"  # CPython 3.11, where an import has no memory for its error
)


def is_memory_short(error: BaseException) -> bool:
    """Return True if an exception reports a lack of memory.

    Of our own, only what the system answered counts: a damaged file may ask for more than there is.
    """
    if isinstance(error, CudnnConvertError):
        return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or _SHORTAGE.search(str(error)) is not None


def explain_memory() -> str:
    """Return the line on a process short of memory."""
    return f"memory ran out; raise it with {memory_knob()}"


def explain_time(limits: Limits) -> str:
    """Return the line on a process ended for running too long."""
    what = f"it ran longer than the limit of {limits.seconds} seconds"
    return f"{what}; raise it with --limit seconds=NUMBER"


def explain_crash(code: int, native: IO[bytes] | None, begin: int = 0) -> str:
    """Return the line on a process ended by itself with `code`, negative for a signal.

    `native` is the file that its fault handler wrote to, from `begin` on.
    """
    where = ""
    if native is not None:
        native.seek(begin)
        # The fault handler's first line of a stack is the innermost: the library that was called.
        match = re.search(rb'File "[^"]*site-packages[/\\]([^/\\"]+)', native.read())
        where = f" in {match[1].decode()}" if match else ""
    end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    what = f"native code ended with {end}{where}"
    return f"{what}; the file is damaged, or memory ran out ({memory_knob()})"


#: The exit code of what no user can have caused.
BUG: Final = 70


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a command after an error: the exit code, and explaining lines.

    Where memory ran out, `is_memory` is true. The lines on our own bug (`is_bug`) are the traceback.
    """

    exit_code: int
    lines: Sequence[str]
    is_memory: bool = False

    @property
    def is_bug(self) -> bool:
        return self.exit_code == BUG


def outcome_of(error: Exception) -> Outcome:
    """Return the outcome of an error: lack of memory, a refusal, or our own bug."""
    if is_memory_short(error):
        return Outcome(CudnnConvertError.exit_code, [explain_memory()], is_memory=True)
    if isinstance(error, CudnnConvertError):
        return Outcome(error.exit_code, str(error).split("\n"))
    return Outcome(BUG, "".join(traceback.format_exception(error)).rstrip().split("\n"))


def explain_bug(lines: str = "these lines") -> str:
    """Return the line on our own bug, beside the traceback's lines."""
    return f"this is our bug; please report it with {lines}"


_THREADS: Final = "OPENBLAS_NUM_THREADS"
#: What OpenBLAS looks at in this order; one that is set is what the user wants.
_THREAD_SETTINGS: Final = (_THREADS, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
#: The weights of an LSTM of 2048 units: from there on threads gain more than they lose.
_SMALL: Final = 64 << 20


def thread_settings(size: int) -> dict[str, str]:
    """Return the environment for single-threaded NumPy products, with sources of `size` bytes.

    Empty where threads gain something, or the user has set them.
    """
    is_set = any(name in os.environ for name in _THREAD_SETTINGS)
    return {} if is_set or size >= _SMALL else {_THREADS: "1"}


def limit_threads(source: Path) -> None:
    """Set a single thread for NumPy's products if the files of `source` are small."""
    os.environ.update(thread_settings(_size(source)))


def _size(source: Path) -> int:
    """Count the bytes of files in a folder, or of files with a prefix."""
    folders = [source, source / "variables"] if source.is_dir() else [source.parent]
    start = "" if source.is_dir() else source.with_suffix("").name
    size = 0
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            size += sum(entry.stat().st_size for entry in entries if entry.name.startswith(start))
    return size


def prepare_libraries() -> None:
    """Make TensorFlow silent and GPU-free, and Keras plain, before a worker's imports."""
    silence_native()
    hide_gpus()
    use_plain_keras()


def silence_native() -> None:
    """Turn off the logs of TensorFlow's C++ side.

    It reads the settings at its import.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("GLOG_minloglevel", "3")
