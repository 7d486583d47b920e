"""The flags of a conversion, checked. Imports nothing heavy: the command line takes its choices here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UsageError
from cudnn_convert.formats import FORMATS

WEIGHTS: Final = ("auto", "canonical", "raw", "ema")
LOWERINGS: Final = ("fast", "portable")


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of a conversion, by their own names."""

    format: str = "savedmodel"
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    set: Sequence[str] = ()
    weights: str = "auto"
    opset: int = 17
    lowering: str = "fast"
    data: Path | None = None
    atol: float | None = None
    rtol: float | None = None
    verify: bool = True
    trust: bool = False
    force: bool = False
    progress: Callable[[str], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        for flag, value, choices in (
            ("--format", self.format, tuple(FORMATS)),
            ("--weights", self.weights, WEIGHTS),
            ("--lowering", self.lowering, LOWERINGS),
        ):
            if value not in choices:
                raise UsageError(f"{flag}: expected {', '.join(choices)}, found {value!r}")
        for flag, bound in (("--atol", self.atol), ("--rtol", self.rtol)):
            if bound is not None and not 0 <= bound < math.inf:
                raise UsageError(f"{flag}: expected a number of at least 0, found {bound}")
