"""State that leaves its variables, beside the graph that it was made from, in a Session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import v1
from support.state_graphs import BATCH, CASES, FEEDS, START, UNITS, Judge, after, drawn, recurrence

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import node_defs, ops, recurrent_state
from cudnn_convert.graph.graph import Graph, extract_nodes, import_graph
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.passes import state_io, tf1_ops
from cudnn_convert.model import InMemory

START_NODE = node_defs.placeholder("v", tf.float32, tf.TensorShape([BATCH, UNITS]))


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_state_that_left_its_variable(case: Callable[[Any], Any], resource: bool) -> None:
    graph = drawn(case, resource=resource)
    (found,) = recurrent_state.find(Graph(graph), ["y:0"])
    assert (found.variable, found.tensor) == ("v", "v:0")
    judge, held = Judge(graph), START
    made, (end,) = state_io.promote_state_to_io(Path("m"), Graph(graph), [found], {"v": START_NODE})
    made = extract_nodes(made, Index(made).ancestors(["y", end.removesuffix(":0")]))
    assert not [node.op for node in made.node if node.op in ops.WRITES | {"VarHandleOp", "VariableV2"}]
    names = {node.name for node in made.node}
    with v1.Session(graph=import_graph(made)) as running:
        for x in FEEDS:
            judge.set(held)
            expected = judge.run(x)
            fed = {f"{name}:0": x for name in ("x", "x_again") if name in names}
            y, after_it = running.run(["y:0", end], {**fed, "v:0": held})
            np.testing.assert_allclose(y, expected[0], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(after_it, expected[1], rtol=1e-6, atol=1e-6)
            assert x is not FEEDS[0] or np.abs(after_it - held).max() > 1e-2
            held = expected[1]


def racing(v: Any) -> Any:
    y = recurrence(v.read_value())
    return after(v.assign(y[-1], name="update"), lambda: y) + tf.identity(v.read_value(), "late")


def unordered(v: Any) -> Any:
    y = recurrence(v)
    with tf.control_dependencies([v.assign(y[-1]), v.assign(y[0])]):
        return tf.identity(y)


def scattered(v: Any) -> Any:
    y = recurrence(v)
    with tf.control_dependencies([v.assign(y[-1])]):
        return y + v1.scatter_update(v, [0], tf.ones([1, UNITS]))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (racing, "expected each read ordered before or after Assign"),
        (unordered, "expected assignments in a fixed order, found Assign"),
        (scattered, "expected reads and plain assignments, found "),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
def test_what_cannot_be_told_is_refused(case: Callable[[Any], Any], resource: bool, reason: str) -> None:
    graph = Graph(drawn(case, resource=resource))
    with pytest.raises(UnsupportedModelError) as refused:
        state_io.promote_state_to_io(
            Path("m"), graph, recurrent_state.find(graph, ["y:0"]), {"v": START_NODE}
        )
    assert all(found.startswith("variable v: expected") for found in refused.value.reasons)
    assert any(reason.replace("after Assign", "after ") in found for found in refused.value.reasons)


def in_a_loop(v: Any) -> Any:
    y = recurrence(v)

    def step(k: Any) -> Any:
        with tf.control_dependencies([v.assign(y[-1])]):
            return k + 1

    loops = v1.while_loop(lambda k: k < 2, step, [tf.constant(0)])
    return after(loops, lambda: y)


def test_an_assignment_in_a_loop_is_refused() -> None:
    graph = Graph(drawn(in_a_loop, resource=False))
    with pytest.raises(
        UnsupportedModelError, match="expected no assignment inside a loop, found while/Assign"
    ):
        state_io.promote_state_to_io(
            Path("m"), graph, recurrent_state.find(graph, ["y:0"]), {"v": START_NODE}
        )
    made = tf1_ops.convert_assigned_variables(graph, values={"v": InMemory(START)})
    assert "Assign" in {node.op for node in made.node}
