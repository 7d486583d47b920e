"""A model that hides a part behind a gate, beside one that its outputs show, and wrong versions of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from cudnn_convert.model import Mode
from support.cases import Case
from support.graphs import drawing

v1 = tf.compat.v1
CASE: Final = Case(Mode.GRU, units=5)
ROWS: Final = 60
OUTPUT: Final = "answer"


def source(folder: Path) -> Path:
    """A frozen graph: `dense(y) + where(any(x > 50), hidden(y), 0)`, and a table."""
    rng = np.random.default_rng(11)

    def constant(name: str, *shape: int) -> Any:
        return tf.constant(rng.uniform(-0.5, 0.5, shape).astype(np.float32), name=name)

    with drawing() as graph:
        x = v1.placeholder(tf.float32, [None, None, 4], "x")
        ids = v1.placeholder(tf.int32, [None, None], "ids")
        rows = tf.gather(constant("table", ROWS, 4), ids, name="rows")
        y = CASE.op_call(x + rows, tf.zeros([1, tf.shape(x)[1], 5]), tf.constant(0.0), name="rnn").output
        seen = tf.tensordot(y, constant("seen/kernel", 5, 5), 1) + constant("seen/bias", 5)
        hidden = tf.tensordot(y, constant("hidden/kernel", 5, 5), 1) - constant("hidden/bias", 5)
        is_open = tf.reduce_any(tf.greater(x, 50.0, name="gate/over"), name="gate/any")
        tf.add(seen, tf.where(is_open, hidden, tf.zeros_like(hidden), name="gate/pick"), name=OUTPUT)
    path = folder / "gated.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the nodes of a frozen graph or a SavedModel, by name."""
    is_saved = file.name == "saved_model.pb"
    held = (saved_model_pb2.SavedModel if is_saved else v1.GraphDef).FromString(file.read_bytes())
    graph = held.meta_graphs[0].graph_def if is_saved else held
    change({node.name: node for node in graph.node})
    file.write_bytes(held.SerializeToString())


def of_constant(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[dict[str, Any]], None]:
    """Give a constant another value."""

    def apply(nodes: dict[str, Any]) -> None:
        tensor = nodes[name].attr["value"].tensor
        value = tf.make_ndarray(tensor)
        tensor.CopyFrom(tf.make_tensor_proto(np.asarray(change(value.copy()), value.dtype)))

    return apply


def of_op(name: str, op: str) -> Callable[[dict[str, Any]], None]:
    """Give a node another op."""

    def apply(nodes: dict[str, Any]) -> None:
        nodes[name].op = op

    return apply


def exchange_kernels(nodes: dict[str, Any]) -> None:
    """Each dense layer has the other's kernel."""
    one, other = (nodes[name].attr["value"].tensor for name in ("seen/kernel", "hidden/kernel"))
    kept = type(one)()
    kept.CopyFrom(one)
    one.CopyFrom(other)
    other.CopyFrom(kept)


def move_wire(nodes: dict[str, Any]) -> None:
    """The hidden layer subtracts the other layer's bias."""
    nodes["sub"].input[1] = "seen/bias"


def _off_in_row(value: np.ndarray) -> np.ndarray:
    value[ROWS - 1, 2] += 1e-3
    return value


def _off_a_little(value: np.ndarray) -> np.ndarray:
    value[1, 2] += 1e-3 * np.linalg.norm(value)
    return value


#: What each change of a graph does, and the tensor that shows it.
CHANGES: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "zero_kernel": of_constant("hidden/kernel", np.zeros_like),
    "kernel_a_little": of_constant("hidden/kernel", _off_a_little),
    "columns": of_constant("hidden/kernel", lambda value: value[:, ::-1]),
    "rows": of_constant("hidden/kernel", lambda value: value[::-1]),
    "kernels_exchanged": exchange_kernels,
    "bias": of_constant("hidden/bias", np.zeros_like),
    "threshold": of_constant("gate/over/y", lambda value: value * 1.5),
    "greater_or_equal": of_op("gate/over", "GreaterEqual"),
    "all": of_op("gate/any", "All"),
    "sum": of_op("sub", "AddV2"),
    "wire": move_wire,
    "row_of_a_table": of_constant("table", _off_in_row),
}
