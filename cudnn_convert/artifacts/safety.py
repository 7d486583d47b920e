"""Checks what an artifact's graph would run when it is loaded.

`verify` takes an artifact of anybody, and TensorFlow's loaders run what its graph says: what restores its
variables, what fills its tables, functions of its objects. Those that may touch no more than that are known.
Source: tensorflow v2.21.0 python/saved_model/load.py (`_load_checkpoint_save_and_restore_functions`,
`_add_object_graph_edges`, which may put a function in the place of any method), load_v1_in_v2.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tensorflow.core.framework import graph_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from cudnn_convert.artifacts import pair_names
from cudnn_convert.graph import control_flow, node_defs, safe_ops
from cudnn_convert.graph.control_flow import Call
from cudnn_convert.graph.index import Index, split, tensor
from cudnn_convert.graph.lookup_tables import FILLS, FROM_FILE, TABLES
from cudnn_convert.graph.recurrent_state import WRITES
from cudnn_convert.model import Part
from cudnn_convert.read import graph_def, hdf5, keras_archive
from cudnn_convert.read.hdf5 import Store

_CURE: Final = "vouch for the file with --trust"
#: Each writes or reads a variable, a resource or a table that the graph itself has.
_OWN: Final = WRITES | TABLES | FILLS - FROM_FILE | {"DestroyResourceOp"}
#: What a table holds is read out to be saved; what a model answers may not be a file.
_EXPORTS: Final = frozenset({"LookupTableExport", "LookupTableExportV2"})
_RESTORES: Final = frozenset({"RestoreV2", "RestoreSlice", "Restore"})
_LOCAL: Final = "local_variables"
#: The object of the signatures (tensorflow v2.21.0 python/saved_model/signature_serialization.py).
_SIGNATURES: Final = "signature_map"


@dataclass(frozen=True, slots=True)
class _Filling:
    """The ops by which a loader fills tables, and the tensors that are paths of assets there alone."""

    ops: Collection[str] = ()
    files: Collection[str] = ()


_NONE: Final = _Filling()


def refuse(form: str, path: Path, parts: Iterable[Part]) -> None:
    """Raises UnsupportedModelError where loading and calling `parts` runs more than arithmetic."""
    if form in _REFUSALS:
        _REFUSALS[form](path, [*parts])


def _saved_model(path: Path, parts: Collection[Part]) -> None:
    saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    for meta in saved.meta_graphs:
        found = graph_def.signatures(meta)
        named = [found[part.name] for part in parts if part.name in found] or [*found.values()]
        ends = [name for one in named for name in one.outputs.values()]
        tables = _Filling(graph_def.initializers(meta), graph_def.list_assets(meta, path))
        if len(saved.meta_graphs) == 1 and meta.HasField("object_graph_def"):
            tables = _NONE  # a loader of objects runs nothing of the graph beside them
        library = {function.signature.name for function in meta.graph_def.library.function}
        beside = [Call(name) for name in library & {part.name for part in parts} - found.keys()]
        _refuse(path, meta, [*ends, *_local(meta)], tables, beside)


def _checkpoint(path: Path, parts: Collection[Part]) -> None:
    meta = meta_graph_pb2.MetaGraphDef.FromString(Path(f"{path}.meta").read_bytes())
    _refuse(path, meta, _outputs(path, meta.graph_def, parts))


def _frozen(path: Path, parts: Collection[Part]) -> None:
    graph = graph_pb2.GraphDef.FromString(path.read_bytes())
    ends = _outputs(path, graph, parts)
    safe_ops.refuse(
        path,
        node_defs.extract_nodes(graph, Index(graph).ancestors(split(name)[0] for name in ends)),
        cure=_CURE,
    )


def _outputs(path: Path, graph: Any, parts: Collection[Part]) -> list[str]:
    ops = {node.name for node in graph.node}
    return [name for part in parts for name in pair_names.tensors(path, part.signature, ops)[1].values()]


def _refuse(
    path: Path, meta: Any, ends: Iterable[str], tables: _Filling = _NONE, beside: Sequence[Call] = ()
) -> None:
    """Of a graph with variables: `ends` are the tensors and ops that run, `beside` calls of functions too."""
    graph, index, saver = meta.graph_def, Index(meta.graph_def), meta.saver_def
    _refuse_evaluated(path, graph)
    ran = index.ancestors(split(name)[0] for name in ends)
    filling, files = index.ancestors(tables.ops) - ran, tables.files
    calls, signed = [*_calls(meta.object_graph_def)], [*_signatures(meta.object_graph_def), *beside]
    running = node_defs.extract_nodes(graph, ran | filling)
    named = control_flow.holding(running, lambda node: files if node.name in filling else (), calls + signed)

    def known(node: Any, function: str) -> bool:
        if node.op not in FROM_FILE:
            return node.op in _OWN
        name = node.input[1]
        return name in named[function] if function else node.name in filling and tensor(name) in files

    safe_ops.refuse(path, running, cure=_CURE, known=known)
    safe_ops.refuse(path, _calling(graph, signed), cure=_CURE, known=known)
    safe_ops.refuse(
        path,
        _calling(graph, calls),
        cure=_CURE,
        known=lambda node, function: node.op in _EXPORTS or known(node, function),
    )
    _refuse_restoring(path, graph, index.ancestors([split(saver.restore_op_name)[0]]) - ran, saver)


def _calling(graph: Any, calls: Iterable[Call]) -> Any:
    return node_defs.with_nodes(graph, (node_defs.node(call.function, call.function) for call in calls))


def _refuse_restoring(path: Path, graph: Any, ops: Collection[str], saver: Any) -> None:
    """Of the `ops` that restore variables: they read the checkpoint that the loader names, and no other."""
    prefix = {tensor(saver.filename_tensor_name)}
    named = control_flow.holding(node_defs.extract_nodes(graph, ops), lambda node: prefix)

    def known(node: Any, function: str) -> bool:
        if node.op in _RESTORES:
            return node.input[0] in named[function] if function else tensor(node.input[0]) in prefix
        return node.op in _OWN

    safe_ops.refuse(path, node_defs.extract_nodes(graph, ops), cure=_CURE, known=known)


def _refuse_evaluated(path: Path, graph: Any) -> None:
    """Of what loaders import, all that they may run by that, whether anything needs it or not."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        safe_ops.refuse(
            path, node_defs.with_nodes(graph_pb2.GraphDef(), safe_ops.ops_run_by_import(nodes)), cure=_CURE
        )


