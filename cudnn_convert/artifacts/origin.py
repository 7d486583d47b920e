"""Identifies an artifact on disk, and reads the provenance that it carries.

What knows a format is imported for that format alone.
"""

import json
from pathlib import Path
from typing import Any

from cudnn_convert.artifacts import runners
from cudnn_convert.errors import CudnnConvertError, ReadError, name_access
from cudnn_convert.formats import FORMATS, PROVENANCE
from cudnn_convert.storage import RECORD


def identify(artifact: Path) -> tuple[str, Path, dict[str, Any] | None]:
    """`(format, the artifact's own path, provenance or None)`. Raises ReadError, AccessError."""
    with name_access(artifact):
        return _read(artifact)


def _read(artifact: Path) -> tuple[str, Path, dict[str, Any] | None]:
    if any(f"/{artifact.name}" in form.files for form in FORMATS.values()):
        artifact = artifact.parent
    for name, form in FORMATS.items():  # those of several files, by the names of these
        for path in (artifact / form.name, artifact) if form.files else ():
            if all(Path(f"{path}{end}").is_file() for end in form.files):
                return name, path, runners.opener(name).provenance(path)
    for name, form in FORMATS.items():
        if form.name and (artifact / form.name).is_file():
            return name, artifact / form.name, read_record(artifact / RECORD)
    for name, form in FORMATS.items():
        if form.each and (artifact / RECORD).is_file() and list(artifact.glob(f"*{form.suffix}")):
            return name, artifact, read_record(artifact / RECORD)
    if artifact.is_file() and (name := _by_suffix(artifact)):
        return name, artifact, runners.opener(name).provenance(artifact)
    actual = "something else" if artifact.exists() else "nothing"
    *suffixes, last = (form.suffix for form in FORMATS.values() if form.suffix)
    known = f"a SavedModel, a checkpoint with its .meta, a {', '.join(suffixes)} or {last}"
    raise ReadError(artifact, "artifact", expected=f"{known}, or an OUT folder", found=actual)


def _by_suffix(path: Path) -> str:
    """Return the format of a file's suffix, or ""."""
    known = ((name, {form.suffix, *form.aliases} - {None}) for name, form in FORMATS.items())
    return next((name for name, suffixes in known if path.suffix in suffixes), "")


def is_ours(path: Path) -> bool:
    """Whether a file or folder says that this tool wrote it."""
    try:
        if path.is_dir():
            records = (path / RECORD, path / "assets.extra" / PROVENANCE)
            return any(read_record(record) is not None for record in records)
        name = _by_suffix(path)
        return bool(name) and runners.opener(name).provenance(path) is not None
    except (OSError, CudnnConvertError):
        return False


def read_record(path: Path) -> dict[str, Any] | None:
    """Read the provenance from a separate file; None if it does not exist. Raises ReadError."""
    return parse(path, path.read_bytes()) if path.is_file() else None


def parse(path: Path, text: Any) -> dict[str, Any]:
    """A provenance as it was written. Raises ReadError for another text, or none."""
    try:
        record = json.loads(text)
        named = [names[side] for names in (record, record["tensors"]) for side in ("inputs", "outputs")]
        states, begins = record.get("states", []), record.get("begins", {})
        named += [begins, *({key: state[key] for key in ("key", "next_key")} for state in states)]
        if all(isinstance(name, str) for ends in named for name in ends.values()):
            return {**record, "options": dict(record["options"])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
        raise _foreign(path) from cause
    raise _foreign(path)


def _foreign(path: Path) -> ReadError:
    expected = "JSON as this tool writes it"
    return ReadError(path, "provenance", expected=expected, found="a damaged or another one")
