"""OUT appears whole or not at all: written beside it under a temporary name, then put in place.

With `force` an old artifact of ours is exchanged for the new one in one step where the system can
(`renameat2` with RENAME_EXCHANGE, Linux 3.15); elsewhere it waits in the temporary folder until the new one
stands, and the next run puts it back after a crash. The next run also removes what a run that died left.
Of two runs to one OUT each puts its own in place whole, one after the other.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError, WriteError
from cudnn_convert.formats import PROVENANCE
from cudnn_convert.write import holder

RECORD: Final = "conversion.json"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


@contextmanager
def placed(out: Path, *, source: Path, folder: bool, force: bool) -> Iterator[Path]:
    """Yields a temporary path to write to, an empty folder or no file yet, and then moves it to `out`.

    Raises UsageError where `out` may not be written, WriteError where the disk refuses. An exception in the
    body leaves `out` as it was.
    """
    out = _real(out) if out.name in ("", "..") else out
    refuse(out, source=source, force=force)
    if folder and out.is_file():
        raise UsageError(f"{out}: expected a folder of this tool to replace, found a file; remove it")
    missing = [parent for parent in out.parents if not parent.exists()]
    try:
        with ExitStack() as stack:
            fresh = _begun(out, stack, source=source, force=force) / out.name
            if folder:
                fresh.mkdir()
            yield fresh
            with holder.alone(out.parent):
                refuse(out, source=source, force=force)  # what another run put there meanwhile stays
                _move(fresh, out)
    except OSError as cause:
        raise WriteError(out, f"cannot write: {cause.strerror or cause}") from cause
    finally:
        if not out.exists():
            _remove_empty(missing)


def _begun(out: Path, stack: ExitStack, *, source: Path, force: bool) -> Path:
    try:
        sweep(out)
        refuse(out, source=source, force=force)
        out.parent.mkdir(parents=True, exist_ok=True)
        return stack.enter_context(holder.held(out))
    except OSError as cause:
        raise WriteError(out, f"cannot write here: {cause.strerror or cause}") from cause


def sweep(out: Path) -> None:
    """Removes what runs that died left beside `out`, after an artifact that one had moved aside is back.

    Raises OSError.
    """
    if out.parent.is_dir():
        with holder.alone(out.parent):
            for folder in holder.left(out):
                if (folder / holder.OLD).exists() and not out.exists():
                    (folder / holder.OLD).rename(out)
                shutil.rmtree(folder, ignore_errors=True)


def refuse(out: Path, *, source: Path, force: bool) -> None:
    """Raises UsageError where writing to `out` could lose something, WriteError where nobody can tell."""
    try:
        _refuse(out, source=source, force=force)
    except OSError as cause:
        raise WriteError(out, f"cannot write here: {cause.strerror or cause}") from cause


def _real(path: Path) -> Path:
    """The path without links; `Path.resolve` raises a RuntimeError for a link that leads to itself."""
    return Path(os.path.realpath(path))


def _refuse(out: Path, *, source: Path, force: bool) -> None:
    try:
        str(out.absolute()).encode()
    except UnicodeEncodeError as cause:  # TensorFlow, ONNX Runtime and JSON take no others
        cure = "choose another, or set PYTHONUTF8=1 where the locale is not UTF-8"
        raise UsageError(f"{out}: expected a path in UTF-8, found other bytes; {cure}") from cause
    with suppress(FileNotFoundError):
        out.parent.stat()  # an error for a link that leads to itself
    if out.is_symlink():
        raise UsageError(f"{out}: expected a new path, found a symbolic link; name its target")
    here, there = _real(out), _real(source)
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
        _replace(fresh, out)


def _exchanged(one: Path, other: Path) -> bool:
    """Swaps two paths atomically; False where the system or the file system cannot."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    names = (os.fsencode(one), os.fsencode(other))
    return rename is not None and rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0


def _replace(fresh: Path, out: Path) -> None:
    """The exchange in steps, for systems that have no other."""
    old = fresh.with_name(holder.OLD)
    out.rename(old)
    try:
        fresh.rename(out)
    except OSError:
        old.rename(out)
        raise


def _remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders, innermost first, as long as nothing is in them."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
