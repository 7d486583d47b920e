"""Opens a frozen graph in a Session, by the tensor names of a signature."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cudnn_convert.artifacts import checkpoint, runners
from cudnn_convert.formats import FROZEN_KEY
from cudnn_convert.model import Array, Part


def provenance(path: Path) -> dict[str, Any] | None:
    """Read the provenance carried by a node of the graph.

    Returns None if there is none.
    """
    from google.protobuf.message import DecodeError

    try:
        nodes = load_graph(path)[0].graph_def.node
    except (DecodeError, ValueError):  # what it is, the runtime will say
        return None
    text = next((node.attr[FROZEN_KEY].s for node in nodes if FROZEN_KEY in node.attr), None)
    return None if text is None else runners.parse_provenance(path, text)


def check(path: Path, parts: Sequence[Part], trust: bool) -> None:
    """Raise UnsupportedModelError if calling `parts` runs more than arithmetic."""
    if trust:
        return
    from cudnn_convert.artifacts import safety

    graph = load_graph(path)[0].graph_def
    safety.refuse_graph(path, graph, runners.outputs_of_graph(path, graph, parts))


def open_parts(path: Path, parts: Sequence[Part], vouched: object) -> list[runners.Runner]:
    """Open a session for each part, run by the tensor names of the signature."""
    return [_open(path, part) for part in parts]


def _open(path: Path, part: Part) -> runners.Runner:
    from cudnn_convert.graph.graph import import_graph, open_session
    from cudnn_convert.graph.session import answering

    graph = load_graph(path)[0].graph_def
    session = open_session(import_graph(graph))
    ops = {node.name for node in graph.node}
    return answering(session, *runners.pair_tensors(path, part.signature, ops))


def interfaces(path: Path, vouched: object) -> list[runners.Interface]:
    """Return the signature in the provenance."""
    return checkpoint.graph_interfaces(path, load_graph(path)[0].graph_def, provenance(path))


def arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield the constants of the graph."""
    yield from checkpoint.constants(load_graph(path)[0].graph_def)


def load_graph(path: Path) -> tuple[Any, None]:
    """Return the graph in a MetaGraphDef.

    The None beside it says that it has no variables.
    """
    from tensorflow.core.protobuf import meta_graph_pb2

    meta = meta_graph_pb2.MetaGraphDef()
    meta.graph_def.ParseFromString(path.read_bytes())
    return meta, None
