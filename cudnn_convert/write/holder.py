"""The folder beside OUT that a run writes to, and what becomes of those that runs left when they died.

A run holds the lock of a file in its folder for as long as it lives, so that the next one knows what is
nobody's. Where the system has no such locks nothing is cleaned up.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SUFFIX: Final = ".tmp"
#: The file that is locked, by which a folder is known as one of ours.
_LOCK: Final = ".cudnn_convert"
#: Where an old artifact waits until the new one stands.
OLD: Final = ".cudnn_convert.old"


@contextmanager
def held(out: Path) -> Iterator[Path]:
    """A new folder beside `out`, gone afterwards with all that is in it, unless that is all there is.

    Raises OSError.
    """
    handle = None
    while handle is None:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(out), suffix=_SUFFIX, dir=out.parent))
        handle = _claimed(folder)
    try:
        yield folder
    finally:
        if out.exists() or not (folder / OLD).exists():
            shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _claimed(folder: Path) -> int | None:
    """The handle that holds a new folder's lock; None where another run took the folder for one left over."""
    try:
        handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except FileNotFoundError:
        return None
    except OSError:
        folder.rmdir()
        raise
    try:
        locked = _locked(handle)
    except OSError:
        locked = True  # a file system without locks: nothing is ever taken for left over there
    if locked and (folder / _LOCK).exists():
        return handle
    os.close(handle)
    return None


def left(out: Path) -> Iterator[Path]:
    """The folders beside `out` that dead runs left; each is this run's until the next one is asked for."""
    name = re.compile(re.escape(_prefix(out)) + r"[a-z0-9_]{8}" + re.escape(_SUFFIX))
    beside = []
    with suppress(OSError):  # a folder that may be written to but not listed
        beside = [*out.parent.iterdir()] if fcntl else []
    for found in beside:
        if not name.fullmatch(found.name) or not _is_own_folder(found):
            continue
        with suppress(OSError):
            found.rmdir()  # where a run died before it had claimed it
        with suppress(OSError):  # no folder, nothing of ours, or gone in the meantime
            handle = os.open(found / _LOCK, os.O_RDWR)
            try:
                if _locked(handle):
                    yield found
            finally:
                os.close(handle)


def _is_own_folder(path: Path) -> bool:
    """Whether a folder is this user's: in a folder that many write to, others lay out links."""
    try:
        status = path.lstat()
    except OSError:  # gone in the meantime
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lets one run at a time put something in place in a folder, where folders can be locked."""
    handle = None
    try:
        if fcntl:
            with suppress(OSError):
                handle = os.open(folder, os.O_RDONLY)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _locked(handle: int) -> bool:
    """Whether the lock of an open file is ours now. Raises OSError where the file system has none."""
    if not fcntl:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prefix(out: Path) -> str:
    return f".{out.name}."
