"""What is attacked: conversions, and the verdict of `cudnn_convert.verify` on an artifact.

Runs in a process of its own, for a runtime may end it on an artifact that is corrupted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from answers import Artifact

#: What a verdict may be. `NOT_REACHED` is equal but for what it names; all but this and `EQUAL` are seen.
EQUAL: Final = "equal"
NOT_REACHED: Final = "not reached"
DIFFERS, UNPROVEN, REFUSED = "differs", "not proven", "refused"
#: The suffix of OUT, by format.
SUFFIXES: Final = {
    "savedmodel": "",
    "frozen": ".pb",
    "checkpoint": "",
    "onnx": ".onnx",
    "tflite": ".tflite",
    "keras": ".keras",
    "h5": ".h5",
}


def convert(source: Path, folder: Path, form: str) -> Artifact | str:
    """The artifact of a format in a folder, or the first line of the refusal."""
    import cudnn_convert
    from cudnn_convert.artifacts import runners

    try:
        cudnn_convert.convert(source, folder / f"out{SUFFIXES[form]}", format=form)
    except cudnn_convert.CudnnConvertError as error:
        return str(error).splitlines()[0]
    _, path, record = runners.identify(folder / f"out{SUFFIXES[form]}")
    assert record is not None
    return Artifact(form, path, record["tensors"]["inputs"], record["tensors"]["outputs"])


def verify(source: Path, artifact: Path) -> tuple[str, str]:
    """The verdict on an artifact, and why."""
    import cudnn_convert

    try:
        found = cudnn_convert.verify(source, artifact)
    except cudnn_convert.VerificationError as error:
        return DIFFERS, str(error).splitlines()[0]
    except cudnn_convert.UnprovenError as error:
        return UNPROVEN, str(error).splitlines()[0]
    except cudnn_convert.CudnnConvertError as error:
        return REFUSED, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    if not found.passed:
        return DIFFERS, "; ".join(found.warnings)
    ops = found.ops
    is_whole = found.end_to_end == "equal" and not (
        ops and (not ops.asked or ops.not_reached or ops.not_looked_at)
    )
    return EQUAL if is_whole else NOT_REACHED, "; ".join(found.warnings)
