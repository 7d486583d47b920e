"""Writes OUT atomically: under a temporary name beside OUT, then by a rename.

* remote: Objects in stores, by fsspec: functions for listing, fetching, putting and removing.
* staging: Makes local copies of a call's paths in a store, and uploads the results.

A run writes to a folder beside OUT, and locks a file in it until it ends. The next run removes folders whose
lock is free: their runs died. Where the system has no such locks, no folder is removed.

With `force` an OUT that this tool wrote is exchanged for the new one in one step where the system can
(`renameat2` with RENAME_EXCHANGE, Linux 3.15). Elsewhere the old one waits in the folder until the new one is
in place, and after a crash the next run puts it back. Two runs to one OUT replace it one after the other.

May import: text, errors.
Entry: `atomic_output`.
"""

import ctypes
import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError, name_write

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_SUFFIX: Final = ".tmp"
#: How many new folders other runs may take for left over before they are locked.
_TRIES: Final = 16
#: The file that is locked, by which a folder is known as one of ours.
_LOCK: Final = ".cudnn_convert"
#: Where an old artifact waits until the new one stands.
OLD: Final = ".cudnn_convert.old"


@contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """Make a folder beside `out`, and remove the folder afterwards.

    It stays where it has the only artifact. Raises OSError, also where each folder that is made is gone at
    once.
    """
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=_prefix(out), suffix=_SUFFIX, dir=out.parent))
        handle = _claim(folder)
        if handle is not None:
            break
    else:
        raise FileNotFoundError(errno.ENOENT, "folders that are made here are gone at once", str(out.parent))
    try:
        yield folder
    finally:
        if out.exists() or not (folder / OLD).exists():
            remove_folder(folder)
        os.close(handle)


def remove_folder(folder: Path) -> None:
    """Remove the folder of a run, with the lock last.

    Where the process is killed meanwhile, the next run knows the folder by its lock.
    """
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if path.name != _LOCK]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _claim(folder: Path) -> int | None:
    """Lock a new folder, or return None for a folder already removed.

    Another run may remove it as stale.
    """
    try:
        handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except FileNotFoundError:
        return None
    except OSError:
        folder.rmdir()
        raise
    try:
        locked = lock_file(handle)
    except OSError:
        locked = True  # a file system without locks: nothing is ever taken for left over there
    if locked and (folder / _LOCK).exists():
        return handle
    os.close(handle)
    return None


def stale_folders(out: Path) -> Iterator[Path]:
    """Yield the folders of dead runs beside `out`, each locked until the next."""
    for folder in _list_folders(out):
        with suppress(OSError):
            folder.rmdir()  # where a run died before it had claimed it
        with suppress(OSError):  # no folder, nothing of ours, or gone in the meantime
            handle = os.open(folder / _LOCK, os.O_RDWR)
            try:
                if lock_file(handle):
                    yield folder
            finally:
                os.close(handle)


def _list_folders(out: Path) -> list[Path]:
    """List the folders of runs beside `out`.

    The list is empty on systems without locks, which alone tell dead runs.
    """
    name = re.compile(re.escape(_prefix(out)) + r"[a-z0-9_]{8}" + re.escape(_SUFFIX))
    beside = []
    with suppress(OSError):  # a folder that may be written to but not listed
        beside = [*out.parent.iterdir()] if fcntl else []
    return [folder for folder in beside if name.fullmatch(folder.name) and _is_own_folder(folder)]


