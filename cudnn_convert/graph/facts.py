"""What a cuDNN node says of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudnn_convert.model import Mode


@dataclass(frozen=True, slots=True)
class Facts:
    """What a cuDNN node says of itself; a number is None where the shape that gives it is not static."""

    node: str
    mode: Mode
    directions: int
    layers: int | None
    units: int | None
    dtype: np.dtype[Any]
    input_size: int | None = None
    input_mode: str = "linear_input"
    projection: int = 0
