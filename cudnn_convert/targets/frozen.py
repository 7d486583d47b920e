"""Writes a frozen graph: one binary GraphDef, tensor names as in the source.

Its provenance is an attribute of its first node: TensorFlow lets any node have attributes whose names begin
with an underscore, and ignores them (tensorflow v2.21.0 core/framework/node_def_util.cc ValidateNodeDef).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorflow.core.framework import graph_pb2

from cudnn_convert.formats import FROZEN_KEY


def write(path: Path, graph: Any, *, provenance: str) -> None:
    """Writes `graph` to `path`; the same graph gives the same bytes."""
    made = graph_pb2.GraphDef()
    made.CopyFrom(graph)
    for node in made.node:  # one that was converted before has its own
        if FROZEN_KEY in node.attr:
            del node.attr[FROZEN_KEY]
    made.node[0].attr[FROZEN_KEY].s = provenance.encode()
    path.write_bytes(made.SerializeToString(deterministic=True))
