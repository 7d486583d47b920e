"""One input, tried: written to a folder, looked at, and watched for what looking must never do."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import inputs
import looks
from inputs import Input, Readers

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_STARTS = (
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
    "pty.spawn",
)
_CHANGES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.symlink",
    "os.link",
    "os.chmod",
    "shutil.rmtree",
)

#: Where Python's own files and the project's are.
_OWN = (sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2]))


class Watch:
    """Notes what a look does beside reading its input; Python tells its audit hooks."""

    def __init__(self) -> None:
        self.seen, self._folder = list[str](), ""
        sys.addaudithook(self._heard)

    @contextlib.contextmanager
    def over(self, folder: Path) -> Iterator[None]:
        """Within the context only what lies in `folder` may be read, and what Python and the project are."""
        self.seen, self._folder = [], str(folder)
        try:
            yield
        finally:
            self._folder = ""

    def _heard(self, event: str, told: tuple[Any, ...]) -> None:
        if self._folder and (
            event in _STARTS or event in _CHANGES or (event == "open" and self._strays(*told))
        ):
            self.seen.append(f"{event} {told!r:.200}")

    def _strays(self, path: Any, mode: Any, flags: Any) -> bool:
        if not isinstance(path, str | bytes | os.PathLike) or os.fsdecode(path) == os.devnull:
            return False  # a descriptor that is open already
        found = os.path.realpath(os.fsdecode(path))
        return bool(flags & _WRITES) or not found.startswith((self._folder, *_OWN))


_WATCH: list[Watch] = []


class ForbiddenError(Exception):
    """A look wrote, changed or started something."""


def tried(seed: int, readers: Readers, number: int, folder: Path) -> tuple[str, str, str]:
    """The verdict on input `number`; whatever is not a refusal is a crash."""
    os.ftruncate(2, 0)
    made = inputs.made(seed, number, readers)
    place = folder / "input"
    write(made, place)
    try:
        refusal = judged(made, place)
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are crashes too
        return made.origin.reader, "crashed", told(error)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return made.origin.reader, "refused" if refusal else "read", refusal


def judged(made: Input, folder: Path) -> str:
    """The refusal of an input that lies in `folder`, "" where it is read. Raises whatever is a crash."""
    if not _WATCH:
        _WATCH.append(Watch())
    watch = _WATCH[0]
    folder = folder.resolve()
    if made.origin.look in looks.WRITING:
        return looks.looked(made.origin.look, folder / made.origin.entry)
    before = sorted(folder.rglob("*"))
    with watch.over(folder):
        refusal = looks.looked(made.origin.look, folder / made.origin.entry)
    if watch.seen or sorted(folder.rglob("*")) != before:
        raise ForbiddenError("; ".join(watch.seen) or "files appeared or went")
    return refusal


def write(made: Input, folder: Path) -> None:
    """The files of an input."""
    for name, content in {**made.origin.files, **made.changed}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def told(error: BaseException) -> str:
    """An exception in one line: its class, its words, and where it was raised in the package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}cudnn_convert{os.sep}" in frame.filename]
    last = own[-1] if own else frames[-1]
    path = last.filename.rpartition(f"cudnn_convert{os.sep}")[2]
    words = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {words} ({path}:{last.lineno} {last.name})"
