"""A function in a separate process; the end of the process becomes an exception here.

Kernels of TensorFlow Lite and ONNX Runtime end their process on values that TensorFlow takes. The process
is a copy of this one, so that nothing is imported anew; where the system has none, the function runs here.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cudnn_convert.process import end_with
from cudnn_convert.text import first_line


class EndedError(RuntimeError):
    """The process ended, or exceeded the time for an answer."""


class Apart:
    """A function made by `make` and called in a separate process.

    The process begins with the first call. An answer has to come within `seconds`.
    """

    def __init__(self, make: Callable[[], Callable[..., Any]], seconds: float) -> None:
        self._make, self._seconds = make, seconds
        self._function: Callable[..., Any] | None = None
        self._process = 0
        self._pipe: Any = None

    def run(self, *arguments: Any) -> Any:
        """Return the function's answer.

        Raises EndedError, and RuntimeError with the text of the function's exceptions.
        """
        if not hasattr(os, "fork"):  # Windows
            self._function = self._function or self._make()
            return self._function(*arguments)
        if not self._process:
            self._begin()
        try:
            self._pipe.send(arguments)
            if not self._pipe.poll(self._seconds):
                raise EndedError(f"it does not answer within {self._seconds:g} seconds")
            is_answer, answer = self._pipe.recv()
        except (EOFError, OSError) as cause:
            self.close()
            raise EndedError("native code ends the process") from cause
        except EndedError:
            self.close()
            raise
        if not is_answer:
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        """End the process; the next call begins another."""
        if self._process:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            self._pipe.close()
            self._process = 0

    def __del__(self) -> None:
        with suppress(Exception):  # nothing of it is left at the end of the interpreter
            self.close()

    def _begin(self) -> None:
        parent = os.getpid()
        self._pipe, other = multiprocessing.Pipe()
        with warnings.catch_warnings():
            # The copy takes no lock of TensorFlow's threads: it runs its own interpreter alone.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = os.fork()
        if self._process == 0:
            try:
                # Destructors of sessions in the original's garbage wait for threads that a copy lacks.
                gc.freeze()
                self._pipe.close()
                _serve(other, self._make, parent)
            finally:
                os._exit(1)
        other.close()


def _serve(pipe: Any, make: Callable[[], Callable[..., Any]], parent: int) -> None:
    """Answer calls until the parent process or the copy ends."""
    import resource  # which Windows lacks, as it does copies of processes

    end_with(parent, 1)
    faulthandler.disable()  # its end is told by an exception
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):  # what native code says at its end
        os.dup2(nothing, stream)
    try:
        function = make()
    except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
        function = _refuse(first_line(cause))
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            answer = True, function(*arguments)
        except Exception as cause:  # noqa: BLE001 - each runtime has exceptions of its own
            answer = False, first_line(cause)
        pipe.send(answer)


def _refuse(reason: str) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise RuntimeError(reason)

    return refuse
