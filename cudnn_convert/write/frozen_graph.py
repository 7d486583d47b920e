"""A frozen graph: one binary GraphDef, tensor names as in the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(path: Path, graph: Any) -> None:
    """Writes `graph` to `path`; the same graph gives the same bytes."""
    path.write_bytes(graph.SerializeToString(deterministic=True))
