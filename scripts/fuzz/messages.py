"""Mutations of protocol buffers by their fields: any message, and what makes a graph a graph."""

from __future__ import annotations

import random
from typing import Any

from octets import NUMBERS
from tensorflow.core.framework import types_pb2

_WORDS = (
    "",
    "x",
    "a/b:0",
    "^x",
    "x:99999999999",
    "x:-1",
    "\n",
    "a" * 3000,
    "../../x",
    "\u00e9",
    "^",
    ":",
    "::0",
)
_OPS = ("CudnnRNN", "CudnnRNNV3", "Const", "Identity", "PyFunc", "PartitionedCall", "StatefulPartitionedCall")
_OPS += ("While", "If", "Case", "Placeholder", "VarHandleOp", "Merge", "Enter", "NextIteration", "NoSuchOp")
_MOST = 4
_STEPS = 30


def mutated(rng: random.Random, message: Any) -> None:
    """Changes a message in one to four places."""
    for _ in range(rng.randint(1, _MOST)):
        if rng.random() < 0.5 and (bodies := _bodies(message)):
            _change_body(rng, message, rng.choice(bodies))
        else:
            _change(rng, message)


def _change(rng: random.Random, message: Any) -> None:
    """One field, somewhere below a message."""
    for _ in range(_STEPS):
        fields = message.ListFields()
        if not fields or rng.random() < 0.05:
            break
        field, value = rng.choice(fields)
        if field.message_type is None:
            break
        if field.message_type.GetOptions().map_entry:
            below = value[rng.choice(sorted(value))]
            if not hasattr(below, "ListFields"):
                return
        else:
            below = rng.choice(value) if hasattr(value, "extend") else value
        if rng.random() < 0.12:
            _change_whole(rng, message, field, value)
            return
        message = below
    scalars = [field for field in message.DESCRIPTOR.fields if field.message_type is None]
    if scalars:
        _change_scalar(rng, message, rng.choice(scalars))


def _change_whole(rng: random.Random, message: Any, field: Any, value: Any) -> None:
    """A message, or one of several: left out, said twice, or in another place."""
    if field.message_type.GetOptions().map_entry:
        key = rng.choice(sorted(value))
        other = rng.choice(sorted(value))
        if rng.random() < 0.5 or key == other:
            del value[key]
        elif hasattr(value[key], "CopyFrom"):
            value[key].CopyFrom(value[other])
    elif not hasattr(value, "extend"):
        message.ClearField(field.name)
    else:
        place = rng.randrange(len(value))
        kind = rng.randrange(3)
        if kind == 0:
            del value[place]
        elif kind == 1:
            value.add().CopyFrom(value[place])
        else:
            value[rng.randrange(len(value))].CopyFrom(value[place])


def _change_scalar(rng: random.Random, message: Any, field: Any) -> None:
    made, held = _scalar(rng, field), getattr(message, field.name)
    if not hasattr(held, "extend"):
        setattr(message, field.name, made)
        return
    kind = rng.randrange(4) if held else 0
    if kind == 0:
        held.extend([made] * rng.choice((1, 1, 5)))
    elif kind == 1:
        held[rng.randrange(len(held))] = made
    elif kind == 2:
        del held[rng.randrange(len(held))]
    else:
        held.extend([*held])  # itself has no end in protobuf 4


def _scalar(rng: random.Random, field: Any) -> Any:
    kind = field.cpp_type
    if kind == field.CPPTYPE_STRING:
        word = rng.choice((*_WORDS, *_OPS))
        return word.encode() + rng.choice((b"", b"\xff")) if field.type == field.TYPE_BYTES else word
    if kind == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind == field.CPPTYPE_ENUM:
        return rng.choice([*(value.number for value in field.enum_type.values), 9999])
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30, -0.0))
    number = rng.choice((*NUMBERS, *range(-3, 10)))
    bits = 32 if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    number %= 2**bits
    signed = kind in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    return number - 2**bits if signed and number >> (bits - 1) else number


def _bodies(message: Any) -> list[Any]:
    """The lists of nodes of a GraphDef, MetaGraphDef or SavedModel: the graph's, and each function's."""
    metas = getattr(message, "meta_graphs", [message])
    graphs = [getattr(meta, "graph_def", meta) for meta in metas]
    found = [graph.node for graph in graphs if hasattr(graph, "library")]
    functions = [
        one.node_def for graph in graphs if hasattr(graph, "library") for one in graph.library.function
    ]
    return [body for body in (*found, *functions) if body]


def _change_body(rng: random.Random, message: Any, body: Any) -> None:
    """One node of a graph or of a function."""
    node, other = rng.choice(body), rng.choice(body)
    names = [one.signature.name for graph in _libraries(message) for one in graph.function]
    kind = rng.randrange(9)
    if kind == 0:
        body.remove(node)
    elif kind == 1:
        body.add().CopyFrom(node)
    elif kind == 2:
        node.name = other.name
    elif kind in (3, 4) and node.input:
        at = rng.choice(("", ":0", ":1", ":out:0", ":99"))
        node.input[rng.randrange(len(node.input))] = (
            rng.choice((other.name, node.name, f"^{other.name}")) + at
        )
    elif kind == 5:
        node.op = rng.choice((*_OPS, other.op, *names))
    elif kind == 6 and names:
        called = [node.attr[key] for key in sorted(node.attr) if node.attr[key].func.name]
        for attr in called or [node.attr["f"]]:
            attr.func.name = rng.choice(names)
    elif kind == 7 and node.attr:
        attr = node.attr[rng.choice(sorted(node.attr))]
        if attr.type:
            attr.type = rng.choice([*types_pb2.DataType.values()])
        else:
            _change(rng, attr)
    else:
        node.input.append(rng.choice((other.name, node.name, f"^{node.name}", f"^{other.name}")))


def _libraries(message: Any) -> list[Any]:
    metas = getattr(message, "meta_graphs", [message])
    graphs = [getattr(meta, "graph_def", meta) for meta in metas]
    return [graph.library for graph in graphs if hasattr(graph, "library")]
