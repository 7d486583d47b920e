"""What an artifact on disk is, and the provenance it carries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cudnn_convert.errors import ReadError
from cudnn_convert.formats import FORMATS
from cudnn_convert.write.place import RECORD
from cudnn_convert.write.saved_model import PROVENANCE


def read(artifact: Path) -> tuple[str, Path, dict[str, Any] | None]:
    """`(format, the artifact's own path, provenance or None)`. Raises ReadError for anything else."""
    if (artifact / "saved_model.pb").is_file():
        return "savedmodel", artifact, _json(artifact / "assets.extra" / PROVENANCE)
    checkpoint = artifact / FORMATS["checkpoint"].name
    if Path(f"{checkpoint}.index").is_file() and (artifact / RECORD).is_file():
        return "checkpoint", checkpoint, _json(artifact / RECORD)
    for name, form in FORMATS.items():
        if form.name and (artifact / form.name).is_file():
            return name, artifact / form.name, _json(artifact / RECORD)
    if (artifact / RECORD).is_file() and list(artifact.glob("*.onnx")):
        return "onnx", artifact, _json(artifact / RECORD)
    if artifact.is_file() and artifact.suffix == ".onnx":
        return "onnx", artifact, _onnx(artifact)
    if artifact.is_file() and artifact.suffix == ".pb":
        return "frozen", artifact, None
    found = "something else" if artifact.exists() else "nothing"
    raise ReadError(
        artifact, "artifact", expected="a SavedModel, a .pb, an .onnx or an OUT folder", found=found
    )


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as cause:
        raise ReadError(
            path, "file", expected="JSON as this tool writes it", found="a damaged file"
        ) from cause
    return found


def _onnx(path: Path) -> dict[str, Any] | None:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    found = next((entry.value for entry in model.metadata_props if entry.key == "cudnn_convert"), None)
    return None if found is None else json.loads(found)
