"""Allows a file's graph to run only the ops on the list `pure_ops.txt`.

Any other op, of TensorFlow or of a library that registered it, may read or write files, run Python, or have
unknown effects; it runs only if the user vouches for the file. The functions that nodes call are checked
like the nodes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import ops
from cudnn_convert.graph.index import AnyGraph, FunctionDef, NodeDef, callees, walk
from cudnn_convert.private import tf_private

_SHOWN: Final = 3
#: Functions that say the same of themselves: TensorFlow may call one in the place of the other
#: (v2.21.0 core/grappler/optimizers/implementation_selector.cc).
TWINS: Final = "api_implements"


def is_pure(node: NodeDef) -> bool:
    """Return True if the op of a node may run.

    The functions that it calls are not checked.
    """
    if node.op == "PrintV2" and node.attr["output_stream"].s.startswith(b"file:"):
        return False
    return node.op in ops.PURE


def refuse(
    path: object,
    graph: AnyGraph,
    *,
    cure: str,
    doing: str = "verifying",
    known: Callable[[NodeDef, str], bool] = lambda node, function: False,
) -> None:
    """Raise UnsupportedModelError if running `graph` runs an op outside the list.

    `known(node, function)` is true for nodes whose effects are checked already; `function` is the one that
    holds the node, "" for the graph itself, since node names repeat between functions.
    """
    listed: dict[str, list[str]] = {}
    for node, function in _locate_nodes(graph):
        if not known(node, function):
            listed.setdefault(node.op, []).append(node.name)
    if listed:
        reasons = [
            f"{', '.join(names[:_SHOWN])}: expected arithmetic only while {doing}, found {op}; {cure}"
            for op, names in sorted(listed.items())
        ]
        raise UnsupportedModelError(path, reasons)


def others(graph: AnyGraph) -> Iterator[NodeDef]:
    """Yield the forbidden nodes of a graph and of the called functions."""
    return (node for node, _ in _locate_nodes(graph))


def _locate_nodes(graph: AnyGraph) -> Iterator[tuple[NodeDef, str]]:
    """Yield the nodes of `others`, each with the function, "" for the graph itself."""
    library: dict[str, list[FunctionDef]] = {}
    twins: dict[bytes, list[str]] = {}
    for function in graph.library.function:
        library.setdefault(function.signature.name, []).append(function)
        if TWINS in function.attr:
            twins.setdefault(function.attr[TWINS].s, []).append(function.signature.name)
    names, todo = frozenset(library), [(node, "") for node in graph.node]
    for node, inside in todo:  # which grows
        # Where a function has the name of a known op, TensorFlow may run either.
        if not is_pure(node) and (node.op not in names or tf_private.find_op(node.op) is not None):
            yield node, inside
        called = callees(node)
        while called:
            for function in library.pop(called.pop(), ()):
                todo += [(inner, function.signature.name) for inner in function.node_def]
                called += twins.pop(function.attr[TWINS].s, ()) if TWINS in function.attr else ()


def ops_run_by_converter(graph: AnyGraph) -> Iterator[NodeDef]:
    """Yield the forbidden nodes run by a converter to fold constants."""
    for node in others(graph):
        definition = tf_private.find_op(node.op)
        if definition is None or not definition.is_stateful:
            yield node


def ops_run_by_import(nodes: Iterable[NodeDef]) -> Iterator[NodeDef]:
    """Yield the forbidden nodes run by TensorFlow on import.

    For static shapes it computes ops on constants, any that it calls stateless: ReadFile too
    (v2.21.0 core/common_runtime/eval_const_tensor.cc).
    """
    by_name = {node.name: node for node in nodes}
    for node in by_name.values():
        if not is_pure(node) and _is_constant(by_name, node):
            yield node


def _is_constant(nodes: Mapping[str, NodeDef], node: NodeDef) -> bool:
    def above(name: str) -> Iterator[str]:
        return (source.partition(":")[0] for source in nodes[name].input if not source.startswith("^"))

    for name in walk([node.name], above):
        # A name that is no node is an argument of the function.
        definition = tf_private.find_op(nodes[name].op) if name in nodes else None
        if definition is None or definition.is_stateful or nodes[name].op in ops.ALL_PLACEHOLDERS:
            return False
    return True
