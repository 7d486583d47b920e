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
    return _wrap(stream, _Stderr)


def _wrap(stream: Any, kind: type["_Output"]) -> Any:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(kind(stream)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering or stream.write_through,
    )


class _Output(io.RawIOBase):
    """What bytes are written to; after a failure nowhere, so that Python's end does not fail again."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        # The stream closes its descriptor when nothing refers to it any more.
        self._stream, self._failed = stream, False
        self._raw: Any = getattr(stream.buffer, "raw", stream.buffer)  # Python's -u has no buffer

    def write(self, data: Any) -> int | None:
        """Write bytes and return how many."""
        if not self._failed:
            try:
                count: int | None = self._raw.write(data)
                return count
            except OSError as cause:
                self._failed = True
                self._fail(cause)
        return len(data)

    def _fail(self, cause: OSError) -> None:
        raise NotImplementedError

    def writable(self) -> bool:
        """True."""
        return True

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return bool(self._raw.isatty())

    def fileno(self) -> int:
        """The descriptor."""
        return int(self._raw.fileno())


class _Stdout(_Output):
    def _fail(self, cause: OSError) -> None:
        if cause.errno == errno.EPIPE:
            raise SystemExit(PIPE_CLOSED)
        raise WriteError("stdout", f"cannot write: {cause.strerror or cause}") from cause


class _Stderr(_Output):
    def _fail(self, cause: OSError) -> None:
        pass
