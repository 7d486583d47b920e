"""Replaces an artifact again and again, killed before its first call of the system, its second, and so on.

    python killed_runs.py FOLDER folder|file exchange|steps

Prints for each run what stood at OUT after its death, what stood beside it, and both after the next run.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from cudnn_convert import storage

COUNTED = ("open", "os", "fcntl", "shutil", "ctypes")


def replaced(out: Path, kind: str, way: str, last: int) -> bool:
    """Whether a process of its own wrote to `out`: it is killed before its call number `last`."""
    child = os.fork()
    if not child:
        try:
            replace(out, kind, way, last)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return status == 0


def replace(out: Path, kind: str, way: str, last: int) -> None:
    if way == "steps":
        setattr(storage, "_exchange", lambda one, other: False)  # noqa: B010
    calls = 0

    def count(event: str, _: object) -> None:
        nonlocal calls
        if event.partition(".")[0] in COUNTED:
            calls += 1
            if calls == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    target = storage.Destination(out, lambda path: True, [("the source", Path("source"))], force=True)
    with storage.atomic_output(target, folder=kind == "folder") as fresh:
        write(fresh, kind, "new")


def write(out: Path, kind: str, text: str) -> None:
    """An artifact of a folder or a file, whose every file says `text`."""
    for path in (out / storage.RECORD, out / "weights") if kind == "folder" else (out,):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def texts(path: Path) -> list[str]:
    return [one.read_text() for one in sorted([path, *path.rglob("*")]) if one.is_file()]


def main(folder: Path, kind: str, way: str) -> None:
    killed = True
    last = 0
    while killed:
        last += 1
        out = folder / str(last) / "out"
        write(out, kind, "old")
        killed = not replaced(out, kind, way, last)
        died = texts(out), texts(out.parent)
        assert replaced(out, kind, way, 0)
        beside = [path.name for path in out.parent.iterdir()]
        sys.stdout.write(json.dumps([*died, texts(out), beside]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
