"""Checks the ops run by loading an artifact's graph.

`verify` takes an artifact of anybody, and TensorFlow's loaders run what its graph says: what restores its
variables, what fills its tables, functions of its objects. Those that may touch no more than that are known.
Source: tensorflow v2.21.0 python/saved_model/load.py (`_load_checkpoint_save_and_restore_functions`,
`_add_object_graph_edges`, which may put a function in the place of any method), load_v1_in_v2.py.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tensorflow.core.framework import graph_pb2, variable_pb2

from cudnn_convert.graph import control_flow, node_defs, ops, safe_ops
from cudnn_convert.graph.control_flow import FunctionCall
from cudnn_convert.graph.graph import Graph, extract_nodes
from cudnn_convert.graph.index import AnyGraph, Index, NodeDef, split, tensor

_CURE: Final = "vouch for the file with --trust"
#: Each writes or reads a variable, a resource or a table that the graph itself has.
_OWN: Final = ops.WRITES | ops.TABLES | ops.FILLS_FROM_TENSORS | {"DestroyResourceOp"}
_LOCAL: Final = "local_variables"
#: The object of the signatures (tensorflow v2.21.0 python/saved_model/signature_serialization.py).
_SIGNATURES: Final = "signature_map"


@dataclass(frozen=True, slots=True)
class Filling:
    """The ops of a loader for filling tables.

    `files` are the tensors that serve only there as paths of assets.
    """

    ops: Collection[str] = ()
    files: Collection[str] = ()


NONE: Final = Filling()


def refuse_graph(path: Path, graph: AnyGraph, ends: Iterable[str]) -> None:
    """Raise UnsupportedModelError if a constant graph runs more than arithmetic for `ends`."""
    nodes = Index(graph).ancestors(split(name)[0] for name in ends)
    safe_ops.refuse(path, extract_nodes(graph, nodes), cure=_CURE)


def refuse(
    path: Path, meta: Any, ends: Iterable[str], tables: Filling = NONE, beside: Sequence[FunctionCall] = ()
) -> None:
    """Raise UnsupportedModelError if loading a graph with variables runs more than arithmetic.

    `ends` are the tensors and ops that run, `beside` calls of functions too.
    """
    graph, index, saver = meta.graph_def, Index(meta.graph_def), meta.saver_def
    _refuse_evaluated(path, graph)
    ran = index.ancestors(split(name)[0] for name in ends)
    filling, files = index.ancestors(tables.ops) - ran, tables.files
    calls, signed = [*_calls(meta.object_graph_def)], [*_signatures(meta.object_graph_def), *beside]
    running = extract_nodes(graph, ran | filling)
    named = control_flow.holding(running, lambda node: files if node.name in filling else (), calls + signed)

    def is_known(node: NodeDef, function: str) -> bool:
        if node.op not in ops.FILLS_FROM_FILE:
            return node.op in _OWN
        name = node.input[1]
        return name in named[function] if function else node.name in filling and tensor(name) in files

    safe_ops.refuse(path, running, cure=_CURE, known=is_known)
    safe_ops.refuse(path, _calling(graph, signed), cure=_CURE, known=is_known)
    safe_ops.refuse(
        path,
        _calling(graph, calls),
        cure=_CURE,
        known=lambda node, function: node.op in ops.TABLE_EXPORTS or is_known(node, function),
    )
    _refuse_restoring(path, graph, index.ancestors([split(saver.restore_op_name)[0]]) - ran, saver)


def _calling(graph: AnyGraph, calls: Iterable[FunctionCall]) -> Graph:
    return Graph(graph, (node_defs.node(call.function, call.function) for call in calls))


def _refuse_restoring(path: Path, graph: AnyGraph, restoring: Collection[str], saver: Any) -> None:
    """Refuse restore ops with a checkpoint different from the loader's."""
    prefix, restored = {tensor(saver.filename_tensor_name)}, extract_nodes(graph, restoring)
    named = control_flow.holding(restored, lambda node: prefix)

    def is_known(node: NodeDef, function: str) -> bool:
        if node.op in ops.RESTORES:
            return node.input[0] in named[function] if function else tensor(node.input[0]) in prefix
        return node.op in _OWN

    safe_ops.refuse(path, restored, cure=_CURE, known=is_known)


def _refuse_evaluated(path: Path, graph: AnyGraph) -> None:
    """Refuse unsafe ops possibly run by importing a graph, even if useless for outputs."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        safe_ops.refuse(path, Graph(graph_pb2.GraphDef(), safe_ops.ops_run_by_import(nodes)), cure=_CURE)


def local_initializers(meta: Any) -> Iterator[str]:
    """Yield the initializers of local variables, absent from every checkpoint."""
    for packed in meta.collection_def[_LOCAL].bytes_list.value if _LOCAL in meta.collection_def else ():
        yield variable_pb2.VariableDef.FromString(packed).initializer_name


def _calls(objects: Any) -> Iterator[FunctionCall]:
    """Yield the functions called for an object by the loader itself."""
    numbers = {
        number
        for node in objects.nodes
        for saveable in node.saveable_objects.values()
        for number in (saveable.save_function, saveable.restore_function)
    }
    for node in objects.nodes:
        is_resource = node.WhichOneof("kind") == "resource"
        numbers |= {
            child.node_id for child in node.children if is_resource or child.local_name.startswith("_")
        }
    yield from _functions(objects, numbers)


def _signatures(objects: Any) -> Iterator[FunctionCall]:
    """Yield the functions offered by the loader as signatures."""
    maps = (node for node in objects.nodes if node.user_object.identifier == _SIGNATURES)
    yield from _functions(objects, {child.node_id for node in maps for child in node.children})


def _functions(objects: Any, numbers: Iterable[int]) -> Iterator[FunctionCall]:
    for number in sorted(numbers):
        if 0 <= number < len(objects.nodes):
            node = objects.nodes[number]
            names = [*node.function.concrete_functions, node.bare_concrete_function.concrete_function_name]
            yield from (FunctionCall(name, _find_captured_assets(objects, name)) for name in names if name)


def _find_captured_assets(objects: Any, function: str) -> tuple[bool, ...]:
    """Return, for each object captured by a function, True if an asset.

    Captured objects are the function's last arguments.
    """
    if function not in objects.concrete_functions:
        return ()
    nodes, bound = objects.nodes, objects.concrete_functions[function].bound_inputs
    return tuple(0 <= k < len(nodes) and nodes[k].WhichOneof("kind") == "asset" for k in bound)
