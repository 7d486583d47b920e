"""A process that does calls in turn. A call that ends it or hangs is told, and the next gets a new one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final

#: Calls of one process: what leaks in native code goes with it.
_WORN: Final = 150
#: A child starts anew, for TensorFlow must not run before a fork.
_SPAWN: Final = get_context("spawn")


class LostError(Exception):
    """The process ended or was ended during a call."""


class Worker:
    """Calls functions of modules, by pickle, in a process of their own."""

    def __init__(self, patience: float = 60.0) -> None:
        self._patience, self._calls = patience, 0
        self._process: Any = None
        self._pipe: Any = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a call. Raises LostError, and what the function raises."""
        if self._process is None or self._calls >= _WORN:
            self._start()
        self._calls += 1
        try:
            self._pipe.send((function, arguments))
            if not self._pipe.poll(self._patience):
                raise LostError(f"more than {self._patience:g} s")
            is_result, value = self._pipe.recv()
        except (EOFError, ConnectionError) as cause:
            self._process.join()
            code = self._process.exitcode
            self.close()
            raise LostError(signal.Signals(-code).name if code < 0 else f"exit {code}") from cause
        except LostError:
            self.close()
            raise
        if is_result:
            return value
        raise value

    def _start(self) -> None:
        self.close()
        self._pipe, there = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._calls = 0

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _work(pipe: Connection) -> None:
    """In the process: what libraries print goes nowhere."""
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    with suppress(EOFError):
        while True:
            function, arguments = pipe.recv()
            try:
                reply = (True, function(*arguments))
            except Exception as error:  # noqa: BLE001 - the caller raises it again
                reply = (False, RuntimeError(f"{type(error).__name__}: {error}"[:500]))
            pipe.send(reply)
