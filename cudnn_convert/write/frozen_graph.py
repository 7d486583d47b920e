"""A frozen graph: one binary GraphDef, tensor names as in the source.

Its provenance is an attribute of its first node: TensorFlow lets any node have attributes whose names begin
with an underscore, and ignores them (tensorflow v2.21.0 core/framework/node_def_util.cc ValidateNodeDef).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tensorflow.core.framework import graph_pb2

_KEY: Final = "_cudnn_convert"


def write(path: Path, graph: Any, *, provenance: str) -> None:
    """Writes `graph` to `path`; the same graph gives the same bytes."""
    made = graph_pb2.GraphDef()
    made.CopyFrom(graph)
    for node in made.node:  # one that was converted before has its own
        if _KEY in node.attr:
            del node.attr[_KEY]
    made.node[0].attr[_KEY].s = provenance.encode()
    path.write_bytes(made.SerializeToString(deterministic=True))


def provenance(path: Path) -> str | None:
    """What `write` said of a graph's origin, None of another tool's. Raises DecodeError for no graph."""
    graph = graph_pb2.GraphDef.FromString(path.read_bytes())
    found = next((node.attr[_KEY].s for node in graph.node if _KEY in node.attr), None)
    return None if found is None else found.decode()
