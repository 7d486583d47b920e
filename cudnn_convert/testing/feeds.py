"""The calls to compare on, as users give them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cudnn_convert.errors import UsageError
from cudnn_convert.model import Array
from cudnn_convert.testing.sides import UNNAMED, array, is_array
from cudnn_convert.verification import arrays


def calls(given: Any) -> list[dict[str, Array]]:
    """The arrays of each call by input. Raises UsageError.

    `given`: a mapping, an array for the only input, a sequence of either, or the path of an `.npz` with an
    array for each input, by key, or with those of several calls as `feed0/KEY`; or that of a recording.
    """
    if isinstance(given, str | os.PathLike):
        found: Sequence[Any] = of_file(Path(given))
    else:
        found = [*given] if isinstance(given, list | tuple) else [given]
    if not found:
        raise UsageError("feeds: expected at least one call, found none")
    return [_call(call, f"feeds: call {k}") for k, call in enumerate(found, 1)]


def of_recording(given: Any) -> list[dict[str, Array]]:
    """What the recording at a path was fed. Raises UsageError for anything else."""
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".npz":
        path = Path(given)
        if is_recording(arrays.load(path, flag="feeds")):
            return calls(path)
    raise UsageError(
        "feeds: expected arrays, found none; a recording alone, given as expected, brings its own"
    )


def of_file(path: Path) -> Sequence[Mapping[str, Array]]:
    """The calls in an `.npz`, what was fed alone where it is a recording."""
    found = arrays.load(path, flag="feeds")
    if is_recording(found):
        from cudnn_convert.verification import recording

        return recording.read(path).feeds
    return arrays.calls(found, where=f"feeds {path}")


def is_recording(found: Mapping[str, Array]) -> bool:
    """Whether the arrays of a file are those that `record` writes."""
    return "meta" in found and any(key.startswith("feed0/") for key in found)


def _call(given: Any, where: str) -> dict[str, Array]:
    if is_array(given):
        return {UNNAMED: array(given, where)}
    if not isinstance(given, Mapping):
        raise UsageError(f"{where}: expected a mapping of arrays or an array, found a {type(given).__name__}")
    return {str(key): array(value, f"{where}: {key}") for key, value in given.items()}
