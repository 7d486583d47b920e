"""Objects in stores, by fsspec: functions for listing, fetching, putting and removing.

A `Path` keeps an address but for one slash: `s3:/bucket/model.ckpt`. So a path is local or an address
wherever paths go; `address_of` gives the address of one, None for a local path.

A store has no renames of several objects. A folder begins with an object that says so, and ends with its
provenance, the commit mark: a place without it is not finished. A single object appears whole in each store.

Credentials are the store's own affair: variables, profiles, roles. An address that has some is refused, and
no message repeats them.
"""

import errno
import hashlib
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from cudnn_convert.errors import (
    AccessError,
    CudnnConvertError,
    MissingDependencyError,
    ReadError,
    UsageError,
    WriteError,
)
from cudnn_convert.text import first_line

#: The schemes of addresses, and the package that fsspec needs for each.
STORES: Final[Mapping[str, str]] = {"s3": "s3fs", "gs": "gcsfs", "memory": "fsspec"}
#: The object that a place begins with; nothing reads what is in it.
BEGUN: Final = ".cudnn_convert"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
#: What a store says of the content of an object: fsspec's s3fs, gcsfs, and its memory.
_CHECKSUMS: Final = ("ETag", "md5Hash", "crc32c", "etag", "created")
#: Libraries that log what they raise too, with tracebacks: without a user's handlers that goes nowhere.
_LOGGERS: Final = ("fsspec", "gcsfs", "s3fs", "botocore", "aiobotocore", "google", "aiohttp")
_NOWHERE: Final = logging.NullHandler()
#: The local disk is to blame, not the store.
_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Variables whose values no message may have.
_SECRET: Final = re.compile("SECRET|TOKEN|PASSWORD|ACCESS_KEY|CREDENTIAL|SAS|ACCOUNT_KEY")
_QUERY: Final = re.compile(r"\?[^\s\"']*")
#: What messages of stores may quote of a request: who asks, and what proves it.
_QUOTED: Final = re.compile(
    r"(?<=//)[^\s/@]+@|(?<=Credential=)[^\s,]+|(?<=Signature=)[^\s,]+|(?<=Bearer )\S+"
)
#: A user or a key before a bucket, a password behind it, the arguments of a signed address.
_SIGNED: Final = re.compile(r"[^/]*@|[^/:]*:(?!\d+(/|$))|.*\?[\w.-]+=")


def address_of(path: Path) -> str | None:
    """Return the address of a path, or None for a local path.

    Nothing is asked of a store.
    """
    scheme, rest = _split(path)
    return f"{scheme}://{rest}" if scheme in STORES else None


def name_of(path: Path) -> str:
    """Return a path in the user's notation, an address with both slashes."""
    return address_of(path) or str(path)


def _split(path: Path) -> tuple[str, str]:
    first, *rest = path.parts or ("",)
    match = _SCHEME.fullmatch(first)
    return (match[1].lower(), "/".join(rest)) if match and rest else ("", "")


def check(path: Path) -> None:
    """Raise UsageError for the address of an unknown kind of store, or with credentials.

    A local path that begins like an address passes if something is there.
    """
    scheme, rest = _split(path)
    if not scheme or (scheme not in STORES and os.path.lexists(path)):
        return
    if _SIGNED.match(rest):
        cure = "put them into the store's own settings, such as AWS_PROFILE"
        raise UsageError(f"{scheme}://...: expected an address without credentials, found some; {cure}")
    if scheme not in STORES:
        known = ", ".join(f"{store}://" for store in STORES)
        what = f"expected a path or {known}, found the address of another store"
        raise UsageError(f"{scheme}://{rest}: {what}; work on a local copy")


@dataclass(frozen=True, slots=True)
class Object:
    """An object of a store: size in bytes, and the store's checksum of the content."""

    size: int
    checksum: str


def list_objects(path: Path) -> dict[str, Object]:
    """Return the objects at an address and below, by name.

    Names are from the address's parent, with `/` between folders. Those whose names merely begin like it are
    there too: the files of a checkpoint's prefix. Of a bucket all are, by their names in it. Raises
    AccessError, MissingDependencyError.
    """
    _, rest = _split(path)
    above, _, name = rest.rpartition("/")
    store = _open(path)
    above, name = (above, name) if above else (name, "")
    with _say(path, AccessError):
        # A listing of another run's objects must not be an old one.
        store.invalidate_cache()
        entries = store.find(above, detail=True, **({"prefix": name} if name else {}))
    listed = {}
    for key, entry in entries.items():
        inside = key.removeprefix(store._strip_protocol(above)).lstrip("/")
        if entry["type"] == "file" and not key.endswith("/") and inside.startswith(name):
            checksum = "".join(str(entry.get(what, "")) for what in _CHECKSUMS)
            listed[inside] = Object(int(entry["size"]), checksum)
    return dict(sorted(listed.items()))


def list_below(path: Path) -> dict[str, Object]:
    """Return the objects at an address and below, by name from the address.

    The object at the address itself has the name "".
    """
    if not _split(path)[1].rpartition("/")[0]:
        return list_objects(path)
    whole = {key.removeprefix(path.name): entry for key, entry in list_objects(path).items()}
    return {key.lstrip("/"): entry for key, entry in whole.items() if not key or key.startswith("/")}


def digest_objects(listed: Mapping[str, Object]) -> str:
    """Return the digest of the objects' names, sizes and store checksums, or "" if empty."""
    lines = "".join(f"{name}\0{entry.size}\0{entry.checksum}\n" for name, entry in sorted(listed.items()))
    return hashlib.sha256(lines.encode()).hexdigest() if listed else ""


