"""Inlines functions: all calls of a graph, or a body in place of a node.

`call` puts one body into a graph with TensorFlow 1's control flow: its nodes go under `<node>/`, and the node
itself becomes an IdentityN, so that its outputs `<node>:k` keep their names.

    before:  rnn = CudnnRNN(x, h, c, params)
    after:   rnn/MatMul = MatMul(x, kernel); rnn/Const = Const(^x); ...; rnn = IdentityN(rnn/y, rnn/h, rnn/c)

A body node without inputs gets a control edge on the call's first input: without it the node would stand
outside a `while` frame, which a Session accepts and `tf.saved_model.load` does not (tensorflow v2.21.0
core/common_runtime/graph_constructor.cc checks frames only after function inlining). Loops inside the body
stay functions, named after a hash of their content.

`inline_functions` makes one flat graph of all calls, with unique node names. TensorFlow's own optimizer
replaces each call by its body, whose node `n` becomes `<call>/n`. Loops and branches that hold a cuDNN node
become Switch and Merge nodes, the others stay functions. Nodes that the optimizer adds to every call, and
these calls do not need, are removed again.

    before:  y = PartitionedCall(x, f=layer), and a function layer(a): rnn = CudnnRNN(a, ...)
    after:   y/rnn = CudnnRNN(x, ...); y = Identity(y/rnn)

Source: tensorflow v2.21.0 core/common_runtime/inline_function_utils.cc (names of what it adds),
core/common_runtime/lower_functional_ops.cc (`_lower_using_switch_merge`).
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import control_flow, node_defs, ops
from cudnn_convert.graph.graph import Graph, copy_graph, extract_nodes, import_checked, strip_devices
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
    walk,
)
from cudnn_convert.graph.node_defs import copy_node, with_inputs
from cudnn_convert.graph.passes import cases, channels_last, inference
from cudnn_convert.private import tf_private
from cudnn_convert.text import first_line

_BRANCHES: Final = frozenset({"If", "StatelessIf"})
_HASH_LENGTH: Final = 16
#: Source: tensorflow v2.21.0 compiler/tf2xla/tf2xla_util.h kXlaMustCompileAttr.
_COMPILED: Final = "_XlaMustCompile"


@dataclass(frozen=True, slots=True)
class Body:
    """A traced function: nodes, input ops in order, output tensors `op:k`, and the library."""

    nodes: tuple[NodeDef, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: tuple[tf.DType, ...]
    library: tuple[FunctionDef, ...]


def trace_function(function: Any, *specs: Any) -> Body:
    """Trace a Python function of tensors for `specs`; nodes and names are deterministic."""
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
    """Trace a Python function of tensors; return the FunctionDef, and all FunctionDefs.

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
    """Turn a node into a call of `function`, in place; name and control inputs stay."""
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
    """Prepare a traced graph to run elsewhere: remove devices, defaults and lowered branches."""
    return _branches_as_calls(_without_defaults(strip_devices(graph)))


def _without_defaults(graph: GraphDef) -> GraphDef:
    """Remove attributes at the default, since TensorFlow 1 refuses unknown attributes."""
    holder = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    tf_private.strip_defaults(holder)
    result: GraphDef = holder.graph_def
    return result


def _branches_as_calls(graph: GraphDef) -> GraphDef:
    """Keep branches as functions when a graph runs, to call only the taken branch.

    By default TensorFlow makes Switch nodes of them, and visits the nodes of the other branch too, without
    values: a step that needs no loop then pays for the loop. It must do so where it makes nodes of a loop as
    well: only nodes of the graph itself become ops of oneDNN, whose small products stay on one thread.
    Source: tensorflow v2.21.0 core/common_runtime/mkl_layout_pass.cc (a pass after partitioning).
    """
    nodes = [*all_nodes(graph)]
    if not any(LOWERED in node.attr for node in nodes if node.op not in _BRANCHES):
        for node in nodes:
            if node.op in _BRANCHES:
                node.attr.pop(LOWERED, None)
    return graph


