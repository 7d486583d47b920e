"""The command line: arguments, tables, progress and exit codes; no logic of its own.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 the source, 2 the call, 3 the numbers
differ, 4 the environment, 130 interrupted, 70 a bug of ours.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final

from cudnn_convert.cli import commands, guard, threads
from cudnn_convert.cli.commands import Within, directly
from cudnn_convert.errors import CudnnConvertError
from cudnn_convert.limits import Limits
from cudnn_convert.visible import visible

_BUG: Final = 70
#: How much of what native code said is shown after a crash.
_TAIL: Final = 4000
#: A subcommand wins over a file of that name; `./verify` is the file.
_COMMANDS: Final = {
    "inspect": commands.inspect,
    "map": commands.map_weights,
    "verify": commands.verify,
    "record": commands.record,
    "formats": commands.formats,
}


def run() -> None:
    """The console script: `main`, its work in a guarded child, without what native code writes to stderr.

    That goes past Python and nothing turns it off: absl prints before it reads any setting.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    held = _native_stderr()
    code = _BUG
    try:
        within = partial(_guarded, held) if guard.can_fork() else directly
        code = main(within=partial(_bounded, within))
    finally:
        if code == _BUG and held is not None:
            _show_tail(held)
    sys.exit(code)


def _native_stderr() -> IO[bytes] | None:
    """Points file descriptor 2 at a file, for good, and `sys.stderr` at what 2 was.

    Returns the file; None where there is no stderr, or nowhere to put a file: then all stays as it is.
    """
    try:
        real, encoding = os.dup(2), sys.stderr.encoding
        held = tempfile.TemporaryFile()  # noqa: SIM115 - native code writes to it until the very end
    except (OSError, AttributeError):
        return None
    os.dup2(held.fileno(), 2)
    sys.stderr = os.fdopen(real, "w", buffering=1, encoding=encoding, errors="backslashreplace")
    faulthandler.enable(held if guard.can_fork() else sys.stderr)
    return held


def _bounded(within: Within, work: Callable[[], int], flags: argparse.Namespace) -> int:
    threads.bound(Path(flags.source))
    return within(work, flags)


def _guarded(held: IO[bytes] | None, work: Callable[[], int], flags: argparse.Namespace) -> int:
    return guard.guarded(
        lambda: _answered(work),
        subject=flags.source,
        out=Path(flags.out) if "out" in flags else None,
        limits=Limits.of(flags.limit),
        native=held,
    )


def _show_tail(held: IO[bytes]) -> None:
    size = held.seek(0, os.SEEK_END)
    held.seek(max(0, size - _TAIL))
    text = held.read().decode(errors="replace").rstrip()
    if text:
        print("cudnn-convert: native code said at the end:", *_visible(text), sep="\n", file=sys.stderr)


def main(arguments: Sequence[str] | None = None, *, within: Within = directly) -> int:
    """Runs the command line and returns its exit code; `within` says where the work is done."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = _COMMANDS.get(words[0]) if words else None
    if command:
        return _answered(lambda: command(words[1:], within))
    return _answered(lambda: commands.convert(words, within))


def _answered(work: Callable[[], int]) -> int:
    """The exit code of `work`, its errors in words."""
    try:
        return work()
    except CudnnConvertError as error:
        print(*(f"cudnn-convert: {line}" for line in _visible(str(error))), sep="\n", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return guard.INTERRUPTED
    except SystemExit as stop:  # argparse, after --help and --version
        return int(stop.code or 0)
    except MemoryError:
        print("cudnn-convert: memory ran out; raise it with --limit memory=NUMBER", file=sys.stderr)
        return CudnnConvertError.exit_code
    except Exception:  # noqa: BLE001 - whatever is left is our own bug, and must say so
        print(*_visible(traceback.format_exc().rstrip()), sep="\n", file=sys.stderr)
        print("cudnn-convert: this is our bug; please report it with the lines above", file=sys.stderr)
        return _BUG


def _visible(text: str) -> Iterator[str]:
    """The lines of a text."""
    return map(visible, text.split("\n"))


if __name__ == "__main__":
    run()
