"""Every dialect in which a checkpoint may hold weights beside, or instead of, a parameter blob."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

from cudnn_convert.model import CanonicalParameters, Tensor
from cudnn_convert.read import contrib_names, keras_names, region_names

#: One file each, with `find(path, tensors)`.
DIALECTS: Final[tuple[ModuleType, ...]] = (contrib_names, region_names, keras_names)


def find(path: Path, tensors: Mapping[str, Tensor]) -> tuple[CanonicalParameters, ...]:
    """Every set of canonical keys among `tensors`. Raises ReadError where one is incomplete."""
    return tuple(found for dialect in DIALECTS for found in dialect.find(path, tensors))