def call(body: Body, name: str, inputs: Sequence[str]) -> list[NodeDef]:
    """Return the nodes computing `body` on `inputs`, ending in an IdentityN called `name`."""
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
    """Map each traced function's name to a name with a hash of the content.

    Traced names have a counter of the process, and TensorFlow keeps functions as long as the process, so that
    one name must never mean two bodies. The functions that a function calls are renamed first.
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
    """Number argument names by position, in place: traced names have a counter."""
    renamed = {arg.name: f"arg_{number}" for number, arg in enumerate(function.signature.input_arg)}
    for arg in function.signature.input_arg:
        arg.name = renamed[arg.name]
    rename_tensors(function, renamed)


def rename_tensors(function: FunctionDef, renamed: Mapping[str, str]) -> None:
    """Rename tensors of a function, in place, in inputs and in returned values."""
    for node in function.node_def:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    for key, name in list(function.ret.items()):
        function.ret[key] = renamed.get(name, name)


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


#: The attribute with the function that a node stood in, and its name there.
ORIGIN: Final = "_cudnn_convert_origin"
#: The attribute by which TensorFlow lowers a loop or a branch when a graph runs.
LOWERED: Final = "_lower_using_switch_merge"
_ADDED: Final = "Func/"
_WAIT: Final = "/done"
#: Attributes that keep TensorFlow from inlining a body.
_APART: Final = ("_noinline", "_XlaMustCompile", "_implements", "api_implements", "api_preferred_device")


def _call_ops(graph: AnyGraph) -> Collection[str]:
    """Return the ops of calls, with the function names of TensorFlow 1 (`Defun`).

    A node of the function's name calls such a function.
    """
    return ops.CALLS | Graph.of(graph).functions.keys()


def needs_inlining(graph: Graph, keep: Iterable[str]) -> bool:
    """Return True if the tensors or ops `keep` need inlining.

    That is so where what they need has calls, a Case, or cuDNN nodes in branches or loops. Only TensorFlow's
    runtime has the op Case.
    """
    index, called = graph.index, _call_ops(graph)
    reaching = functions_reaching(graph, ops.RECURRENCES | cases.OPS | find_replaced_ops(graph))
    needed = (index.nodes[op] for op in index.ancestors(split(name)[0] for name in keep))
    return any(
        node.op in called or node.op in cases.OPS or not reaching.isdisjoint(callees(node)) for node in needed
    )


def find_replaced_ops(graph: AnyGraph) -> frozenset[str]:
    """Return the ops of functions replaced by `channels_last`.

    What holds one in a branch is laid flat.
    """
    nodes = (node for function in graph.library.function for node in function.node_def)
    replaced = {node.op for node in nodes if channels_last.needs_rewriting(node)}
    return frozenset(replaced | ({"Conv2D"} if "DepthwiseConv2dNative" in replaced else set()))


def functions_reaching(graph: AnyGraph, ops: Collection[str]) -> set[str]:
    """Return the library functions with a node of `ops`, directly or by calls."""
    holding, callers = set[str](), defaultdict[str, set[str]](set)
    for name, function in Graph.of(graph).functions.items():
        for node in function.node_def:
            if node.op in ops:
                holding.add(name)
            for called in callees(node):
                callers[called].add(name)
    return set(walk(holding, lambda name: callers[name]))


def flatten(graph: AnyGraph, keep: Collection[str], *, origins: bool = False) -> Graph:
    """Inline the calls needed by `keep`, and fold quantized weights.

    Loop invariants are hoisted where a recurrence stands in a loop: its weights may be among them in a graph
    whose loops TensorFlow lowered when it froze it. `keep` and `origins` as in `inline_functions`. Raises
    InvalidModelError.
    """
    graph = inference.fold_quantized_weights(Graph.of(graph))
    if needs_inlining(graph, keep):
        around = ops.RECURRENCES | find_replaced_ops(graph)
        return inline_functions(graph, keep, origins=origins, around=around)
    frames = control_flow.frames(graph.index) if any(node.op in ops.ENTERS for node in graph.node) else {}
    is_in_loop = any(frames.get(node.name) for node in graph.node if node.op in ops.RECURRENCES)
    return inference.hoist_loop_invariants(graph) if is_in_loop else graph


def inline_functions(
    graph: AnyGraph, keep: Iterable[str], *, origins: bool = False, around: Collection[str] = ops.CUDNN
) -> Graph:
    """Inline all calls, and control flow `around` nodes of some ops; prune to `keep`.

    Control flow is branches and loops; `keep` are tensors or ops. With `origins` each node records the
    function that it stood in, and unread nodes stay: a function runs what has side effects, and cuDNN ops are
    declared to have some. Raises InvalidModelError if TensorFlow refuses.
    """
    wanted = sorted({split(name)[0] for name in keep})
    needed = Graph.of(graph).index.ancestors(wanted)
    whole = strip_devices(extract_nodes(graph, needed))
    _prepare(whole, around)
    if origins:
        _mark(whole)
    import_checked(whole)
    # The optimizer inlines a call with effects only if another node waits for it.
    called = _call_ops(whole)
    calls = [node.name for node in whole.node if node.op in called]
    waits = [node_defs.node(f"{name}{_WAIT}", "NoOp", [f"^{name}"]) for name in calls]
    meta = meta_graph_pb2.MetaGraphDef()
    copy_graph(Graph(whole, [*whole.node, *waits]), meta.graph_def)
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
        raise InvalidModelError("graph", expected="functions that can be inlined", found=actual) from cause
    flat = cases.split_cases(Graph(strip_devices(result)))
    clean = inference.hoist_loop_invariants(_without_additions(flat))
    return clean if origins else extract_nodes(clean, clean.index.ancestors(wanted))


def _prepare(graph: GraphDef, around: Collection[str]) -> None:
    """Allow every body to be inlined; lower control flow `around` some ops.

    These are the ops `around`, and Case: a branch or loop that holds a node of them is lowered. Give each
    placeholder its shape, which TensorFlow's optimizer needs even where it is the default. Changes `graph` in
    place.
    """
    reaching = functions_reaching(graph, cases.OPS.union(around))
    for function in graph.library.function:
        for name in _APART:
            function.attr.pop(name, None)
    for node in graph.node:
        if node.op in ops.PLACEHOLDERS and "shape" not in node.attr:
            node.attr["shape"].shape.unknown_rank = True
    called = _call_ops(graph)
    for node in all_nodes(graph):
        for name in _APART:
            node.attr.pop(name, None)
        is_around = node.op in cases.OPS or not reaching.isdisjoint(callees(node))
        if node.op not in called and (is_around or LOWERED in node.attr):
            node.attr[LOWERED].b = is_around


def _mark(graph: GraphDef) -> None:
    for function in graph.library.function:
        for node in function.node_def:
            node.attr[ORIGIN].s = f"{function.signature.name}\n{node.name}".encode()


def origin(node: NodeDef) -> tuple[str, str] | None:
    """Return the function of a flat graph's node, and the name in the function.

    Returns None outside of functions.
    """
    if ORIGIN not in node.attr:
        return None
    function, name = node.attr[ORIGIN].s.decode().split("\n")
    return function, name


def _without_additions(graph: Graph) -> Graph:
    """Remove the Identity of each argument and each call's wait for all arguments.

    A call that waited for more than its arguments still does. A constant of a loop's condition waits for one
    argument, by which it is in the loop.
    """
    index = graph.index
    around = control_flow.frames(index)
    waits = {node.name: _waits(index, node) for node in graph.node if "/input_control_node/" in node.name}
    passed: dict[str, str] = {}
    nodes = []
    for node in graph.node:
        controls = [name for name in node.input if name.startswith("^")]
        kept = [f"^{waiting}" for name in controls for waiting in _expand(name[1:], waits)]
        inputs = [name for name in node.input if not name.startswith("^")]
        if not inputs and not kept and around.get(node.name):
            wait = next(name[1:] for name in controls if around.get(name[1:]))
            kept = [f"^{_first_argument(index, wait)}"]
        if node.name.startswith(_ADDED) and node.op == "Identity" and not kept:
            passed[node.name] = inputs[0]
        elif node.name not in waits:
            nodes.append((node, [*inputs, *dict.fromkeys(kept)]))
    return Graph(
        graph, (with_inputs(node, [_behind(name, passed) for name in inputs]) for node, inputs in nodes)
    )


def _waits(index: Index, node: NodeDef) -> list[str]:
    """List the ops awaited by a call beside the arguments."""
    scope = node.name.partition("/input_control_node/")[0]
    sources = {
        split(item.input[0])[0]
        for name, item in index.nodes.items()
        if name.startswith(f"{scope}/input/") and item.op == "Identity"
    }
    return [name[1:] for name in node.input if name[1:] not in sources]


def _first_argument(index: Index, name: str) -> str:
    """Return the op behind a wait for arguments, and behind the Identity of an argument."""
    while name.startswith(_ADDED):
        name = split(index.nodes[name].input[0].removeprefix("^"))[0]
    return name


def _expand(name: str, waits: Mapping[str, list[str]]) -> list[str]:
    if name not in waits:
        return [name]
    return [waiting for inner in waits[name] for waiting in _expand(inner, waits)]


def _behind(name: str, passed: Mapping[str, str]) -> str:
    while (op := split(name)[0]) in passed:
        name = f"^{split(passed[op])[0]}" if name.startswith("^") else reference(tensor(passed[op]))
    return name
