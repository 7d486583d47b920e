"""The command line: subcommands, and the way to run a subcommand.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 the source, 2 the call, 3 the numbers
differ, 4 the environment, 130 interrupted, 141 the reader of stdout has gone, 70 a bug of ours.

* parser       : Parses words to options: parser of every command, help, and completion in a shell.
* commands     : The subcommands and flags: a call of the library each, with results on stdout.
* batch        : The subcommand `batch`: flags, plan, work and messages.
* benchmark    : The subcommand `benchmark`: flags, table and report.
* files        : Checks the files named by flags, before importing TensorFlow and reading the source.
* demo         : The sample model of `demo`: files, and calls for converting and running.
* terminal     : Prints maps, inspections, choices and proofs, and shows progress.
* streams      : Stdout and stderr of a command: closed by a reader, full, or missing.
* __main__     : `python -m cudnn_convert.cli` is the command `cudnn-convert`.
* child_process: Runs each command in a child process: a crash ends only a single command.

May import: version, text, errors, formats, context, storage, process, model, options, report, artifacts,
inspection, pipeline, batch, benchmark.
Entry: `run`, the command `cudnn-convert`; `main` runs one command and gives its exit code.
"""

import argparse
import difflib
import faulthandler
import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from functools import partial
from glob import escape
from pathlib import Path
from typing import IO, Final

from cudnn_convert import process
from cudnn_convert.cli import child_process, commands, streams
from cudnn_convert.cli.commands import SUBCOMMANDS
from cudnn_convert.cli.parser import COMPLETING, NEAR, Within, directly, words_to_complete
from cudnn_convert.context import Limits, hide_gpus, use_plain_keras
from cudnn_convert.errors import CudnnConvertError, Reason, UsageError, VerificationError
from cudnn_convert.text import visible

#: How much of what native code said is shown after a crash.
_TAIL: Final = 4000


def run() -> None:
    """Run the console script: `main` in a child process, with native code's stderr redirected.

    Native code writes past Python, and absl prints before it reads any setting.
    """
    _take_utf8()
    streams.open_streams()
    if COMPLETING in os.environ:  # a shell asks: the parser of the typed line answers and exits
        main(words_to_complete(SUBCOMMANDS))
    if sys.argv[1:2] != ["record"]:  # which runs the original where it was trained
        hide_gpus()
    use_plain_keras()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    # A shell has it ignored by what runs in the background.
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, process.stop_once)
    native = _native_stderr()
    code = process.BUG
    try:
        within = partial(_run_guarded, native) if child_process.can_fork() else directly
        code = main(within=partial(_run_with_limits, within))
    except KeyboardInterrupt:
        code = process.INTERRUPTED
    finally:
        if code == process.BUG and native is not None:
            _show_tail(native)
    sys.exit(code)


def _take_utf8() -> None:
    """Restart in Python's UTF-8 mode where the locale has another encoding, such as C's.

    Otherwise TensorFlow, ONNX Runtime and JSON could not take a path that is not ASCII (PEP 540).
    """
    if sys.getfilesystemencoding() != "utf-8" and "utf8" not in sys._xoptions and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _native_stderr() -> IO[bytes] | None:
    """Redirect file descriptor 2 to a file for good, and `sys.stderr` to the old 2.

    Returns the file; None, without a change, where there is no stderr or no place for a file.
    """
    try:
        real, encoding = os.dup(2), sys.stderr.encoding
        file = tempfile.TemporaryFile()  # noqa: SIM115 - native code writes to it until the very end
    except (OSError, AttributeError):
        return None
    os.dup2(file.fileno(), 2)
    own = os.fdopen(real, "w", buffering=1, encoding=encoding, errors="backslashreplace")
    sys.stderr = streams.wrap_stderr(own)
    faulthandler.enable(file if child_process.can_fork() else sys.stderr)
    return file


def _run_with_limits(within: Within, work: Callable[[], int], flags: argparse.Namespace) -> int:
    process.limit_threads(Path(flags.source))
    return within(work, flags)


def _run_guarded(native: IO[bytes] | None, work: Callable[[], int], flags: argparse.Namespace) -> int:
    return child_process.run_in_child(
        lambda: _exit_code(work, as_json=getattr(flags, "json", False)),
        subject=flags.source,
        out=Path(flags.out) if getattr(flags, "out", None) else None,
        limits=Limits.of(flags.limit),
        native=native,
        tell=partial(_tell, as_json=getattr(flags, "json", False)),
    )


