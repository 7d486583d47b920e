"""What an artifact's own graph may run where it is loaded and called: as of a source, arithmetic alone.

`verify` takes an artifact of anybody, and TensorFlow's loaders run what its graph says: what restores its
variables, what fills its tables, functions of its objects. Those that may touch no more than that are known.
Source: tensorflow v2.21.0 python/saved_model/load.py (`_load_checkpoint_save_and_restore_functions`,
`_add_object_graph_edges`, which may put a function in the place of any method), load_v1_in_v2.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tensorflow.core.framework import graph_pb2, node_def_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.graph import build, pure
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.graph.state import WRITES
from cudnn_convert.graph.tables import FILLS, FROM_FILE, TABLES
from cudnn_convert.model import Part
from cudnn_convert.read import assets, hdf5, keras_archive, meta_graph
from cudnn_convert.read.hdf5 import Store
from cudnn_convert.verification import elsewhere

_CURE: Final = "vouch for the file with --trust"
#: Each writes or reads a variable, a resource or a table that the graph itself has.
_OWN: Final = WRITES | TABLES | {"LookupTableExportV2", "DestroyResourceOp"}
_RESTORES: Final = frozenset({"RestoreV2", "RestoreSlice", "Restore"})
_LOCAL: Final = "local_variables"


def refuse(form: str, path: Path, parts: Iterable[Part]) -> None:
    """Raises UnsupportedModelError where loading and calling `parts` runs more than arithmetic."""
    if form in _REFUSALS:
        _REFUSALS[form](path, [*parts])


def _saved_model(path: Path, parts: Collection[Part]) -> None:
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    for meta in saved.meta_graphs:
        found = meta_graph.signatures(meta)
        named = [found[part.name] for part in parts if part.name in found] or [*found.values()]
        ends = [name for one in named for name in one.outputs.values()]
        _refuse(path, meta, [*ends, *meta_graph.initializers(meta), *_local(meta)], assets.listed(meta, path))


def _checkpoint(path: Path, parts: Collection[Part]) -> None:
    meta = meta_graph_pb2.MetaGraphDef.FromString(Path(f"{path}.meta").read_bytes())
    _refuse(path, meta, _outputs(path, meta.graph_def, parts), {})


def _frozen(path: Path, parts: Collection[Part]) -> None:
    graph = graph_pb2.GraphDef.FromString(path.read_bytes())
    ends = _outputs(path, graph, parts)
    pure.refuse(path, build.kept(graph, Index(graph).ancestors(split(name)[0] for name in ends)), cure=_CURE)


def _outputs(path: Path, graph: Any, parts: Collection[Part]) -> list[str]:
    ops = {node.name for node in graph.node}
    return [name for part in parts for name in elsewhere.tensors(path, part.signature, ops)[1].values()]


def _refuse(path: Path, meta: Any, ends: Iterable[str], files: Mapping[str, Path]) -> None:
    """Of a graph with variables: `ends` are the tensors and ops that run, `files` what its tables read."""
    graph, index, saver = meta.graph_def, Index(meta.graph_def), meta.saver_def
    _refuse_evaluated(path, graph)
    known = _known(index, {split(name)[0] for name in files})
    ran = index.ancestors(split(name)[0] for name in ends)
    pure.refuse(path, build.kept(graph, ran), cure=_CURE, known=known)
    called = build.with_nodes(graph, _calls(meta.object_graph_def))
    pure.refuse(path, called, cure=_CURE, known=known)
    restoring = build.kept(graph, index.ancestors([split(saver.restore_op_name)[0]]) - ran)
    pure.refuse(path, restoring, cure=_CURE, known=lambda node: node.op in _RESTORES or known(node))


def _refuse_evaluated(path: Path, graph: Any) -> None:
    """Of what loaders import, all that they may run by that, whether anything needs it or not."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        pure.refuse(path, build.with_nodes(graph_pb2.GraphDef(), pure.evaluated(nodes)), cure=_CURE)


def _known(index: Index, files: Collection[str]) -> Callable[[Any], bool]:
    def known(node: Any) -> bool:
        if node.op in FROM_FILE:
            # In a function the name of a file is an argument: what the loader binds it to is listed.
            op = split(tensor(node.input[1]))[0]
            return op in files or (op not in index.nodes and ":" not in node.input[1])
        return node.op in _OWN or node.op in FILLS

    return known


def _local(meta: Any) -> Iterator[str]:
    """What a loader gives variables their values by that no checkpoint holds."""
    for packed in meta.collection_def[_LOCAL].bytes_list.value if _LOCAL in meta.collection_def else ():
        yield variable_pb2.VariableDef.FromString(packed).initializer_name


def _calls(objects: Any) -> Iterator[Any]:
    """A node that calls each function that the loader may call for an object by itself."""
    numbers = {
        number
        for node in objects.nodes
        for found in node.saveable_objects.values()
        for number in (found.save_function, found.restore_function)
    }
    for node in objects.nodes:
        is_resource = node.WhichOneof("kind") == "resource"
        numbers |= {one.node_id for one in node.children if is_resource or one.local_name.startswith("_")}
    for number in sorted(numbers):
        if 0 <= number < len(objects.nodes):
            found = objects.nodes[number]
            names = [*found.function.concrete_functions, found.bare_concrete_function.concrete_function_name]
            yield from (node_def_pb2.NodeDef(name=name, op=name) for name in names if name)


_REFUSALS: Final[Mapping[str, Callable[[Path, Collection[Part]], None]]] = MappingProxyType(
    {
        "savedmodel": _saved_model,
        "checkpoint": _checkpoint,
        "frozen": _frozen,
        "keras": lambda path, _: keras_archive.require_whole(path),
        "h5": lambda path, _: hdf5.require_whole(Store(path)),
    }
)
