"""Reads a manifest: a model a line, with flags of its own, in JSON Lines or CSV.

| field | content |
|---|---|
| `source` | the model; from the manifest's folder |
| `out` | its OUT below the folder of the batch; else it is named after `source` |
| `flags` | flags as on the command line, in one text or a list of words; each replaces the call's |
"""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from cudnn_convert.batch.sources import Source
from cudnn_convert.errors import AccessError, UsageError
from cudnn_convert.options import KINDS
from cudnn_convert.storage import remote

_FIELDS: Final = ("source", "out", "flags")


def read(path: Path, read_flags: Callable[[Sequence[str]], Mapping[str, Any]]) -> list[Source]:
    """Read the rows of a manifest; `read_flags` makes options of the words of `flags`.

    Paths in it, those of flags too, are relative to its folder. Raises UsageError for a row that is not as
    above, AccessError where the file cannot be read.
    """
    try:
        text = _read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        raise UsageError(f"--manifest: {path}: expected text in UTF-8, found other bytes") from cause
    except OSError as cause:
        raise AccessError(path, cause.strerror or str(cause)) from cause
    rows = _from_json(path, text) if text.lstrip()[:1] == "{" else _from_csv(path, text)
    sources = [_source(path, f"{path}:{line}", row, read_flags) for line, row in rows]
    if not sources:
        raise UsageError(f"--manifest: {path}: expected a model a line, found none")
    return sources


def _read_bytes(path: Path) -> bytes:
    """The content of a manifest, here or in a store. Raises OSError, AccessError."""
    if remote.address_of(path) is None:
        return path.read_bytes()
    content = remote.read_bytes(path)
    if content is None:
        raise AccessError(remote.name_of(path), "nothing at this address")
    return content


def _beside(path: Path, name: Path) -> Path:
    """A path from the folder of a manifest; an address stays."""
    return name if remote.address_of(name) else path.parent / name


def _from_json(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as cause:
            raise UsageError(f"--manifest: {path}:{number}: expected an object of JSON a line") from cause
        if not isinstance(row, dict):
            raise UsageError(f"--manifest: {path}:{number}: expected an object of JSON, found {line[:40]}")
        yield number, row


def _from_csv(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        heads = [head.strip() for head in next(lines, [])]
        for cells in lines:
            if len(cells) > len(heads):
                actual = f"{len(cells)} cells for {len(heads)} heads; quote a cell with commas"
                raise UsageError(
                    f"--manifest: {path}:{lines.line_num}: expected a cell a head, found {actual}"
                )
            if any(cells):
                yield lines.line_num, {head: cell for head, cell in zip(heads, cells, strict=False) if cell}
    except csv.Error as cause:
        raise UsageError(f"--manifest: {path}:{lines.line_num}: expected CSV: {cause}") from cause


def _source(
    path: Path, where: str, row: Mapping[str, Any], read_flags: Callable[[Sequence[str]], Mapping[str, Any]]
) -> Source:
    if unknown := row.keys() - {*_FIELDS}:
        actual = f"{sorted(map(str, unknown))[0]!r}"
        raise UsageError(f"--manifest: {where}: expected {', '.join(_FIELDS)}, found {actual}")
    source, out = row.get("source"), row.get("out")
    if not isinstance(source, str) or not source:
        raise UsageError(f"--manifest: {where}: expected a source, found {source!r}")
    if out is not None and not _is_below(out):
        actual = f"{out!r}; leave it out, or name a path in that folder without .."
        raise UsageError(f"--manifest: {where}: expected an out of the batch's folder, found {actual}")
    words = _words(where, row.get("flags", []))
    try:
        options = read_flags(words)
    except UsageError as cause:
        raise UsageError(f"--manifest: {where}: {cause}") from cause
    files = {name: _beside(path, value) for name, value in options.items() if KINDS[name] is Path}
    own = None if out is None else str(PurePosixPath(out))
    return Source(_beside(path, Path(source)), own, {**options, **files})


def _is_below(out: Any) -> bool:
    """Whether an `out` is a relative path that stays in its folder."""
    parts = PurePosixPath(out).parts if isinstance(out, str) else ()
    return bool(parts) and ".." not in parts and not PurePosixPath(out).is_absolute()


def _words(where: str, flags: Any) -> list[str]:
    if isinstance(flags, str):
        try:
            return shlex.split(flags)
        except ValueError as cause:
            raise UsageError(f"--manifest: {where}: flags: expected words of a shell: {cause}") from cause
    if isinstance(flags, list) and all(isinstance(word, str) for word in flags):
        return flags
    raise UsageError(f"--manifest: {where}: flags: expected a text or a list of texts, found {flags!r}")
