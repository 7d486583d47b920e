"""Frozen graphs: one GraphDef whose variables became constants, binary or text, whatever its file is called.

Written by `tf.graph_util.convert_variables_to_constants` and TensorFlow's `freeze_graph` (0.10-1.15).
Recognised by how a serialised GraphDef begins: with a node, and that with its name and its op. Refused here:
a GraphDef that still has variables, as `tf.train.write_graph` leaves it, for their values are elsewhere.
Source: tensorflow v1.15.0 core/framework/graph.proto, node_def.proto; protobuf 3 encoding of fields 1 and 2.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from cudnn_convert.errors import AGAIN, ReadError, UnsupportedModelError
from cudnn_convert.model import Model
from cudnn_convert.read import assets, graphs

KIND: Final = "frozen graph"
TAGS: Final = False
_HEAD: Final = 2**16
_TEXT: Final = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(?:node|versions|library)\s*:?\s*[{<]")
_OP: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_.>]*")
#: The tags of fields 1 and 2 of a message: a graph's first node, a node's name and op.
_FIRST, _SECOND = 0x0A, 0x12
_VARIABLES: Final = frozenset({"VariableV2", "Variable", "VarHandleOp"})
_SHOWN: Final = 3


def recognise(path: Path) -> Path | None:
    """The file itself where it begins as a GraphDef does."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        head = stream.read(_HEAD)
    return path if _TEXT.match(head) or _is_binary(head) else None


def _is_binary(head: bytes) -> bool:
    """Whether the bytes begin with field 1, and in it a name and the name of an op."""
    try:
        _, place = _length(head, 0, _FIRST)
        name, place = _length(head, place, _FIRST)
        op, start = _length(head, place + name, _SECOND)
    except (IndexError, ValueError):
        return False
    return name > 0 and bool(_OP.fullmatch(head[start : start + op]))


def _length(data: bytes, place: int, tag: int) -> tuple[int, int]:
    """The length of the field of `tag` at `place`, and where its content begins; else ValueError."""
    if data[place] != tag:
        raise ValueError(f"no field {tag}")
    length = 0
    for shift in range(0, 35, 7):
        place += 1
        length |= (data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return length, place + 1
    raise ValueError("a length without an end")


def read(path: Path) -> Model:
    """The model in a file. Raises ReadError, UnsupportedModelError where it is not frozen."""
    graph = _parsed(path)
    left = [node.name for node in graph.node if node.op in _VARIABLES]
    if left:
        shown = ", ".join(left[:_SHOWN]) + (f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else "")
        cure = "freeze it, or give the checkpoint that it belongs to"
        reason = f"graph: expected constants in the place of variables, found the variables {shown}; {cure}"
        raise UnsupportedModelError(path, [reason])
    return Model(path, KIND, graph, {}, assets=assets.beside(graph, path.parent))


def _parsed(path: Path) -> Any:
    from tensorflow.core.framework import graph_pb2

    graph, data = graph_pb2.GraphDef(), path.read_bytes()
    found = "a damaged or cut-off one"
    try:
        if _TEXT.match(data):
            found = "text that is none"
            text_format.Parse(data, graph)
        else:
            graph.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError, text_format.ParseError) as cause:
        raise ReadError(path, "file", expected="a GraphDef", found=found, advice=AGAIN) from cause
    if not graph.node:
        raise ReadError(path, "graph", expected="nodes", found="none", advice=AGAIN)
    graphs.require(path, graph)
    return graph
