"""Functions with cuDNN nodes that objects of a SavedModel of TensorFlow 2 have, and that no signature calls.

A program calls them through the object it loads. Here the graph beside the functions calls them too, so that
they are verified as a signature is. Which variable of that graph a function captures is told by the calls
that are there: their last arguments are the captures of the function they call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from cudnn_convert.graph import build, endpoints, flat
from cudnn_convert.graph.index import CUDNN_OPS, Index, split
from cudnn_convert.graph.state import WRITES
from cudnn_convert.model import Signature

_SCOPE: Final = "functions"


def functions(meta: Any, signatures: Mapping[str, Signature]) -> list[str]:
    """The functions that have a cuDNN node which none of the `signatures` reaches."""
    library = {function.signature.name: function for function in meta.graph_def.library.function}
    index = Index(meta.graph_def)
    ends = [split(name)[0] for found in signatures.values() for name in found.outputs.values()]
    nodes = [index.nodes[op] for op in index.ancestors(ends)]
    reached = _reached(library, {name for node in nodes for name in flat.functions(node)})
    return [
        name
        for name in endpoints.needing_gpu(meta)
        if any(_has_cudnn(library[inner]) for inner in _reached(library, {name}) - reached)
    ]


def with_calls(meta: Any, graph: Any, names: Iterable[str]) -> tuple[Any, dict[str, Signature]]:
    """`graph`, the one beside the functions, with a call of each function, and the signature of each call.

    Left out are functions that capture more than variables, or write them: no call of theirs stands alone.
    """
    library = {function.signature.name: function for function in graph.library.function}
    variables, nodes, found = _variables(meta), [], {}
    for number, name in enumerate(names):
        op = f"{_SCOPE}/call_{number}"  # a function's name may have letters that a node's may not
        bound = meta.object_graph_def.concrete_functions[name].bound_inputs
        inner = [node for one in _reached(library, {name}) for node in library[one].node_def]
        if all(held in variables for held in bound) and not any(node.op in WRITES for node in inner):
            made = [*endpoints.call(op, library[name], [variables[held] for held in bound])]
            nodes += made
            inputs = {node.name.rpartition("/")[2]: f"{node.name}:0" for node in made[:-1]}
            outputs = {
                argument.name: f"{op}:{place}"
                for place, argument in enumerate(library[name].signature.output_arg)
            }
            found[name] = Signature(inputs, outputs)
    return build.with_nodes(graph, [*graph.node, *nodes]), found


def _variables(meta: Any) -> dict[int, str]:
    """The variables of the graph by the objects they are."""
    index, concrete = Index(meta.graph_def), meta.object_graph_def.concrete_functions
    found = {}
    for node in meta.graph_def.node:
        name = node.attr["f"].func.name if node.op in flat.CALLS else ""
        bound = concrete[name].bound_inputs if name in concrete else ()
        for held, source in zip(bound, index.data_inputs(node)[-len(bound) :], strict=False):
            op, _ = split(source)
            if index.nodes[op].op == "VarHandleOp":
                found[held] = op
    return found


def _has_cudnn(function: Any) -> bool:
    return any(node.op in CUDNN_OPS for node in function.node_def)


def _reached(library: Mapping[str, Any], names: Collection[str]) -> set[str]:
    """The functions of `names`, and all that they call."""
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = todo.pop()
        if name in library and name not in found:
            found.add(name)
            todo += [called for node in library[name].node_def for called in flat.functions(node)]
    return found
