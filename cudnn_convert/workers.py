"""A worker: a child process for requests and answers in lines of JSON.

`Worker` is the parent's side, `answer_requests` the child's. A worker is a new interpreter, never a fork of a
process with TensorFlow in it. It ends with its parent; what native code says goes to a file of the parent.
"""

import faulthandler
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import IO, Any, Final

from cudnn_convert import process
from cudnn_convert.context import Limits
from cudnn_convert.errors import CudnnConvertError

#: Takes the module path, a function's module and name, its arguments. The current folder has no modules.
_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv[1].split('\\n'); from importlib import import_module; "
    "getattr(import_module(sys.argv[2]), sys.argv[3])(int(sys.argv[4]), *sys.argv[5:])"
)


class Worker:
    """A child process for `serve(parent, scratch, *arguments)`, a function answering requests.

    A thread calls `hear` with each line that it answers, and with None when the process has ended.
    """

    def __init__(
        self,
        serve: Callable[..., None],
        *arguments: str,
        hear: Callable[[bytes | None], None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._deadline, self.is_late, self._native_begin = math.inf, False, 0
        with ExitStack() as stack:
            scratch = stack.enter_context(process.scratch_folder())
            self._native: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            path = "\n".join(entry or str(Path.cwd()) for entry in sys.path)
            boot = [sys.executable, "-c", _BOOT, path, serve.__module__, serve.__name__]
            with process.name_start():
                self._process = subprocess.Popen(
                    [*boot, str(os.getpid()), str(scratch), *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._native,
                    env={**environment, "PYTHONUTF8": "1"},
                    start_new_session=True,  # a terminal tells the parent alone to stop
                )
            self._stack = stack.pop_all()
        Thread(target=self._listen, args=(hear,), daemon=True).start()

    def _listen(self, hear: Callable[[bytes | None], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                hear(line)
        hear(None)

    def send(self, request: Mapping[str, Any], deadline: float) -> None:
        """Send a request, with the answer's `deadline` in seconds of `time.monotonic`.

        An answer after the deadline is late.
        """
        self._deadline, self.is_late = deadline, False
        self._native_begin = self._native.seek(0, os.SEEK_END)
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already, which its thread tells
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    @property
    def seconds_left(self) -> float:
        """The time until the deadline, 0 after it."""
        return max(0.0, self._deadline - time.monotonic())

    def kill_late(self) -> None:
        """End the process after the deadline."""
        self.is_late = True
        self.kill()

    def explain_end(self, limits: Limits) -> str:
        """End the process, and explain the end in a line: the time, or the crash."""
        self.kill()
        code = self._process.wait()
        if self.is_late:
            return process.explain_time(limits)
        return process.explain_crash(code, self._native, self._native_begin)

    def tell_to_stop(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def end(self, *, at_once: bool = False) -> None:
        """End the process, gently unless `at_once`, and remove the temporary files."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        if at_once:
            self.kill()
        try:
            self._process.wait(process.GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._stack.close()


def answer_requests(
    parent: int,
    scratch: str,
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    explain: Callable[[dict[str, Any], Exception], dict[str, Any]],
) -> None:
    """Answer JSON lines on stdin by lines on stdout, as a worker of `parent`.

    `parent` is the parent process. `explain` answers a request whose `answer` raised an error. Temporary
    files go to the folder `scratch`. At the end of stdin the process exits at once: destructors of native
    libraries have crashed.
    """
    requests, answers = _take_streams()
    faulthandler.enable()
    process.end_with(parent, CudnnConvertError.exit_code)
    process.handle_stops(process.stop_once)
    process.use_scratch(Path(scratch))
    process.prepare_libraries()
    try:
        for line in requests:
            request = json.loads(line)
            try:
                reply = answer(request)
            except Exception as error:
                if process.stopping.is_set():  # native code makes an error of its own of an interruption
                    raise KeyboardInterrupt from error
                reply = explain(request, error)
            answers.write(json.dumps(reply).encode() + b"\n")
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        os._exit(0)


def _take_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Take stdin and stdout, and put the null device in place of both."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    return requests, answers
