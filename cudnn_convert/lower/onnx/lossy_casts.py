"""Lossy casts added by tf2onnx: integers and doubles made floats.

A cast of the source stays, and so do those that our own handlers add, whose names begin with `OWN`. What only
counts sizes, steps or rows has no large numbers: bodies of loops, whose casts are mostly of counters, are not
looked at.

    before:  y = Unique(x), double       after:  y = Cast(Unique(Cast(x, to=float)), to=double)
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from onnx import TensorProto

#: The beginning of the names of nodes that our handlers add (`tf2onnx_ops`).
OWN: Final = "exact/"
_FLOAT, _HALF = TensorProto.FLOAT, TensorProto.FLOAT16
_WIDE: Final = frozenset({TensorProto.INT64, TensorProto.UINT64})
#: Pairs of a type and one that lacks some of its numbers.
_LOSSY: Final = frozenset(
    [
        (TensorProto.DOUBLE, _FLOAT),
        (TensorProto.DOUBLE, _HALF),
        *((kind, to) for kind in (*_WIDE, TensorProto.INT32, TensorProto.UINT32) for to in (_FLOAT, _HALF)),
        *((kind, TensorProto.DOUBLE) for kind in _WIDE),
    ]
)
#: Ops for which tf2onnx divides by how many rows there are, or compares indices.
_COUNTED: Final = frozenset({"SegmentMean", "SparseSegmentMean", "SparseSegmentSqrtN", "StridedSlice"})
#: What counts sizes, or is known.
_SIZES: Final = frozenset({"Shape", "Size", "Const", "Constant", "NonZero"})


def find_lossy(graph: Any, source: Mapping[str, str]) -> dict[str, str]:
    """Describe the lossy casts of the source's ops, by the ops' names.

    `source` has all ops by their names. `graph` is tf2onnx's, before its optimizer.
    """
    losses = {}
    for cast in (node for node in graph.get_nodes() if node.type == "Cast"):
        given, to = cast.graph.get_dtype(cast.input[0]), cast.get_attr_int("to")
        is_ours = cast.name in source or cast.name.startswith(OWN)
        if (given, to) in _LOSSY and not is_ours and holds_data(cast.inputs[0]):
            name = _reader(cast, source)
            if source.get(name, "").removesuffix("WithNumSegments") in _COUNTED:
                continue
            names = [TensorProto.DataType.Name(kind).lower() for kind in (given, to)]
            losses[name] = f"as {names[1]}, which lacks numbers of {names[0]}"
    return losses


def holds_data(node: Any) -> bool:
    """Return True if a node's output holds more than sizes and constants.

    A node that is None is an input.
    """
    seen, todo = set(), [node]
    while todo:
        node = todo.pop()
        if node is None or node.is_graph_input():
            return True
        if node.name not in seen and node.type not in _SIZES:
            seen.add(node.name)
            if not node.inputs:
                return True
            todo += [maker for maker, name in zip(node.inputs, node.input, strict=True) if name]
    return False


def _reader(cast: Any, source: Collection[str]) -> str:
    """Return the op of the source needing an added cast.

    It is the first whose tensor is computed from the cast.
    """
    seen, todo = set(), [cast]
    while todo:
        node = todo.pop(0)
        owners = (output.rpartition(":")[0] for output in node.output)
        for owner in (node.name, *owners):
            if owner in source:
                return str(owner)
        if node.name not in seen:
            seen.add(node.name)
            todo += [reader for output in node.output for reader in node.graph.find_output_consumers(output)]
    return str(cast.name)
