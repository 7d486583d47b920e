"""Frozen graphs: a recurrence, and beside it what should not be there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

UNITS, INPUTS, BATCH = 2, 3, 2
#: Values of a blob of an LSTM, none of them special.
BLOB = np.linspace(-0.5, 0.5, 4 * UNITS * (INPUTS + UNITS + 2), dtype=np.float32)
#: What the canary is called: a file in the folder where the command runs.
CANARY = "canary.txt"
#: What every attack's graph gives.
OUTPUT = "scores"

Nodes = list[Any]


def node(name: str, op: str, inputs: Sequence[str] = (), **attributes: Any) -> Any:
    made = node_def_pb2.NodeDef(name=name, op=op, input=list(inputs))
    for key, value in attributes.items():
        attr = made.attr[key]
        if isinstance(value, tf.DType):
            attr.type = value.as_datatype_enum
        elif isinstance(value, tf.TensorShape):
            attr.shape.CopyFrom(value.as_proto())
        elif isinstance(value, np.ndarray):
            attr.tensor.CopyFrom(tf.make_tensor_proto(value))
        elif isinstance(value, list):
            attr.list.type.extend(kind.as_datatype_enum for kind in value)
        elif isinstance(value, bool):
            attr.b = value
        elif isinstance(value, int):
            attr.i = value
        else:
            attr.s = str(value).encode()
    return made


def constant(name: str, value: Any) -> Any:
    array = np.asarray(value)
    return node(name, "Const", dtype=tf.as_dtype(array.dtype), value=array)


def text(name: str, value: str) -> Any:
    return node(name, "Const", dtype=tf.string, value=np.array(value, dtype=object))


def recurrence(blob: Any = BLOB, *, batch: int = BATCH) -> Nodes:
    """`x` -> an LSTM -> `rnn`, on zero states."""
    zeros = np.zeros([1, batch, UNITS], np.float32)
    return [
        node("x", "Placeholder", dtype=tf.float32, shape=tf.TensorShape([None, batch, INPUTS])),
        constant("zeros", zeros),
        constant("blob", blob),
        node(
            *("rnn", "CudnnRNN", ["x", "zeros", "zeros", "blob"]),
            **{"T": tf.float32, "rnn_mode": "lstm", "input_mode": "linear_input"},
            **{"direction": "unidirectional", "is_training": False},
        ),
    ]


def scores(*waits: str, source: str = "rnn") -> Any:
    return node(OUTPUT, "Identity", [source, *(f"^{name}" for name in waits)], T=tf.float32)


def graph(*nodes: Any) -> Any:
    return graph_pb2.GraphDef(node=nodes)


def frozen(path: Path, made: Any) -> None:
    path.write_bytes(made.SerializeToString(deterministic=True))


def writing() -> Nodes:
    return [*(text("name", CANARY), text("what", "seen"), node("write", "WriteFile", ["name", "what"]))]


def write_file(path: Path) -> None:
    """An op writes a file before there are scores."""
    frozen(path, graph(*recurrence(), *writing(), scores("write")))


def read_file(path: Path) -> None:
    """A static shape hangs on the content of a file: TensorFlow reads it to import the graph."""
    shaped = [
        text("name", CANARY),
        node("read", "ReadFile", ["name"]),
        node("raw", "DecodeRaw", ["read"], out_type=tf.int32, little_endian=True),
        node("shaped", "Reshape", ["rnn", "raw"], T=tf.float32, Tshape=tf.int32),
    ]
    frozen(path, graph(*recurrence(), *shaped, scores(source="shaped")))


def py_func(path: Path) -> None:
    """An op runs Python of this process."""
    call = node("call", "PyFunc", ["x"], token="pyfunc_0", Tin=[tf.float32], Tout=[tf.float32])
    frozen(path, graph(*recurrence(), call, scores("call")))


def prints(path: Path) -> None:
    """Ops print what looks like a verdict, to stdout and to stderr."""
    said = [
        text("verdict", "equal"),
        node("out", "PrintV2", ["verdict"], output_stream="stdout", end="\n"),
        node("err", "PrintV2", ["verdict"], output_stream="stderr", end="\n"),
        node("old", "Print", ["rnn", "verdict"], T=tf.float32, U=[tf.string], message="equal"),
    ]
    frozen(path, graph(*recurrence(), *said, scores("out", "err", source="old")))


def unknown_op(path: Path) -> None:
    """An op that no TensorFlow has, such as one of a library that the file wants loaded."""
    frozen(path, graph(*recurrence(), node("act", "RunsWhatItLikes", ["rnn"]), scores(source="act")))


def circle(path: Path) -> None:
    """Two nodes that each need the other first."""
    ends = [node("a", "Identity", ["b"], T=tf.float32), node("b", "Identity", ["a"], T=tf.float32)]
    params = recurrence()
    params[-1].input[3] = "a"
    frozen(path, graph(*params, *ends, scores()))


def itself(path: Path) -> None:
    """A node that is its own input."""
    frozen(path, graph(*recurrence(), scores(source=OUTPUT)))


def twice(path: Path) -> None:
    """Two nodes of one name."""
    frozen(path, graph(*recurrence(), constant("blob", BLOB[::-1]), scores()))


def missing(path: Path) -> None:
    """A node that reads what is not there."""
    frozen(path, graph(*recurrence()[:2], *recurrence()[3:], scores()))


def shape_bomb(path: Path) -> None:
    """A constant of one value that says it has 2^60."""
    held = recurrence()
    tensor = held[2].attr["value"].tensor
    tensor.Clear()
    tensor.dtype = tf.float32.as_datatype_enum
    tensor.tensor_shape.dim.add(size=1 << 60)
    tensor.float_val.append(1.0)
    frozen(path, graph(*held, scores()))


def bomb(path: Path, makes: Nodes) -> None:
    decided = [
        node("size", "Sum", ["large", "axis"], T=tf.int32, Tidx=tf.int32),
        constant("axis", np.int32(0)),
        constant("none", np.int32(0)),
        node("decides", "Greater", ["size", "none"], T=tf.int32),
        node("switch", "Switch", ["rnn", "decides"], T=tf.float32),
        node("merge", "Merge", ["switch", "switch:1"], T=tf.float32, N=2),
    ]
    frozen(path, graph(*recurrence(), *makes, *decided, scores(source="merge")))


_MANY = np.array([1 << 40], np.int64)
_ONE = constant("one", np.array([1], np.int32))


def fill_bomb(path: Path) -> None:
    """Whether a branch is taken hangs on the sum of 2^40 ones (Fill)."""
    filled = node("large", "Fill", ["many", "value"], T=tf.int32, index_type=tf.int64)
    bomb(path, [constant("many", _MANY), constant("value", np.int32(1)), filled])


def tile_bomb(path: Path) -> None:
    """Whether a branch is taken hangs on the sum of 2^40 ones (Tile)."""
    tiled = node("large", "Tile", ["one", "many"], T=tf.int32, Tmultiples=tf.int64)
    bomb(path, [constant("many", _MANY), _ONE, tiled])


def range_bomb(path: Path) -> None:
    """Whether a branch is taken hangs on the sum of 2^31 - 1 numbers (Range)."""
    ends = {"start": 0, "limit": (1 << 31) - 1, "delta": 1}
    counted = node("large", "Range", [*ends], Tidx=tf.int32)
    bomb(path, [*(constant(name, np.int32(value)) for name, value in ends.items()), counted])


def broadcast_bomb(path: Path) -> None:
    """Whether a branch is taken hangs on the sum of 2^40 ones (BroadcastTo)."""
    wide = node("large", "BroadcastTo", ["one", "many"], T=tf.int32, Tidx=tf.int64)
    bomb(path, [constant("many", _MANY), _ONE, wide])


def unlike_numbers(path: Path, value: float) -> None:
    blob = BLOB.copy()
    blob[7] = value
    frozen(path, graph(*recurrence(blob), scores()))


def nan(path: Path) -> None:
    """One weight is not a number: converted, with a note."""
    unlike_numbers(path, np.nan)


def infinity(path: Path) -> None:
    """One weight is infinite: converted, with a note."""
    unlike_numbers(path, np.inf)


def huge_units(path: Path) -> None:
    """States of 2^40 units, which nothing else in the file has."""
    held = recurrence()
    held[1] = node("zeros", "Placeholder", dtype=tf.float32, shape=tf.TensorShape([1, BATCH, 1 << 40]))
    frozen(path, graph(*held, scores()))


MAKERS: dict[str, Callable[[Path], None]] = {
    f"{name}.pb": make
    for name, make in {
        **{"write_file": write_file, "read_file": read_file, "py_func": py_func, "unknown_op": unknown_op},
        "prints": prints,
        **{"circle": circle, "itself": itself, "names_twice": twice, "missing_input": missing},
        **{
            "shape_bomb": shape_bomb,
            "fill_bomb": fill_bomb,
            "tile_bomb": tile_bomb,
            "range_bomb": range_bomb,
        },
        **{"broadcast_bomb": broadcast_bomb, "nan": nan, "infinity": infinity, "huge_units": huge_units},
    }.items()
}
