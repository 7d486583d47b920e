"""Converts one source of each kind, in one process, and notes every file that Python opens meanwhile.

python opens.py FOLDER KIND...    # FOLDER has a copy of each source, as KIND; prints JSON
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

#: What is given to the command line for each kind of source: the path below its folder, the format, flags.
KINDS: dict[str, tuple[str, ...]] = {
    "weights": ("model.ckpt", "npz"),
    "checkpoint": ("model.ckpt", "savedmodel"),
    "checkpoint_v1": ("model.ckpt", "onnx"),
    "frozen": ("frozen.pb", "frozen"),
    "frozen_text": ("frozen.pbtxt", "checkpoint"),
    "saved_model": ("model", "savedmodel"),
    "keras_export": ("saved_model", "savedmodel"),
    "hdf5": ("model.h5", "h5"),
    "hdf5_archive": ("model.h5", "keras"),
    "archive": ("model.keras", "tflite"),
}
#: What starts another program, or reaches another machine.
STARTS = ("os.system", "os.exec", "os.posix_spawn", "socket.connect", "pty.spawn")


class Notes:
    """An audit hook cannot be taken away: it writes down what happens while there is a list to write to."""

    def __init__(self) -> None:
        self.opened: set[str] | None = None
        sys.addaudithook(self._heard)

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        if self.opened is None:
            return
        if event == "open" and isinstance(given[0], str | bytes):
            self.opened.add(os.path.realpath(os.fsdecode(given[0])))
        elif event == "subprocess.Popen":
            self.opened.add(shutil.which(os.fsdecode(given[0])) or repr(given))
        elif event in STARTS:
            self.opened.add(f"{event} {given!r:.200}")


def main() -> None:
    folder = Path(sys.argv[1])
    notes, found = Notes(), {}
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "temporary")
    for kind in sys.argv[2:]:
        entry, form, *flags = KINDS[kind]
        notes.opened = set()
        from cudnn_convert import cli

        words = [str(folder / kind / entry), str(folder / "out" / kind), "--format", form, "--quiet"]
        report = ["--report", str(folder / "out" / f"{kind}.html")] if form != "npz" else []
        code = cli.main([*words, *flags, *report])
        found[kind] = [code, sorted(notes.opened)]
        notes.opened = None
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
