"""OUT appears whole or not at all: written beside it under a temporary name, then put in place.

With `force` an old artifact of ours is exchanged for the new one in one step where the system can
(`renameat2` with RENAME_EXCHANGE, Linux 3.15); elsewhere it waits as `OUT.old` until the new one stands,
and the next run puts it back after a crash.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError, WriteError
from cudnn_convert.write.saved_model import PROVENANCE

RECORD: Final = "conversion.json"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextmanager
def placed(out: Path, *, source: Path, folder: bool, force: bool) -> Iterator[Path]:
    """Yields a temporary path to write to, an empty folder or no file yet, and then moves it to `out`.

    Raises UsageError where `out` may not be written, WriteError where the disk refuses. An exception in the
    body leaves `out` as it was.
    """
    _restore_old(out)
    refuse(out, source=source, force=force)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        holder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".tmp", dir=out.parent))
    except OSError as cause:
        raise WriteError(out, f"cannot write here: {cause.strerror or cause}") from cause
    try:
        fresh = holder / out.name
        if folder:
            fresh.mkdir()
        yield fresh
        _move(fresh, out)
    except OSError as cause:
        raise WriteError(out, f"cannot write: {cause.strerror or cause}") from cause
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def refuse(out: Path, *, source: Path, force: bool) -> None:
    """Raises UsageError where writing to `out` could lose something."""
    if out.is_symlink():
        raise UsageError(f"{out}: expected a new path, found a symbolic link; name its target")
    here, there = out.resolve(), source.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UsageError(f"{out}: expected a path apart from the source {source}; choose another")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise UsageError(f"{out}: expected a new path, found something there; remove it or give --force")
    if out.is_dir() and not any((out / name).is_file() for name in (RECORD, f"assets.extra/{PROVENANCE}")):
        raise UsageError(
            f"{out}: expected an artifact of this tool to replace, found another folder; remove it"
        )


def _move(fresh: Path, out: Path) -> None:
    if not out.exists():
        fresh.rename(out)
    elif out.is_dir() and not any(out.iterdir()):
        out.rmdir()
        fresh.rename(out)
    elif not _exchanged(fresh, out):
        old = out.with_name(f"{out.name}.old")
        out.rename(old)
        fresh.rename(out)
        _remove(old)


def _exchanged(one: Path, other: Path) -> bool:
    """Swaps two paths atomically; False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    names = (os.fsencode(one), os.fsencode(other))
    return rename is not None and rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0


def _restore_old(out: Path) -> None:
    old = out.with_name(f"{out.name}.old")
    if old.exists() and not out.exists() and not out.is_symlink():
        old.rename(out)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
