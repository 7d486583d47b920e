"""What the variables of CPU-compatible cells cannot hold, asked before a checkpoint of them is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.model import Recurrence


def refuse(path: Path, recurrences: Sequence[Recurrence]) -> None:
    """Raises UnsupportedModelError where cells have no place for a recurrence, with all reasons at once."""
    reasons, what = [], "--format checkpoint: expected"
    dtypes: dict[str, Any] = {}
    for recurrence in recurrences:
        if recurrence.sizes.projection:
            reasons.append(f"{recurrence.node}: {what} no projection, which CudnnCompatibleLSTMCell has not")
        dtype = dtypes.setdefault(recurrence.shared, recurrence.dtype)
        if dtype != recurrence.dtype:
            types = f"{dtype} and {recurrence.dtype}"
            reasons.append(f"{recurrence.node}: {what} one dtype for {recurrence.shared}, found {types}")
    if reasons:
        raise UnsupportedModelError(path, [f"{reason}; take another format" for reason in reasons])
