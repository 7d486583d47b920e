"""A graph of functions as one flat graph, in which every node has a name of its own.

TensorFlow's own optimizer puts the bodies in the place of their calls, a body's node `n` as `<call>/n`. Loops
and branches that hold a cuDNN node become Switch and Merge nodes, the others stay the functions they are.
What the optimizer adds for calls in general and these calls do not need is taken away again.
Source: tensorflow v2.21.0 core/common_runtime/inline_function_utils.cc (names of what it adds),
core/common_runtime/lower_functional_ops.cc (`_lower_using_switch_merge`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.grappler import tf_optimizer

from cudnn_convert.errors import InvalidModelError, first_line
from cudnn_convert.graph import build, invariant
from cudnn_convert.graph.index import CUDNN_OPS, Index, split, tensor

CALLS: Final = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
#: The attribute of a node that says which function it stood in, and as which node.
ORIGIN: Final = "_cudnn_convert_origin"
#: The attribute by which TensorFlow puts what a loop or a branch calls in its place when a graph runs.
LOWERED: Final = "_lower_using_switch_merge"
_ADDED: Final = "Func/"
_WAIT: Final = "/done"
#: What keeps a body apart from its call.
_APART: Final = ("_noinline", "_XlaMustCompile", "_implements", "api_implements", "api_preferred_device")


def calls(graph: Any, keep: Iterable[str]) -> bool:
    """Whether what the tensors or ops `keep` need calls a function of the graph's library."""
    index = Index(graph)
    library = {function.signature.name for function in graph.library.function}
    needed = index.ancestors(split(name)[0] for name in keep)
    return any(index.nodes[op].op in CALLS or index.nodes[op].op in library for op in needed)


def functions(node: Any) -> list[str]:
    """The functions that a node names: those it calls."""
    found = [node.op]
    for attr in node.attr.values():
        found += [attr.func.name] if attr.func.name else [func.name for func in attr.list.func]
    return found


def reaching(graph: Any, ops: Collection[str]) -> set[str]:
    """The functions of a graph's library that hold a node of `ops`, or call one that does."""
    library = {function.signature.name: function for function in graph.library.function}
    calls = {
        name: {called for node in function.node_def for called in functions(node) if called in library}
        for name, function in library.items()
    }
    found = {name for name, function in library.items() if any(node.op in ops for node in function.node_def)}
    while more := {name for name, called in calls.items() if name not in found and called & found}:
        found |= more
    return found


def flattened(graph: Any, keep: Iterable[str], *, origins: bool = False) -> Any:
    """`graph` down to what the tensors or ops `keep` need, without calls. Raises InvalidModelError.

    With `origins` each node knows the function that it stood in, and those that nothing reads are there too:
    a function runs what has side effects, as a cuDNN op is said to have, wanted or not.
    """
    wanted = sorted({split(name)[0] for name in keep})
    made = build.placed(build.kept(graph, Index(graph).ancestors(wanted)))
    _prepare(made)
    if origins:
        _mark(made)
    build.sound(made)
    # A call with effects stays one where nothing waits for it.
    calls = [node.name for node in made.node if node.op in CALLS]
    waits = [build.node(f"{name}{_WAIT}", "NoOp", [f"^{name}"]) for name in calls]
    meta = meta_graph_pb2.MetaGraphDef(graph_def=build.with_nodes(made, [*made.node, *waits]))
    fetched = [*wanted, *(node.name for node in waits)]
    meta.collection_def["train_op"].node_list.value.extend(fetched)
    config = config_pb2.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.min_graph_nodes = -1  # however small the graph is
    rewriting.optimizers.append("function")
    rewriting.meta_optimizer_iterations = rewriting.ONE
    try:
        with tf.Graph().as_default():
            result = tf_optimizer.OptimizeGraph(config, meta)
    except (ValueError, tf.errors.OpError) as cause:
        found = first_line(cause)
        raise InvalidModelError("graph", expected="functions that can be laid flat", found=found) from cause
    clean = invariant.entered(_without_additions(build.placed(result)))
    return clean if origins else build.kept(clean, Index(clean).ancestors(wanted))


def _prepare(graph: Any) -> None:
    """Nothing keeps a body apart from its call; what holds a cuDNN node becomes Switch and Merge nodes."""
    cudnn = reaching(graph, CUDNN_OPS)
    for function in graph.library.function:
        for name in _APART:
            function.attr.pop(name, None)
    bodies = [graph.node, *(function.node_def for function in graph.library.function)]
    for node in (node for nodes in bodies for node in nodes):
        for name in _APART:
            node.attr.pop(name, None)
        if node.op not in CALLS and LOWERED in node.attr:
            node.attr[LOWERED].b = bool(cudnn.intersection(functions(node)))


def _mark(graph: Any) -> None:
    for function in graph.library.function:
        for node in function.node_def:
            node.attr[ORIGIN].s = f"{function.signature.name}\n{node.name}".encode()


def origin(node: Any) -> tuple[str, str] | None:
    """The function that a node of a flat graph stood in and its name there, None at the root."""
    if ORIGIN not in node.attr:
        return None
    function, name = node.attr[ORIGIN].s.decode().split("\n")
    return function, name


def _without_additions(graph: Any) -> Any:
    """The graph without the Identity of each argument, and without the wait for all arguments of a call.

    A call that waited for more than its arguments still does.
    """
    index = Index(graph)
    waits = {node.name: _waits(index, node) for node in graph.node if "/input_control_node/" in node.name}
    passed: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        controls = [name for name in node.input if name.startswith("^")]
        kept = [f"^{found}" for name in controls for found in _expanded(name[1:], waits)]
        inputs = [name for name in node.input if not name.startswith("^")]
        if node.name.startswith(_ADDED) and node.op == "Identity" and not kept:
            passed[node.name] = inputs[0]
        del node.input[:]
        node.input.extend([*inputs, *dict.fromkeys(kept)])
        if node.name not in waits:
            nodes.append(node)
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = _behind(name, passed)
    return build.with_nodes(graph, (node for node in nodes if node.name not in passed))


def _waits(index: Index, node: Any) -> list[str]:
    """What a call waited for beside its arguments."""
    scope = node.name.partition("/input_control_node/")[0]
    sources = {
        split(found.input[0])[0]
        for name, found in index.nodes.items()
        if name.startswith(f"{scope}/input/") and found.op == "Identity"
    }
    return [name[1:] for name in node.input if name[1:] not in sources]


def _expanded(name: str, waits: Mapping[str, list[str]]) -> list[str]:
    if name not in waits:
        return [name]
    return [found for inner in waits[name] for found in _expanded(inner, waits)]


def _behind(name: str, passed: Mapping[str, str]) -> str:
    while True:
        op, k = split(name)
        if op not in passed:
            return name
        name = f"^{split(passed[op])[0]}" if k < 0 else tensor(passed[op]).removesuffix(":0")
