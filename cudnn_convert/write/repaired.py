"""A SavedModel of TensorFlow 2 in which functions were exchanged; its other files are copied as they are."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tensorflow.core.protobuf import fingerprint_pb2
from tensorflow.python.saved_model import fingerprinting_utils

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.formats import PROVENANCE

_PROTOS: Final = ("saved_model.pb", "saved_model.pbtxt")
#: A checksum of the proto and the variables (tensorflow v2.21.0 core/protobuf/fingerprint.proto).
_FINGERPRINT: Final = "fingerprint.pb"
_ID_LENGTH: Final = 32


def write(folder: Path, source: Path, saved: Any, *, provenance: str, trust: bool) -> None:
    """Writes the SavedModel proto `saved`, the files of `source` and the provenance into the empty `folder`.

    Raises OSError, and UnsupportedModelError where one of the files is none, or without `trust` a link to
    elsewhere.
    """
    _refuse_links(source, trust=trust)
    shutil.copytree(source, folder, ignore=_exchanged(source), dirs_exist_ok=True)
    (folder / "saved_model.pb").write_bytes(saved.SerializeToString(deterministic=True))
    if (source / _FINGERPRINT).is_file():
        _write_fingerprint(folder)
    (folder / "assets.extra").mkdir(exist_ok=True)
    (folder / "assets.extra" / PROVENANCE).write_text(provenance, encoding="utf-8")


def _write_fingerprint(folder: Path) -> None:
    """TensorFlow's own, but for the random id in it: the same model has the same bytes."""
    fingerprinting_utils.write_fingerprint(str(folder))
    path = folder / _FINGERPRINT
    found = fingerprint_pb2.FingerprintDef.FromString(path.read_bytes())
    found.uuid = ""
    found.uuid = hashlib.sha256(found.SerializeToString(deterministic=True)).hexdigest()[:_ID_LENGTH]
    path.write_bytes(found.SerializeToString(deterministic=True))


def _refuse_links(source: Path, *, trust: bool) -> None:
    """What a model was given as may be handed on; what it only points to is somebody else's."""
    links = (found for found in sorted(source.rglob("*")) if found.is_symlink())
    expected, cure = "expected a file of the model itself", "put the file there"
    reasons = [
        f"{found.relative_to(source)}: {expected}, found a link to {found.readlink()}; {cure}"
        for found in links
        if not trust and source.resolve() not in found.resolve().parents
    ]
    reasons += [
        f"{found.relative_to(source)}: {expected}, found a pipe, a socket or a device; {cure}"
        for found in sorted(source.rglob("*"))
        if found.exists() and not (found.is_file() or found.is_dir())
    ]
    if reasons:
        raise UnsupportedModelError(source, reasons)


def _exchanged(source: Path) -> Callable[[str, list[str]], list[str]]:
    """What `copytree` is to leave out: the files of the model itself that are written anew."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder) == source and name in (*_PROTOS, _FINGERPRINT)]

    return left_out