def _show_tail(native: IO[bytes]) -> None:
    size = native.seek(0, os.SEEK_END)
    native.seek(max(0, size - _TAIL))
    text = native.read().decode(errors="replace").rstrip()
    if text:
        print(
            "cudnn-convert: native code said at the end:",
            *map(visible, text.split("\n")),
            sep="\n",
            file=sys.stderr,
        )


def main(arguments: Sequence[str] | None = None, *, within: Within = directly) -> int:
    """Run the command line and return the exit code.

    `within` runs the work somewhere.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words and COMPLETING not in os.environ:
        with redirect_stdout(sys.stderr), suppress(SystemExit):
            commands.show_help([])
        return UsageError.exit_code
    command = SUBCOMMANDS.get(words[0]) if words else None
    work = partial(command, words[1:], within) if command else partial(_run_conversion, words, within)
    return _exit_code(work, as_json="--json" in words)


def _run_conversion(words: Sequence[str], within: Within) -> int:
    """Convert, unless the first word looks like a mistyped subcommand."""
    is_name = bool(words) and not words[0].startswith("-")
    near = difflib.get_close_matches(words[0], SUBCOMMANDS, n=1, cutoff=NEAR) if is_name else []
    if near and not any(Path(words[0]).parent.glob(f"{escape(Path(words[0]).name)}*")):
        what = "expected a model or a command, found neither"
        raise UsageError(f"{words[0]}: {what}; did you mean cudnn-convert {near[0]}?")
    return commands.convert(words, within)


def _exit_code(work: Callable[[], int], *, as_json: bool = False) -> int:
    """Return the exit code of `work`, with errors printed as text.

    With `as_json` errors are on stdout as an object too.
    """
    try:
        try:
            return work()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # what is still to be written may not be writable
    except KeyboardInterrupt:
        return process.INTERRUPTED
    except SystemExit as stop:  # argparse, after --help and --version; `streams`
        return int(stop.code or 0)
    except Exception as error:  # noqa: BLE001 - what is no error of ours is our own bug, and must say so
        # Native code makes an error of its own of an interruption.
        return process.INTERRUPTED if process.stopping.is_set() else _in_words(error, as_json=as_json)


def _in_words(error: Exception, *, as_json: bool) -> int:
    """Print an error on stderr and return the exit code.

    With `as_json` stdout gets it too, but for a proof that failed, whose report is there.
    """
    outcome, kind = process.outcome_of(error), type(error).__name__
    if outcome.is_bug:
        print(*map(visible, outcome.lines), sep="\n", file=sys.stderr)
        print(f"cudnn-convert: {process.explain_bug('the lines above')}", file=sys.stderr)
        if as_json:
            _print_error(kind, process.BUG, [str(error)], [])
        return process.BUG
    if outcome.is_memory:
        return _tell(outcome.lines, kind="MemoryError", as_json=as_json)
    reasons = (reason for reason in getattr(error, "reasons", ()) if isinstance(reason, Reason))
    remedies = [remedy.flags for reason in reasons for remedy in reason.remedies]
    as_json &= not isinstance(error, VerificationError)
    return _tell(outcome.lines, kind, outcome.exit_code, remedies=remedies, as_json=as_json)


def _tell(
    lines: Sequence[str],
    kind: str = "CrashError",
    code: int = CudnnConvertError.exit_code,
    *,
    remedies: Sequence[str] = (),
    as_json: bool,
) -> int:
    """Print an error's lines on stderr, and return the exit code.

    With `as_json` an object is printed on stdout too.
    """
    lines = [*map(visible, lines)]
    print(*(f"cudnn-convert: {line}" for line in lines), sep="\n", file=sys.stderr)
    if as_json:
        _print_error(kind, code, lines, remedies)
    return code


def _print_error(kind: str, code: int, reasons: Sequence[str], remedies: Sequence[str]) -> None:
    error = {"kind": kind, "exit_code": code, "reasons": reasons, "remedies": [*dict.fromkeys(remedies)]}
    print(json.dumps({"error": error}, indent=2))
