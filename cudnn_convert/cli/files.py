"""Checks the files named by flags, before importing TensorFlow and reading the source."""

from collections.abc import Iterator
from glob import iglob
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError, name_access
from cudnn_convert.options import Options
from cudnn_convert.storage import remote

#: A zip archive begins so, and an .npz is one (PKWARE APPNOTE 6.3, section 4.3).
_ZIP: Final = b"PK"


def require_files(options: Options) -> None:
    """Raise UsageError where --data, --golden or --architecture names a missing or unfit file.

    Files in stores are left out. Raises AccessError for a file that cannot be read.
    """
    reasons = [*_look_at_data(options.data), *_look_at_file("--golden", options.golden, is_arrays=True)]
    reasons += _look_at_file("--architecture", options.architecture, is_arrays=False)
    if reasons:
        raise UsageError(*reasons)


def _look_at_data(pattern: object) -> Iterator[str]:
    if not isinstance(pattern, Path) or remote.address_of(pattern) is not None:
        return
    if pattern.is_file():
        yield from _look_at_file("--data", pattern, is_arrays=pattern.suffix == ".npz")
    elif not any(Path(name).is_file() for name in iglob(str(pattern), recursive=True)):  # noqa: PTH207
        yield f"--data {pattern}: expected a file, or a pattern that matches files, found nothing"


def _look_at_file(flag: str, path: Path | None, *, is_arrays: bool) -> Iterator[str]:
    if path is None or remote.address_of(path) is not None:
        return
    if not path.is_file():
        yield f"{flag} {path}: expected a file, found {'a folder' if path.is_dir() else 'none'}"
    elif is_arrays and not _is_archive(path):
        yield f"{flag} {path}: expected an .npz file of plain arrays, found a file that is not one"


def _is_archive(path: Path) -> bool:
    with name_access(path), path.open("rb") as file:
        return file.read(len(_ZIP)) == _ZIP
