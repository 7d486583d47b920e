"""Putting a function's body in place of a node, in a graph with TensorFlow 1's control flow.

The body's nodes go under `<node>/`, and the node itself becomes an IdentityN of its old name, so that
`<node>:0` and the others stay what they were. A body node without inputs gets a control edge on the call's
first input: without it the node would stand outside a `while` frame, which a Session forgives and
`tf.saved_model.load` does not (tensorflow v2.21.0 core/common_runtime/graph_constructor.cc checks frames
only after function inlining). Loops inside the body stay functions, named after a hash of their content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.framework import meta_graph

from cudnn_convert.graph import build
from cudnn_convert.graph.flat import LOWERED
from cudnn_convert.graph.index import reference, split

_BRANCHES: Final = frozenset({"If", "StatelessIf"})
_HASH_LENGTH: Final = 16
#: Source: tensorflow v2.21.0 compiler/tf2xla/tf2xla_util.h kXlaMustCompileAttr.
_COMPILED: Final = "_XlaMustCompile"


@dataclass(frozen=True, slots=True)
class Body:
    """A traced function: its nodes, the ops that stand for its inputs in order, and its outputs `op:k`."""

    nodes: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dtypes: tuple[tf.DType, ...]
    library: tuple[Any, ...]


def traced(function: Any, *specs: Any) -> Body:
    """The body of a Python function of tensors, traced for `specs`; same nodes and names every time."""
    concrete = tf.function(function, autograph=False).get_concrete_function(*specs)
    graph = _as_kept(concrete.graph.as_graph_def())
    renamed = _hashed_names(graph.library.function)
    inputs = tuple(split(found.name)[0] for found in concrete.inputs)
    nodes = [_renamed(node, renamed) for node in graph.node if node.name not in inputs]
    library = tuple(_renamed_function(found, renamed) for found in graph.library.function)
    outputs, dtypes = zip(*((found.name, found.dtype) for found in concrete.outputs), strict=True)
    return Body(tuple(nodes), inputs, outputs, dtypes, library)


def library(function: Any, *specs: Any, compiled: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """A Python function of tensors as functions of a library: its own, and all of them.

    `compiled`: XLA compiles it for the shapes of each call, or refuses to.
    """
    made = tf.function(function, autograph=False, jit_compile=compiled or None)
    concrete = made.get_concrete_function(*specs)
    graph = concrete.graph.as_graph_def()
    graph.library.function.add().CopyFrom(concrete.function_def)
    graph = _as_kept(graph)
    renamed = _hashed_names(graph.library.function)
    functions = {found.signature.name: _renamed_function(found, renamed) for found in graph.library.function}
    return functions[concrete.function_def.signature.name], tuple(functions.values())


def calls(node: Any, function: Any, inputs: Sequence[str]) -> None:
    """Makes a node the call of a library's function; its name stays, and its control inputs."""
    controls = [name for name in node.input if name.startswith("^")]
    node.op = "PartitionedCall"
    node.ClearField("attr")
    del node.input[:]
    node.input.extend([*inputs, *controls])
    node.attr["f"].func.name = function.signature.name
    for key, arguments in (("Tin", function.signature.input_arg), ("Tout", function.signature.output_arg)):
        node.attr[key].list.type.extend(argument.type for argument in arguments)
    if _COMPILED in function.attr:
        node.attr[_COMPILED].CopyFrom(function.attr[_COMPILED])


def _as_kept(graph: Any) -> Any:
    """What was traced here, for a graph that runs elsewhere."""
    return _branches_as_calls(_without_defaults(build.placed(graph)))


def _without_defaults(graph: Any) -> Any:
    """Attributes at their default go: TensorFlow 1 refuses those that it does not know."""
    holder = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    meta_graph.strip_graph_default_valued_attrs(holder)
    return holder.graph_def


def _branches_as_calls(graph: Any) -> Any:
    """Branches stay functions when a graph runs, of which one is called.

    Made of Switch nodes, as TensorFlow asks for by itself, the other's nodes all run too, if without values:
    a step that needs no loop then pays for the loop.
    """
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for node in nodes:
            if node.op in _BRANCHES:
                node.attr.pop(LOWERED, None)
    return graph


def call(body: Body, name: str, inputs: Sequence[str]) -> list[Any]:
    """The nodes that compute `body` on `inputs`, ending in an IdentityN called `name`."""
    renamed = dict(zip(body.inputs, inputs, strict=True))
    anchor = f"^{split(inputs[0])[0]}"
    made = []
    for node in body.nodes:
        copy = node_def_pb2.NodeDef()
        copy.CopyFrom(node)
        copy.name = f"{name}/{node.name}"
        del copy.input[:]
        copy.input.extend(_moved(found, name, renamed) for found in node.input)
        if not node.input:
            copy.input.append(anchor)
        made.append(copy)
    outputs = [_moved(found, name, renamed) for found in body.outputs]
    return [*made, build.node(name, "IdentityN", map(reference, outputs), T=list(body.dtypes))]


def _moved(found: str, name: str, renamed: Mapping[str, str]) -> str:
    if found.startswith("^"):
        return f"^{name}/{found[1:]}"
    op, k = split(found)
    return renamed[op] if op in renamed else reference(f"{name}/{op}:{k}")


def _hashed_names(functions: Sequence[Any]) -> dict[str, str]:
    """Traced functions carry a counter of the process in their names; a content hash is the same everywhere.

    TensorFlow keeps functions of a process for good, so one name must never mean two bodies. What a function
    calls is part of what it is, and named first.
    """
    renamed: dict[str, str] = {}
    todo = list(functions)
    while todo:
        function = next(found for found in todo if not _called(found) - renamed.keys())
        todo.remove(function)
        anonymous = _renamed_function(function, {**renamed, function.signature.name: ""})
        digest = hashlib.sha256(anonymous.SerializeToString(deterministic=True)).hexdigest()
        kind = function.signature.name.strip("_").rpartition("_")[0] or "body"
        renamed[function.signature.name] = f"cudnn_convert_{kind}_{digest[:_HASH_LENGTH]}"
    return renamed


def _called(function: Any) -> set[str]:
    attributes = [attr for node in function.node_def for attr in node.attr.values()]
    return {attr.func.name for attr in attributes if attr.func.name}


def _canonical_arguments(function: Any) -> None:
    """Argument names hold the counter too; number them by position instead."""
    renamed = {arg.name: f"arg_{number}" for number, arg in enumerate(function.signature.input_arg)}
    for arg in function.signature.input_arg:
        arg.name = renamed[arg.name]
    for node in function.node_def:
        for position, found in enumerate(node.input):
            node.input[position] = renamed.get(found, found)
    for key, found in list(function.ret.items()):
        function.ret[key] = renamed.get(found, found)


def _renamed(node: Any, functions: Mapping[str, str]) -> Any:
    for attr in node.attr.values():
        if attr.func.name:
            attr.func.name = functions[attr.func.name]
    return node


def _renamed_function(function: Any, functions: Mapping[str, str]) -> Any:
    made = function_pb2.FunctionDef()
    made.CopyFrom(function)
    _canonical_arguments(made)
    made.signature.name = functions[function.signature.name]
    for node in made.node_def:
        _renamed(node, functions)
    return made
