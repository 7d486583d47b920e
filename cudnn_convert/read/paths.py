"""The files behind a given path, and the links allowed.

A path stands for all files of a checkpoint, or the whole folder of a SavedModel.

Links that lead out of the model's folder are refused without `--trust`: a service that converts uploaded
folders would otherwise read any file it has the rights to, and return its bytes as weights or messages. A
link that the user names as the source is followed. Pipes, sockets and devices are always refused: opening
one may block for ever.
"""

import os
import re
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path
from typing import Final

from cudnn_convert.errors import ReadError
from cudnn_convert.read import saved_model

#: A checkpoint prefix and a saver's suffix: index, meta, a data file, or the pattern of all data files.
_NAME: Final = re.compile(r"(.+?)(?:\.index|\.meta|(?:\.data)?-(?:\d{5}|\?{5})-of-\d{5})")
_INDEX_AND_META: Final = (".index", ".meta")
_SHARDS: Final = (".data-?????-of-?????", "-?????-of-?????")
#: The folders of a SavedModel.
FOLDERS: Final = ("variables", "assets", "assets.extra", "debug")


def of(path: Path) -> list[Path]:
    """Return the paths of the model at `path`, `path` first. Raises OSError."""
    return list(dict.fromkeys([path, *find_saved_models(path), *prefix_files(prefix(path))]))


def find_saved_models(path: Path) -> Iterator[Path]:
    """Yield the SavedModel folder at `path`, then the SavedModel folder around a file `path`."""
    above = path.parent.parent if path.parent.name in FOLDERS else path
    return filter(None, map(saved_model.recognise, (path, above)))


def prefix(path: Path) -> Path:
    """Return the prefix of the checkpoint with `path` as a file, else `path` itself."""
    match = _NAME.fullmatch(path.name)
    return path.with_name(match[1]) if match else path


def prefix_files(named: Path) -> list[Path]:
    """Return the existing files of the checkpoint with prefix `named`. Raises OSError.

    Links to nothing are among them.
    """
    if not named.name:
        return []
    shards = (path for suffix in _SHARDS for path in named.parent.glob(escape(named.name) + suffix))
    # A glob without a pattern leaves links to nothing out, before Python 3.13.
    others = (named.with_name(named.name + suffix) for suffix in _INDEX_AND_META)
    return sorted([*shards, *(path for path in others if os.path.lexists(path))])


#: The files of a SavedModel, of a folder of checkpoints and of an OUT folder.
MODEL_FILES: Final = (
    *("saved_model.pb", "saved_model.pbtxt", "fingerprint.pb", "keras_metadata.pb"),
    *("checkpoint", "conversion.json"),
)
_PLACE: Final = "put the file there"


def refuse(given: Path, files: Iterable[Path] = (), *, trust: bool) -> None:
    """Refuse links out of the model's folder, pipes, sockets and devices.

    Refused are all paths that are neither file nor folder, such as a link to nothing. Checks the files that
    `given` stands for and `files`. With `trust`, links may lead anywhere. Raises ReadError, OSError.
    """
    folder = saved_model.recognise(given) or given
    for path in dict.fromkeys([*_first(folder), *files]):
        if path == given or not os.path.lexists(path):
            continue
        root = folder if folder.is_dir() and path.is_relative_to(folder) else folder.parent
        where = str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
        if not trust and Path(os.path.realpath(root)) not in (
            target := Path(os.path.realpath(path)),
            *target.parents,
        ):
            expected, advice = f"a file in {root}", f"{_PLACE}, or vouch for the source with --trust"
            raise ReadError(given, where, expected=expected, found=f"a link to {target}", advice=advice)
        if not (path.is_file() or path.is_dir()):
            kind = "a link to nothing" if not path.exists() else "a pipe, a socket or a device"
            raise ReadError(given, where, expected="a file", found=kind, advice=_PLACE)


def _first(given: Path) -> Iterator[Path]:
    """Yield the files opened for recognising `given`, and everything in a SavedModel."""
    if not given.is_dir():
        yield from prefix_files(prefix(given))
        return
    yield from (given / name for name in MODEL_FILES)
    yield from given.glob("*.index")
    for name in FOLDERS:
        yield given / name
        yield from (given / name).rglob("*")
