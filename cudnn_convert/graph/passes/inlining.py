"""Inlines functions: all calls of a graph, or one body in place of one node.

`call` puts one body into a graph with TensorFlow 1's control flow: its nodes go under `<node>/`, and the node
itself becomes an IdentityN of its old name, so that `<node>:0` and the others stay what they were.

    before:  rnn = CudnnRNN(x, h, c, params)
    after:   rnn/MatMul = MatMul(x, kernel); rnn/Const = Const(^x); ...; rnn = IdentityN(rnn/y, rnn/h, rnn/c)

A body node without inputs gets a control edge on the call's first input: without it the node would stand
outside a `while` frame, which a Session forgives and `tf.saved_model.load` does not (tensorflow v2.21.0
core/common_runtime/graph_constructor.cc checks frames only after function inlining). Loops inside the body
stay functions, named after a hash of their content.

`inline_functions` makes one flat graph of all calls, in which every node has a name of its own. TensorFlow's
own optimizer puts the bodies in the place of their calls, a body's node `n` as `<call>/n`. Loops and branches
that hold a cuDNN node become Switch and Merge nodes, the others stay the functions they are. What the
optimizer adds for calls in general and these calls do not need is taken away again.

    before:  y = PartitionedCall(x, f=layer), and a function layer(a): rnn = CudnnRNN(a, ...)
    after:   y/rnn = CudnnRNN(x, ...); y = Identity(y/rnn)

Source: tensorflow v2.21.0 core/common_runtime/inline_function_utils.cc (names of what it adds),
core/common_runtime/lower_functional_ops.cc (`_lower_using_switch_merge`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from cudnn_convert.errors import InvalidModelError, first_line
from cudnn_convert.graph import node_defs, ops
from cudnn_convert.graph.index import (
    AnyGraph,
    FunctionDef,
    GraphDef,
    Index,
    NodeDef,
    all_nodes,
    callees,
    reference,
    split,
    tensor,
)
from cudnn_convert.graph.node_defs import Graph, copy_node, extract_nodes, with_inputs
from cudnn_convert.graph.passes import inference
from cudnn_convert.private import tf_private

_BRANCHES: Final = frozenset({"If", "StatelessIf"})
_HASH_LENGTH: Final = 16
#: Source: tensorflow v2.21.0 compiler/tf2xla/tf2xla_util.h kXlaMustCompileAttr.
_COMPILED: Final = "_XlaMustCompile"


@dataclass(frozen=True, slots=True)
class Body:
    """A traced function: its nodes, the ops that stand for its inputs in order, and its outputs `op:k`."""

    nodes: tuple[NodeDef, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: tuple[tf.DType, ...]
    library: tuple[FunctionDef, ...]


def trace_function(function: Any, *specs: Any) -> Body:
    """The body of a Python function of tensors, traced for `specs`; same nodes and names every time."""
    concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    graph = _as_kept(concrete.graph.as_graph_def())
    renamed = _hash_names(graph.library.function)
    inputs = tuple(split(item.name)[0] for item in concrete.inputs)
    nodes = [_rename(node, renamed) for node in graph.node if node.name not in inputs]
    library = tuple(_rename_function(item, renamed) for item in graph.library.function)
    outputs, dtypes = zip(*((item.name, item.dtype) for item in concrete.outputs), strict=True)
    return Body(tuple(nodes), inputs, outputs, dtypes, library)


def library(
    function: Any, *specs: Any, compiled: bool = False
) -> tuple[FunctionDef, tuple[FunctionDef, ...]]:
    """A Python function of tensors as functions of a library: its own, and all of them.

    `compiled`: XLA compiles it for the shapes of each call, or refuses to.
    """
    compiled_function = tf.function(function, autograph=False, jit_compile=compiled or None)
    concrete = compiled_function.get_concrete_function(*specs)
    graph = concrete.graph.as_graph_def()
    graph.library.function.add().CopyFrom(concrete.function_def)
    graph = _as_kept(graph)
    renamed = _hash_names(graph.library.function)
    functions = {inner.signature.name: _rename_function(inner, renamed) for inner in graph.library.function}
    return functions[concrete.function_def.signature.name], tuple(functions.values())


def make_call(node: NodeDef, function: FunctionDef, inputs: Sequence[str]) -> None:
    """Makes a node the call of a library's function; its name stays, and its control inputs."""
    controls = [name for name in node.input if name.startswith("^")]
    node.op = "PartitionedCall"
    node.ClearField("attr")
    node.ClearField("input")
    node.input.extend([*inputs, *controls])
    node.attr["f"].func.name = function.signature.name
    for key, arguments in (("Tin", function.signature.input_arg), ("Tout", function.signature.output_arg)):
        node.attr[key].list.type.extend(argument.type for argument in arguments)
    if _COMPILED in function.attr:
        node.attr[_COMPILED].CopyFrom(function.attr[_COMPILED])