def _is_own_folder(path: Path) -> bool:
    """Return True if a folder belongs to the user.

    In a shared folder others may lay out links.
    """
    try:
        status = path.lstat()
    except OSError:  # gone in the meantime
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder, to let a single run at a time put files there."""
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


def lock_file(handle: int) -> bool:
    """Lock an open file until the file is closed.

    The answer is False where another process has locked it. Raises OSError where the file system has no
    locks.
    """
    if not fcntl:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prefix(out: Path) -> str:
    return f".{out.name}."


RECORD: Final = "conversion.json"
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
#: The first part of a path that was an address; a drive has one letter.
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_ELSE: Final = "choose another path"


@dataclass(frozen=True, slots=True)
class Destination:
    """A path to write, and the call's files to keep `apart` from the path.

    `apart` has the files in words and as paths. An existing path is replaced only with `force`, and only
    where `is_ours` says that this tool wrote it.
    """

    path: Path
    is_ours: Callable[[Path], bool]
    apart: Sequence[tuple[str, Path]] = ()
    force: bool = False


@contextmanager
def atomic_output(target: Destination, *, folder: bool) -> Iterator[Path]:
    """Yield a temporary path, and move the path to the target at the end.

    It is an empty folder, or does not exist yet. Raises UsageError where the target may not be written,
    WriteError where the system cannot. An exception in the body leaves all as it was.
    """
    refuse(target)
    named = target.path
    # Once: the working folder may be replaced or covered by a mount meanwhile.
    out = _real(target.path) if target.path.name in ("", "..") else target.path.absolute()
    target = replace(target, path=out)
    if out.exists():
        require_kind(named, folder=folder, is_folder=out.is_dir())
    missing = [parent for parent in out.parents if not parent.exists()]
    try:
        with name_write(named), ExitStack() as stack:
            fresh = _begin(target, named, stack) / out.name
            if folder:
                fresh.mkdir()
            yield fresh
            with lock_folder(out.parent):
                refuse(target)  # what another run put there meanwhile stays
                _move(fresh, out)
    finally:
        if not out.exists():
            _remove_empty(missing)


def require_kind(out: object, *, folder: bool, is_folder: bool) -> None:
    """Raise UsageError where a folder would replace a file, or a file a folder."""
    if folder != is_folder:
        kinds = ("a folder", "a file") if folder else ("a file", "a folder")
        raise UsageError(f"{out}: expected {kinds[0]} to replace, found {kinds[1]}; {_ELSE}")


def _begin(target: Destination, named: Path, stack: ExitStack) -> Path:
    """Make the folder of the run beside the target.

    Messages call the target `named`.
    """
    out = target.path
    with name_write(named, "cannot write here"):
        remove_stale(out)
        refuse(target)
        out.parent.mkdir(parents=True, exist_ok=True)
        return stack.enter_context(staging_folder(out))


def is_being_written(out: Path) -> bool:
    """Return True if a run, live or dead, has a folder beside `out`."""
    return bool(_list_folders(out))


def remove_stale(out: Path) -> None:
    """Remove the folders of dead runs beside `out`; restore an artifact moved aside.

    Raises OSError.
    """
    if out.parent.is_dir():
        with lock_folder(out.parent):
            for folder in stale_folders(out):
                if (folder / OLD).exists() and not out.exists():
                    (folder / OLD).rename(out)
                remove_folder(folder)


def refuse(target: Destination) -> None:
    """Raise UsageError where writing would lose data, WriteError where the risk is unknown."""
    _refuse_addresses(target.path)
    with name_write(target.path, "cannot write here"):
        _refuse(target)


def _refuse_addresses(out: Path) -> None:
    if str(out) == "-":
        raise UsageError(f"{out}: expected a path, found the name of a stream; name a file or folder")
    first, *rest = out.parts or ("",)
    if rest and _SCHEME.fullmatch(first):
        address = f"{first}//{'/'.join(rest)}"
        raise UsageError(f"{address}: expected a local path, found an address; write here and copy it there")


def _real(path: Path) -> Path:
    """Return the path with all links resolved.

    `Path.resolve` raises a RuntimeError for a link that leads to itself.
    """
    return Path(os.path.realpath(path))


def _refuse(target: Destination) -> None:
    out = target.path
    try:
        str(out.absolute()).encode()
    except UnicodeEncodeError as cause:  # TensorFlow, ONNX Runtime and JSON take no others
        cure = "choose another, or set PYTHONUTF8=1 where the locale is not UTF-8"
        raise UsageError(f"{out}: expected a path in UTF-8, found one that is not; {cure}") from cause
    with suppress(FileNotFoundError):
        out.parent.stat()  # an error for a link that leads to itself
    if out.is_symlink():
        raise UsageError(f"{out}: expected a new path, found a symbolic link; name its target")
    here = _real(out)
    for what, path in target.apart:
        there = _real(path)
        is_same = here == there or (here.exists() and there.exists() and here.samefile(there))
        if is_same or here in there.parents or there in here.parents:
            raise UsageError(f"{out}: expected a path apart from {what}, found an overlap; {_ELSE}")
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    refuse_existing(
        out, "folder" if out.is_dir() else "file", is_ours=target.is_ours(out), force=target.force
    )


def refuse_existing(out: object, kind: str, *, is_ours: bool, force: bool) -> None:
    """Raise UsageError for an existing OUT, unless OUT is replaceable.

    It is where this tool wrote it and `force` is given.
    """
    if not is_ours:
        actual = f"a {kind} that this tool did not write"
        raise UsageError(f"{out}: expected a new path, found {actual}; {_ELSE}")
    if not force:
        cure = f"{_ELSE}, or replace it with --force"
        raise UsageError(f"{out}: expected a new path, found what this tool wrote before; {cure}")


def _move(fresh: Path, out: Path) -> None:
    if not out.exists():
        fresh.rename(out)
    elif out.is_dir() and not any(out.iterdir()):
        out.rmdir()
        fresh.rename(out)
    elif not _exchange(fresh, out):
        _replace(fresh, out)


def _exchange(path: Path, second: Path) -> bool:
    """Swap two paths atomically.

    The answer is False where the system or the file system cannot.
    """
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    names = (os.fsencode(path), os.fsencode(second))
    return rename is not None and rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0


def _replace(fresh: Path, out: Path) -> None:
    """Replace `out` in two renames, on systems unable to exchange paths."""
    old = fresh.with_name(OLD)
    out.rename(old)
    try:
        fresh.rename(out)
    except OSError:
        old.rename(out)
        raise


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, innermost first, up to the first folder in use."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
