"""Identifies an artifact on disk, and reads the provenance that it carries.

What knows a format is imported for that format alone.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert.errors import AccessError, CudnnConvertError, ReadError
from cudnn_convert.formats import FORMATS, FROZEN_KEY, PROVENANCE
from cudnn_convert.storage.atomic_output import RECORD


def read_frozen_provenance(path: Path) -> str | None:
    """What `write` said of a graph's origin, None of another tool's. Raises DecodeError for no graph."""
    from tensorflow.core.framework import graph_pb2

    graph = graph_pb2.GraphDef.FromString(path.read_bytes())
    found = next((node.attr[FROZEN_KEY].s for node in graph.node if FROZEN_KEY in node.attr), None)
    return None if found is None else found.decode()


def identify(artifact: Path) -> tuple[str, Path, dict[str, Any] | None]:
    """`(format, the artifact's own path, provenance or None)`. Raises ReadError, AccessError."""
    try:
        return _read(artifact)
    except OSError as cause:
        raise AccessError(cause.filename or artifact, cause.strerror or str(cause)) from cause


def _read(artifact: Path) -> tuple[str, Path, dict[str, Any] | None]:
    if artifact.name == "saved_model.pb":
        artifact = artifact.parent
    if (artifact / "saved_model.pb").is_file():
        return "savedmodel", artifact, _json(artifact / "assets.extra" / PROVENANCE)
    checkpoint = artifact / FORMATS["checkpoint"].name
    for prefix in (checkpoint, artifact):
        if Path(f"{prefix}.index").is_file() and Path(f"{prefix}.meta").is_file():
            return "checkpoint", prefix, _json(prefix.parent / RECORD)
    for name, form in FORMATS.items():
        if form.name and (artifact / form.name).is_file():
            return name, artifact / form.name, _json(artifact / RECORD)
    for name, form in FORMATS.items():
        if form.each and (artifact / RECORD).is_file() and list(artifact.glob(f"*{form.suffix}")):
            return name, artifact, _json(artifact / RECORD)
    if artifact.is_file() and artifact.suffix in _FILES:
        kind, told = _FILES[artifact.suffix]
        return kind, artifact, told(artifact)
    found = "something else" if artifact.exists() else "nothing"
    raise ReadError(
        artifact,
        "artifact",
        expected="a SavedModel, a checkpoint with its .meta, a .pb, .onnx, .tflite, .keras, .h5, .npz or "
        ".safetensors, or an OUT folder",
        found=found,
    )


def is_ours(path: Path) -> bool:
    """Whether a file or folder says that this tool wrote it."""
    try:
        if path.is_dir():
            records = (path / RECORD, path / "assets.extra" / PROVENANCE)
            return any(_json(found) is not None for found in records)
        _, told = _FILES[path.suffix]
        return told(path) is not None
    except (OSError, KeyError, CudnnConvertError):
        return False


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    return _parse(path, path.read_bytes())


def _parse(path: Path, text: Any) -> dict[str, Any]:
    """A provenance as it was written. Raises ReadError for another text, or none."""
    try:
        found = json.loads(text)
        named = [one[side] for one in (found, found["tensors"]) for side in ("inputs", "outputs")]
        if all(isinstance(name, str) for ends in named for name in ends.values()):
            return {**found, "options": dict(found["options"])}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as cause:
        raise _foreign(path) from cause
    raise _foreign(path)


def _foreign(path: Path) -> ReadError:
    expected = "JSON as this tool writes it"
    return ReadError(path, "provenance", expected=expected, found="a damaged or another one")


def _onnx(path: Path) -> dict[str, Any] | None:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path), load_external_data=False)
    except DecodeError as cause:
        raise ReadError(path, "file", expected="an ONNX model", found="none") from cause
    found = next((entry.value for entry in model.metadata_props if entry.key == "cudnn_convert"), None)
    return None if found is None else _parse(path, found)


def _tflite(path: Path) -> dict[str, Any] | None:
    from cudnn_convert.artifacts import tflite_file

    try:
        found = tflite_file.tflite_provenance(path)
    except (struct.error, IndexError, TypeError, ValueError, AssertionError, AttributeError) as cause:
        raise ReadError(path, "file", expected="a TensorFlow Lite model", found="none") from cause
    return None if found is None else _parse(path, found)


def _frozen(path: Path) -> dict[str, Any] | None:
    from google.protobuf.message import DecodeError

    try:
        found = read_frozen_provenance(path)
    except (DecodeError, ValueError):  # what it is, the runtime will say
        return None
    return None if found is None else _parse(path, found)


def _archive(path: Path) -> dict[str, Any] | None:
    from cudnn_convert import formats
    from cudnn_convert.read import hdf5, keras_archive

    told = hdf5.parse_json(path, keras_archive.METADATA, keras_archive.member(path, keras_archive.METADATA))
    found = told.get(formats.KERAS_PROVENANCE)
    return None if found is None else _parse(path, json.dumps(found))


def _hdf5(path: Path) -> dict[str, Any] | None:
    from cudnn_convert import formats
    from cudnn_convert.read import hdf5

    with hdf5.Store(path).checked().open() as file:
        found = file.attrs.get(formats.KERAS_PROVENANCE)
    return None if found is None else _parse(path, found)


def _arrays(path: Path) -> dict[str, Any] | None:
    from cudnn_convert.recurrences import named_weights

    try:
        said = named_weights.file_metadata(path)
    except Exception as cause:  # NumPy's and safetensors' own, several of each
        expected = "weights as --format npz or safetensors writes them"
        raise ReadError(path, "file", expected=expected, found="a damaged or another file") from cause
    return _parse(path, json.dumps(said)) if said else None


_FILES: Final[Mapping[str, tuple[str, Callable[[Path], dict[str, Any] | None]]]] = MappingProxyType(
    {
        ".onnx": ("onnx", _onnx),
        ".tflite": ("tflite", _tflite),
        ".pb": ("frozen", _frozen),
        ".keras": ("keras", _archive),
        ".h5": ("h5", _hdf5),
        ".hdf5": ("h5", _hdf5),
        ".npz": ("npz", _arrays),
        ".safetensors": ("safetensors", _arrays),
    }
)
