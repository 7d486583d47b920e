"""Stdout and stderr of a command: closed by a reader, full, or missing.

Stdout and stderr may be cut off by a full disk. A tool whose reader has gone, as `head` does, ends without a
word, with the code that a shell gives one that SIGPIPE ended. Python ignores that signal, and would print a
traceback. What cannot be written on stdout is an error; on stderr it is lost, since there is nowhere else to
say so, and the work goes on.
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
    """Open failsafe stdout and stderr in place of Python's streams.

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
    """Return a stream for `stream`, silent after a failed write."""
    return _wrap(stream, _Output)


def _wrap(stream: Any, kind: type["_Output"]) -> Any:
    return kind(stream) if isinstance(stream, io.TextIOWrapper) else stream


class _Output(io.TextIOWrapper):
    """A stream with output discarded after a failure.

    It leads nowhere then, so that Python's last flush does not fail again.
    """

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
        """Write a text and return the text's length."""
        try:
            return super().write(text)
        except OSError as cause:
            self._give_up(cause)
        return len(text)

    def flush(self) -> None:
        """Write the contents of the buffer."""
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
        """Ignore the failure: output on stderr is simply lost."""


class _Stdout(_Output):
    def _fail(self, cause: OSError) -> None:
        if cause.errno == errno.EPIPE:
            raise SystemExit(PIPE_CLOSED)
        raise WriteError("stdout", f"cannot write: {cause.strerror or cause}") from cause