def _local(meta: Any) -> Iterator[str]:
    """What a loader gives variables their values by that no checkpoint holds."""
    for packed in meta.collection_def[_LOCAL].bytes_list.value if _LOCAL in meta.collection_def else ():
        yield variable_pb2.VariableDef.FromString(packed).initializer_name


def _calls(objects: Any) -> Iterator[Call]:
    """The functions that the loader calls for an object by itself."""
    numbers = {
        number
        for node in objects.nodes
        for found in node.saveable_objects.values()
        for number in (found.save_function, found.restore_function)
    }
    for node in objects.nodes:
        is_resource = node.WhichOneof("kind") == "resource"
        numbers |= {one.node_id for one in node.children if is_resource or one.local_name.startswith("_")}
    yield from _functions(objects, numbers)


def _signatures(objects: Any) -> Iterator[Call]:
    """The functions that the loader gives as signatures, whatever the graph beside them calls."""
    maps = (node for node in objects.nodes if node.user_object.identifier == _SIGNATURES)
    yield from _functions(objects, {child.node_id for node in maps for child in node.children})


def _functions(objects: Any, numbers: Iterable[int]) -> Iterator[Call]:
    for number in sorted(numbers):
        if 0 <= number < len(objects.nodes):
            found = objects.nodes[number]
            names = [*found.function.concrete_functions, found.bare_concrete_function.concrete_function_name]
            yield from (Call(name, _captured(objects, name)) for name in names if name)


def _captured(objects: Any, function: str) -> tuple[bool, ...]:
    """Whether each object that a function captured, its last arguments, is an asset."""
    if function not in objects.concrete_functions:
        return ()
    return tuple(_is_asset(objects.nodes, k) for k in objects.concrete_functions[function].bound_inputs)


def _is_asset(nodes: Sequence[Any], number: int) -> bool:
    return 0 <= number < len(nodes) and nodes[number].WhichOneof("kind") == "asset"


_REFUSALS: Final[Mapping[str, Callable[[Path, Collection[Part]], None]]] = MappingProxyType(
    {
        "savedmodel": _saved_model,
        "checkpoint": _checkpoint,
        "frozen": _frozen,
        "keras": lambda path, _: keras_archive.require_whole(path),
        "h5": lambda path, _: hdf5.require_whole(Store(path)),
    }
)
