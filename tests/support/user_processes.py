"""The processes of users: each lives on, and cudnn_convert cannot be imported in it.

A test process has at most two of them, with TensorFlow and without it. Tests that open artifacts ask them in
turn, so that TensorFlow is loaded once for all.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: What runs in them, and what users bring along.
FOLDER = Path(__file__).parent / "user"
PROGRAM = FOLDER / "user.py"


class User:
    """A running user.py, in an isolated Python: this one, or another with an environment of its own."""

    def __init__(self, python: str = sys.executable, **environment: str) -> None:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [python, "-I", str(PROGRAM)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=environment, text=True,
        )  # fmt: skip
        self.pid = self._process.pid
        #: CPU seconds of its answers so far.
        self.seconds = 0.0

    def ask(self, jobs: list[dict[str, Any]]) -> list[str]:
        """What each job raised, "" where it raised nothing.

        A process that ends instead of answering fails the test, with what it printed last.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._errors.truncate(self._errors.seek(0))
        try:
            self._process.stdin.write(json.dumps(jobs) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        assert line, f"the user's process ended:\n{self.printed()}"
        reply = json.loads(line)
        self.seconds += reply["seconds"]
        return list(reply["errors"])

    def printed(self) -> str:
        """The end of what the process printed since it was asked last."""
        self._errors.seek(0)
        return self._errors.read()[-3000:]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()


#: The users of this test process, by whether they may load TensorFlow. Each starts when it is first asked.
_USERS: dict[bool, User] = {}


def user(*, tensorflow: bool, anew: bool = False) -> User:
    """The process with or without TensorFlow; `anew` ends the one that is there and starts another."""
    if anew and tensorflow in _USERS:
        _USERS.pop(tensorflow).close()
    if tensorflow not in _USERS:
        _USERS[tensorflow] = User()
    return _USERS[tensorflow]


def close_users() -> None:
    """Ends the processes of this test process; what they cost is then known."""
    while _USERS:
        _USERS.popitem()[1].close()


def cpu_seconds() -> float:
    """User and system time of this process, of the children that ended, and of the users' answers."""
    return sum(os.times()[:4]) + sum(process.seconds for process in _USERS.values())