def _as_kept(graph: GraphDef) -> GraphDef:
    """What was traced here, for a graph that runs elsewhere."""
    return _branches_as_calls(_without_defaults(node_defs.strip_devices(graph)))


def _without_defaults(graph: GraphDef) -> GraphDef:
    """Attributes at their default go: TensorFlow 1 refuses those that it does not know."""
    holder = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    tf_private.strip_defaults(holder)
    result: GraphDef = holder.graph_def
    return result


def _branches_as_calls(graph: GraphDef) -> GraphDef:
    """Branches stay functions when a graph runs, of which one is called.

    Made of Switch nodes, as TensorFlow asks for by itself, the other's nodes all run too, if without values:
    a step that needs no loop then pays for the loop.
    """
    for node in all_nodes(graph):
        if node.op in _BRANCHES:
            node.attr.pop(LOWERED, None)
    return graph


def call(body: Body, name: str, inputs: Sequence[str]) -> list[NodeDef]:
    """The nodes that compute `body` on `inputs`, ending in an IdentityN called `name`."""
    renamed = dict(zip(body.inputs, inputs, strict=True))
    anchor = f"^{split(inputs[0])[0]}"
    nodes = []
    for node in body.nodes:
        moved = [_move_input(source, name, renamed) for source in node.input] or [anchor]
        nodes.append(copy_node(node, name=f"{name}/{node.name}", inputs=moved))
    outputs = [_move_input(source, name, renamed) for source in body.outputs]
    return [*nodes, node_defs.node(name, "IdentityN", map(reference, outputs), T=list(body.dtypes))]


def _move_input(input_name: str, name: str, renamed: Mapping[str, str]) -> str:
    if input_name.startswith("^"):
        return f"^{name}/{input_name[1:]}"
    op, k = split(input_name)
    return renamed[op] if op in renamed else reference(f"{name}/{op}:{k}")


def _hash_names(functions: Sequence[FunctionDef]) -> dict[str, str]:
    """Traced functions carry a counter of the process in their names; a content hash is the same everywhere.

    TensorFlow keeps functions of a process for good, so one name must never mean two bodies. What a function
    calls is part of what it is, and named first.
    """
    renamed: dict[str, str] = {}
    todo = list(functions)
    while todo:
        function = next(candidate for candidate in todo if not _list_callees(candidate) - renamed.keys())
        todo.remove(function)
        anonymous = _rename_function(function, {**renamed, function.signature.name: ""})
        digest = hashlib.sha256(anonymous.SerializeToString(deterministic=True)).hexdigest()
        kind = function.signature.name.strip("_").rpartition("_")[0] or "body"
        renamed[function.signature.name] = f"cudnn_convert_{kind}_{digest[:_HASH_LENGTH]}"
    return renamed


def _list_callees(function: FunctionDef) -> set[str]:
    attributes = [attr for node in function.node_def for attr in node.attr.values()]
    return {attr.func.name for attr in attributes if attr.func.name}


def _canonical_arguments(function: FunctionDef) -> None:
    """Argument names hold the counter too; number them by position instead."""
    renamed = {arg.name: f"arg_{number}" for number, arg in enumerate(function.signature.input_arg)}
    for arg in function.signature.input_arg:
        arg.name = renamed[arg.name]
    for node in function.node_def:
        for position, item in enumerate(node.input):
            node.input[position] = renamed.get(item, item)
    for key, item in list(function.ret.items()):
        function.ret[key] = renamed.get(item, item)


def _rename(node: NodeDef, functions: Mapping[str, str]) -> NodeDef:
    for attr in node.attr.values():
        if attr.func.name:
            attr.func.name = functions[attr.func.name]
    return node


def _rename_function(function: FunctionDef, functions: Mapping[str, str]) -> FunctionDef:
    copy = deepcopy(function)
    _canonical_arguments(copy)
    copy.signature.name = functions[function.signature.name]
    for node in copy.node_def:
        _rename(node, functions)
    return copy


#: The attribute of a node that says which function it stood in, and as which node.
ORIGIN: Final = "_cudnn_convert_origin"
#: The attribute by which TensorFlow puts what a loop or a branch calls in its place when a graph runs.
LOWERED: Final = "_lower_using_switch_merge"
_ADDED: Final = "Func/"
_WAIT: Final = "/done"
#: What keeps a body apart from its call.
_APART: Final = ("_noinline", "_XlaMustCompile", "_implements", "api_implements", "api_preferred_device")


def calls_functions(graph: Graph, keep: Iterable[str]) -> bool:
    """Whether what the tensors or ops `keep` need calls a function of the graph's library."""
    index, library = graph.index, graph.functions
    needed = index.ancestors(split(name)[0] for name in keep)
    return any(index.nodes[op].op in ops.CALLS or index.nodes[op].op in library for op in needed)


