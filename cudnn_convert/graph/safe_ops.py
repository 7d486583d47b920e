"""Which ops of a file's graph may run: those on the list `pure_ops.txt` alone.

An op that is not on it, of TensorFlow or of a library that registered its own, may read or write files, run
Python, or do what nobody here knows; it runs where the user vouches for the file. Functions are followed
from the nodes that call them, for what a body does the call does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import ops
from cudnn_convert.graph.index import AnyGraph, FunctionDef, NodeDef, callees, walk
from cudnn_convert.private import tf_private

_LIST: Final = "pure_ops.txt"
_STATEFUL: Final = "stateful"
_SHOWN: Final = 3
#: Functions that say the same of themselves: TensorFlow may call one in the place of the other
#: (v2.21.0 core/grappler/optimizers/implementation_selector.cc).
TWINS: Final = "api_implements"


def _sections() -> dict[str, frozenset[str]]:
    """The ops of each section of the list, by the first word of its heading."""
    sections: dict[str, set[str]] = {}
    for block in Path(__file__).with_name(_LIST).read_text(encoding="utf-8").split("\n\n")[1:]:
        heading, _, ops = block.partition("\n")
        sections.setdefault(heading.strip("# ").partition(":")[0], set()).update(ops.split())
    return {heading: frozenset(ops) for heading, ops in sections.items()}


SECTIONS: Final = _sections()
#: Of these TensorFlow keeps something between runs, within the graph itself.
STATEFUL: Final = SECTIONS[_STATEFUL]
PURE: Final[frozenset[str]] = frozenset().union(*SECTIONS.values())


def is_pure(node: NodeDef) -> bool:
    """Whether the op of a node may run; what its functions hold is not looked at."""
    if node.op == "PrintV2" and node.attr["output_stream"].s.startswith(b"file:"):
        return False
    return node.op in PURE


def refuse(
    path: object,
    graph: AnyGraph,
    *,
    cure: str,
    doing: str = "verifying",
    known: Callable[[NodeDef, str], bool] = lambda node, function: False,
) -> None:
    """Raises UnsupportedModelError where running all of `graph` runs an op that is not on the list.

    `known` are nodes whose effects were looked at already, by node and the function it lies in, "" for none:
    a node of a function may have any node's name.
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
    """The nodes of a graph, and of the functions that they call, directly or not, that may not run."""
    return (node for node, _ in _locate_nodes(graph))


def _locate_nodes(graph: AnyGraph) -> Iterator[tuple[NodeDef, str]]:
    """The same nodes, each with the function that it lies in, "" for the graph itself."""
    library: dict[str, list[FunctionDef]] = {}
    twins: dict[bytes, list[str]] = {}
    for function in graph.library.function:
        library.setdefault(function.signature.name, []).append(function)
        if TWINS in function.attr:
            twins.setdefault(function.attr[TWINS].s, []).append(function.signature.name)
    names, todo = frozenset(library), [(node, "") for node in graph.node]
    for node, inside in todo:  # which grows
        # A function of the name of an op of TensorFlow's may be either.
        if not is_pure(node) and (node.op not in names or tf_private.find_op(node.op) is not None):
            yield node, inside
        called = callees(node)
        while called:
            for function in library.pop(called.pop(), ()):
                todo += [(inner, function.signature.name) for inner in function.node_def]
                called += twins.pop(function.attr[TWINS].s, ()) if TWINS in function.attr else ()


def ops_run_by_converter(graph: AnyGraph) -> Iterator[NodeDef]:
    """The nodes that may not run, and yet do where a converter computes what is constant in a graph."""
    for node in others(graph):
        definition = tf_private.find_op(node.op)
        if definition is None or not definition.is_stateful:
            yield node


def ops_run_by_import(nodes: Iterable[NodeDef]) -> Iterator[NodeDef]:
    """The `nodes` of a graph or a function that may not run, and yet do where TensorFlow imports them.

    To tell static shapes it computes ops on constants, any that it calls stateless: ReadFile too
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
        # An argument of a function is no node.
        definition = tf_private.find_op(nodes[name].op) if name in nodes else None
        if definition is None or definition.is_stateful or nodes[name].op in ops.ALL_PLACEHOLDERS:
            return False
    return True
