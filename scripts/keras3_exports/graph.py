"""Which cuDNN nodes a signature of a SavedModel reaches, by its proto alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tensorflow.core.protobuf import saved_model_pb2


def meta_graph(folder: Path) -> Any:
    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString((folder / "saved_model.pb").read_bytes())
    (found,) = proto.meta_graphs
    return found


def reached(graph: Any, signature: str) -> list[Any]:
    """The CudnnRNN nodes behind a signature's outputs, and in every function called on the way."""
    nodes = {node.name: node for node in graph.graph_def.node}
    library = {function.signature.name: function for function in graph.graph_def.library.function}
    waiting = [info.name for info in graph.signature_def[signature].outputs.values()]
    found: list[Any] = []
    seen: set[str] = set()
    while waiting:
        name = waiting.pop().lstrip("^").split(":")[0]
        if name in seen:
            continue
        seen.add(name)
        found.extend(within(library, nodes[name], set()))
        waiting.extend(nodes[name].input)
    return found


def within(library: dict[str, Any], node: Any, seen: set[str]) -> Iterator[Any]:
    """The node itself where it is a CudnnRNN, and those of the functions that it names."""
    if node.op in ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"):
        yield node
    for name in functions(node):
        if name in library and name not in seen:
            seen.add(name)
            for inner in library[name].node_def:
                yield from within(library, inner, seen)


def functions(node: Any) -> Iterable[str]:
    if node.op:
        yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)
