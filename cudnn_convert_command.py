"""The command `cudnn-convert`, beside the package: Ctrl-C ends it while the package is imported, too.

Python would show the traceback of an import. A package is imported before any of its modules runs, so this
one is outside.
"""

import _signal as signal  # type: ignore[import-not-found]  # the part that takes no time to import
import os

#: The exit code of a command that was told to stop.
_INTERRUPTED = 130


def run() -> None:
    """Import the command line and run it, which has handlers of its own."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:  # a shell may have it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from cudnn_convert.cli import run as run_command_line

    run_command_line()
