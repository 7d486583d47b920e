"""Writes of variables that the graph does not show: in functions of branches, of loops and of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from cudnn_convert.graph import separable
from cudnn_convert.graph.graph import Graph

v1 = tf.compat.v1


def handles() -> tuple[Any, Any]:
    return tuple(
        tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], name=name) for name in ("read", "written")
    )


def value(handle: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)


def write(handle: Any, to: Any) -> Any:
    with tf.control_dependencies([tf.raw_ops.AssignVariableOp(resource=handle, value=to)]):
        return tf.identity(to)


def branch(read: Any, written: Any) -> Any:
    """A branch whose predicate takes its first input."""
    return tf.cond(value(read) > 0, lambda: write(written, value(read)), lambda: value(written))


def loop(read: Any, written: Any) -> Any:
    return tf.while_loop(lambda x: x < 3, lambda x: [write(written, x + value(read))], [value(written)])


def branch_in_loop(read: Any, written: Any) -> Any:
    return tf.while_loop(lambda x: x < 3, lambda x: [branch(read, written) + x], [value(read)])


def reads_alone(read: Any, written: Any) -> Any:
    return tf.while_loop(lambda x: x < 3, lambda x: [x + value(read) + value(written)], [value(read)])


def part(read: Any, written: Any) -> Any:
    return tf.raw_ops.ResourceScatterUpdate(resource=written, indices=[0], updates=value(read)[None])


@pytest.mark.parametrize(
    ("build", "op"),
    [
        (branch, "If"),
        (loop, "While"),
        (branch_in_loop, "While"),
        (reads_alone, ""),
        (part, "ResourceScatterUpdate"),
    ],
)
def test_a_hidden_write_is_told_by_its_variable(build: Callable[[Any, Any], Any], op: str) -> None:
    with tf.Graph().as_default() as graph:
        build(*handles())
    hidden = separable.find_hidden_writes(Graph.of(graph.as_graph_def()))
    assert [*hidden] == (["written"] if op else [])
    assert all(what.endswith(f"({op}) writes it") or f"(Stateless{op})" in what for what in hidden.values())