def fetch(path: Path, listed: Mapping[str, Object], folder: Path, *, tell: Callable[[int], None]) -> None:
    """Copy objects to a folder, by name from the parent of an address.

    `tell` is called with the bytes that are there. Raises ReadError for a name that would leave the folder,
    AccessError, WriteError where the disk is full.
    """
    store, done = _open(path), 0
    for name, entry in listed.items():
        if "\0" in name or {"", ".", ".."} & {*name.split("/")}:
            raise ReadError(
                name_of(path),
                name,
                expected="a name that is a path",
                found="one with an empty part, dots or a zero byte",
            )
        target = folder / PurePosixPath(name)
        with _say(path, AccessError):
            target.parent.mkdir(parents=True, exist_ok=True)
            store.get_file(_key(store, path.parent / name), str(target))
            size = target.stat().st_size
        if size != entry.size:
            raise AccessError(name_of(path.parent / name), f"{size} bytes came of {entry.size}; try again")
        done += size
        tell(done)


def put(file: Path, path: Path) -> None:
    """Copy a file to an address, in a single step. Raises WriteError.

    The file appears whole there.
    """
    store = _open(path)
    with _say(path, WriteError):
        store.put_file(str(file), _key(store, path))


def put_folder(folder: Path, path: Path, marks: Collection[str], *, tell: Callable[[int], None]) -> None:
    """Copy a folder to an address, with the file named by `marks` last.

    What was at the address is replaced: from the first object on the place is not finished. After an error
    the new objects are removed as far as the store lets us. Raises WriteError.
    """
    before, begun, done = list_below(path), path / BEGUN, 0
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    commit = next(name for name in names if name in marks)
    names.remove(commit)
    put_text("An artifact is being written here.\n", begun)
    try:
        for name in before.keys() & {*marks}:
            remove(path / name)
        for name in names:
            put(folder / name, path / name)
            done += (folder / name).stat().st_size
            tell(done)
        for name in before.keys() - {*names, *marks, BEGUN, ""}:
            remove(path / name)
        _require_whole(folder, path, names)
        put(folder / commit, path / commit)
    except BaseException as error:
        with suppress(CudnnConvertError):
            for name in {*names, commit} & list_below(path).keys():
                remove(path / name)
            # After an interruption an object may still be on its way.
            if isinstance(error, Exception) and not list_below(path).keys() - {BEGUN}:
                remove(begun)
        raise
    with suppress(CudnnConvertError):  # with its provenance the place is finished all the same
        remove(begun)


def _require_whole(folder: Path, path: Path, names: list[str]) -> None:
    """Raise WriteError if the store lacks a file, or differs in size."""
    listed = list_below(path)
    for name in names:
        size, entry = (folder / name).stat().st_size, listed.get(name)
        if entry is None or entry.size != size:
            what = "nothing" if entry is None else f"{entry.size} bytes"
            raise WriteError(name_of(path / name), f"expected {size} bytes after writing them, found {what}")


def put_text(text: str, path: Path) -> None:
    """Write a text to an address. Raises WriteError."""
    store = _open(path)
    with _say(path, WriteError):
        store.pipe_file(_key(store, path), text.encode())


def read_bytes(path: Path) -> bytes | None:
    """Return the content of an object, or None for a missing object. Raises AccessError."""
    if "" not in list_below(path):
        return None
    store = _open(path)
    with _say(path, AccessError):
        return bytes(store.cat_file(_key(store, path)))


def remove(path: Path) -> None:
    """Remove an object. Raises WriteError."""
    store = _open(path)
    with _say(path, WriteError):
        store.rm_file(_key(store, path))


def match(pattern: Path) -> list[Path]:
    """Return the objects with addresses of a pattern, sorted. Raises AccessError."""
    store = _open(pattern)
    with _say(pattern, AccessError):
        store.invalidate_cache()
        scheme = pattern.parts[0]
        return [Path(scheme, key.lstrip("/")) for key in sorted(store.glob(_key(store, pattern)))]


def _key(store: Any, path: Path) -> str:
    """Return the name of an object in the store's file system."""
    return str(store._strip_protocol(address_of(path)))


def _open(path: Path) -> Any:
    """Return the file system of an address.

    Raises UsageError, MissingDependencyError, AccessError.
    """
    check(path)
    scheme, _ = _split(path)
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(_NOWHERE)
    try:
        import fsspec

        with _say(path, AccessError):
            return fsspec.filesystem(scheme)
    except ImportError as cause:
        advice = "install it: pip install 'cudnn-convert[remote]'"
        reason = f"expected the package {STORES[scheme]}, found that it is not installed; {advice}"
        raise MissingDependencyError(f"{name_of(path)}: {reason}") from cause


@contextmanager
def _say(path: Path, kind: type[AccessError | WriteError]) -> Iterator[None]:
    """Convert a store's error to an error of cudnn-convert, free of credentials and queries.

    Each store has exceptions of its own, from several libraries, with no class in common.
    """
    try:
        yield
    except (CudnnConvertError, ImportError):
        raise
    except Exception as cause:
        if isinstance(cause, OSError) and cause.errno in _DISK:
            raise WriteError(cause.filename or "the local disk", cause.strerror or str(cause)) from cause
        begin = "cannot write: " if kind is WriteError else ""
        raise kind(name_of(path), begin + without_secrets(first_line(cause))) from None


def without_secrets(text: str) -> str:
    """Return a store's message with users, address queries and secret values removed.

    Secret values are those of variables.
    """
    text = _QUOTED.sub("...", _QUERY.sub("", text))
    for name, value in os.environ.items():
        if len(value) > 3 and _SECRET.search(name.upper()):
            text = text.replace(value, "...")
    return text
