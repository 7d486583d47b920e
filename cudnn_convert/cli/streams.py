"""Stdout and stderr of a command: closed by a reader, cut off by a full disk, or not there.

A tool whose reader has gone, as `head` does, ends without a word, with the code that a shell gives one that
SIGPIPE ended. Python ignores that signal, and would print a traceback. What cannot be written on stdout is
an error; on stderr it is lost, since there is nowhere else to say so, and the work goes on.
"""

import errno
import io
import os
import sys
from typing import Any, Final

from cudnn_convert.errors import WriteError

#: What a shell says of a process that SIGPIPE, 13, ended.
PIPE_CLOSED: Final = 128 + 13


def open_streams() -> None:
    """Have stdout and stderr, whatever happens to them, in the place of Python's.

    Descriptors that are closed lead nowhere: the next file that is opened would be taken for one of them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
    sys.stdout = _wrap(sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False), _Stdout)
    sys.stderr = wrap_stderr(sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False))


def wrap_stderr(stream: Any) -> Any:
    """A stream that does what `stream` does as long as it can be written, and then nothing."""
    return _wrap(stream, _Output)


def _wrap(stream: Any, kind: type["_Output"]) -> Any:
    return kind(stream) if isinstance(stream, io.TextIOWrapper) else stream


class _Output(io.TextIOWrapper):
    """A stream that leads nowhere once it has failed, so that Python's last flush does not fail again."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # which closes its buffer when nothing refers to it any more

    def write(self, text: str, /) -> int:
        """Write a text and return its length."""
        try:
            return super().write(text)
        except OSError as cause:
            self._give_up(cause)
        return len(text)

    def flush(self) -> None:
        """Write what is in the buffer."""
        try:
            super().flush()
        except OSError as cause:
            self._give_up(cause)

    def _give_up(self, cause: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        self._fail(cause)

    def _fail(self, cause: OSError) -> None:
        """Do nothing: what is said on stderr is lost without it."""


class _Stdout(_Output):
    def _fail(self, cause: OSError) -> None:
        if cause.errno == errno.EPIPE:
            raise SystemExit(PIPE_CLOSED)
        raise WriteError("stdout", f"cannot write: {cause.strerror or cause}") from cause