def functions_reaching(graph: AnyGraph, ops: Collection[str]) -> set[str]:
    """The functions of a graph's library that hold a node of `ops`, or call one that does."""
    library = Graph.of(graph).functions
    calls = {
        name: {called for node in function.node_def for called in callees(node) if called in library}
        for name, function in library.items()
    }
    reaching = {
        name for name, function in library.items() if any(node.op in ops for node in function.node_def)
    }
    while more := {name for name, called in calls.items() if name not in reaching and called & reaching}:
        reaching |= more
    return reaching


def inline_functions(graph: AnyGraph, keep: Iterable[str], *, origins: bool = False) -> Graph:
    """`graph` down to what the tensors or ops `keep` need, without calls. Raises InvalidModelError.

    With `origins` each node knows the function that it stood in, and those that nothing reads are there too:
    a function runs what has side effects, as a cuDNN op is said to have, wanted or not.
    """
    wanted = sorted({split(name)[0] for name in keep})
    needed = Graph.of(graph).index.ancestors(wanted)
    whole = node_defs.strip_devices(extract_nodes(graph, needed))
    _prepare(whole)
    if origins:
        _mark(whole)
    node_defs.import_checked(whole)
    # A call with effects stays one where nothing waits for it.
    calls = [node.name for node in whole.node if node.op in ops.CALLS]
    waits = [node_defs.node(f"{name}{_WAIT}", "NoOp", [f"^{name}"]) for name in calls]
    meta = meta_graph_pb2.MetaGraphDef()
    node_defs.copy_graph(Graph(whole, [*whole.node, *waits]), meta.graph_def)
    fetched = [*wanted, *(node.name for node in waits)]
    meta.collection_def["train_op"].node_list.value.extend(fetched)
    config = config_pb2.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.min_graph_nodes = -1  # however small the graph is
    rewriting.optimizers.append("function")
    rewriting.meta_optimizer_iterations = rewriting.ONE
    try:
        with tf.Graph().as_default():
            result = tf_private.optimize_graph(config, meta)
    except (ValueError, tf.errors.OpError) as cause:
        actual = first_line(cause)
        raise InvalidModelError("graph", expected="functions that can be laid flat", found=actual) from cause
    clean = inference.hoist_loop_invariants(_without_additions(Graph(node_defs.strip_devices(result))))
    return clean if origins else extract_nodes(clean, clean.index.ancestors(wanted))


def _prepare(graph: GraphDef) -> None:
    """Nothing keeps a body apart from its call; what holds a cuDNN node becomes Switch and Merge nodes."""
    cudnn = functions_reaching(graph, ops.CUDNN)
    for function in graph.library.function:
        for name in _APART:
            function.attr.pop(name, None)
    for node in all_nodes(graph):
        for name in _APART:
            node.attr.pop(name, None)
        if node.op not in ops.CALLS and LOWERED in node.attr:
            node.attr[LOWERED].b = bool(cudnn.intersection(callees(node)))


def _mark(graph: GraphDef) -> None:
    for function in graph.library.function:
        for node in function.node_def:
            node.attr[ORIGIN].s = f"{function.signature.name}\n{node.name}".encode()


def origin(node: NodeDef) -> tuple[str, str] | None:
    """The function that a node of a flat graph stood in and its name there, None at the root."""
    if ORIGIN not in node.attr:
        return None
    function, name = node.attr[ORIGIN].s.decode().split("\n")
    return function, name


def _without_additions(graph: Graph) -> Graph:
    """The graph without the Identity of each argument, and without the wait for all arguments of a call.

    A call that waited for more than its arguments still does.
    """
    index = graph.index
    waits = {node.name: _waits(index, node) for node in graph.node if "/input_control_node/" in node.name}
    passed: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        controls = [name for name in node.input if name.startswith("^")]
        kept = [f"^{waiting}" for name in controls for waiting in _expand(name[1:], waits)]
        inputs = [name for name in node.input if not name.startswith("^")]
        if node.name.startswith(_ADDED) and node.op == "Identity" and not kept:
            passed[node.name] = inputs[0]
        elif node.name not in waits:
            nodes.append((node, [*inputs, *dict.fromkeys(kept)]))
    return Graph(
        graph, (with_inputs(node, [_behind(name, passed) for name in inputs]) for node, inputs in nodes)
    )


def _waits(index: Index, node: NodeDef) -> list[str]:
    """What a call waited for beside its arguments."""
    scope = node.name.partition("/input_control_node/")[0]
    sources = {
        split(item.input[0])[0]
        for name, item in index.nodes.items()
        if name.startswith(f"{scope}/input/") and item.op == "Identity"
    }
    return [name[1:] for name in node.input if name[1:] not in sources]


def _expand(name: str, waits: Mapping[str, list[str]]) -> list[str]:
    if name not in waits:
        return [name]
    return [waiting for inner in waits[name] for waiting in _expand(inner, waits)]


def _behind(name: str, passed: Mapping[str, str]) -> str:
    while True:
        op, k = split(name)
        if op not in passed:
            return name
        name = f"^{split(passed[op])[0]}" if k < 0 else tensor(passed[op]).removesuffix(":0")
