"""The targets: what lies at OUT. Imports nothing heavy, so that the command line can list them at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Format:
    """One value of `--format`. `suffix` makes OUT the file itself; else OUT is a folder holding `name`."""

    about: str
    name: str = ""
    suffix: str | None = None

    def target(self, out: Path) -> tuple[bool, Path]:
        """Whether OUT is a folder, and where the artifact itself goes."""
        if self.suffix is not None and out.suffix == self.suffix:
            return False, out
        return True, out / self.name if self.name else out


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "savedmodel": Format("a SavedModel folder, for TensorFlow 1.15 and 2"),
        "frozen": Format("a frozen GraphDef: OUT.pb, or OUT/frozen_graph.pb", "frozen_graph.pb", ".pb"),
        "onnx": Format("an ONNX model: OUT.onnx, or OUT/model.onnx", "model.onnx", ".onnx"),
    }
)
