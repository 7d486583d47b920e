"""State in variables: found, taken out of them, or made resources.

The judge is the graph itself in a Session. The recurrence is BlockLSTM, which a CPU runs, so that every
rewriting is compared with what it was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, v1

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph import node_defs, ops, recurrent_state
from cudnn_convert.graph.graph import Graph, extract_nodes, import_graph
from cudnn_convert.graph.index import Index
from cudnn_convert.graph.passes import state_io, tf1_ops
from cudnn_convert.model import InMemory

UNITS, BATCH = 4, 2
RANDOM = np.random.default_rng(7)
KERNEL = RANDOM.uniform(-0.5, 0.5, [3 + UNITS, 4 * UNITS]).astype(np.float32)
BIAS = RANDOM.uniform(-0.5, 0.5, [4 * UNITS]).astype(np.float32)
START = RANDOM.uniform(-0.5, 0.5, [BATCH, UNITS]).astype(np.float32)
START_NODE = node_defs.placeholder("v", tf.float32, tf.TensorShape([BATCH, UNITS]))
FEEDS = [RANDOM.standard_normal([steps, BATCH, 3]).astype(np.float32) for steps in (5, 2, 3)]


def recurrence(h: Any) -> Any:
    """The steps of an LSTM that goes on from `h`."""
    x, zeros = placeholder("x"), tf.zeros([UNITS])
    steps = tf.shape(x, out_type=tf.int64)[0]
    return tf.raw_ops.BlockLSTMV2(
        seq_len_max=steps, x=x, cs_prev=tf.zeros_like(h), h_prev=h, w=KERNEL, wci=zeros, wcf=zeros, wco=zeros,
        b=BIAS,
    ).h  # fmt: skip


def after(update: Any, value: Callable[[], Any]) -> Any:
    with tf.control_dependencies([update]):
        return tf.identity(value())


def plain(v: Any) -> Any:
    y = recurrence(v)
    return after(v.assign(y[-1]), lambda: y)


def returned(v: Any) -> Any:
    """What the assignment returns is read."""
    y = recurrence(v)
    return y + v.assign(y[-1] * 0.5)


def read_after(v: Any) -> Any:
    y = recurrence(v)
    with tf.control_dependencies([v.assign(y[-1] * 0.5)]):
        return y + v.read_value()


def read_before_and_after(v: Any) -> Any:
    before = v.read_value()
    y, doubled = recurrence(before), before * 2.0
    # The value of a reference that was read changes with the variable: what uses it must come first.
    with tf.control_dependencies([doubled]):
        update = v.assign(y[-1])
    with tf.control_dependencies([update]):
        return y + doubled + v.read_value() * 3.0


def added(v: Any) -> Any:
    y = recurrence(v)
    return after(v.assign_add(y[-1]), lambda: y)


def twice(v: Any) -> Any:
    """Assigned before the recurrence and after it."""
    with tf.control_dependencies([v.assign(v.read_value() * -0.5)]):
        y = recurrence(v.read_value())
    with tf.control_dependencies([v.assign_add(y[-1])]):
        return y + v.read_value()


def in_a_branch(v: Any) -> Any:
    y = recurrence(v)
    keep = tf.shape(y)[0] > 2
    update = v1.cond(keep, lambda: tf.identity(v.assign(y[-1])), lambda: y[0])
    return after(update, lambda: y)


def twice_in_a_branch(v: Any) -> Any:
    y = recurrence(v)

    def update() -> Any:
        with tf.control_dependencies([v.assign(y[-1] * 0.25)]):
            added = v.assign_add(y[0])
        with tf.control_dependencies([added]):
            return v.read_value() + 1.0

    return y + v1.cond(tf.shape(y)[0] > 2, update, lambda: y[0])


def in_both_branches(v: Any) -> Any:
    y = recurrence(v)
    keep = tf.shape(y)[0] > 2
    update = v1.cond(keep, lambda: v.assign(y[-1]) * 1.0, lambda: v.assign(y[0] * 0.5) * 1.0)
    with tf.control_dependencies([update]):
        return y + v.read_value()


def read_in_its_branch(v: Any) -> Any:
    y = recurrence(v)

    def update() -> Any:
        with tf.control_dependencies([v.assign(y[-1] * 0.25)]):
            return v.read_value() + 1.0

    return y + v1.cond(tf.shape(y)[0] > 2, update, lambda: y[0])


def reset_in_a_branch(v: Any) -> Any:
    long = tf.shape(placeholder_once())[0] > 2
    start = v1.cond(long, lambda: v.assign(tf.ones([BATCH, UNITS])) * 1.0, v.read_value)
    y = recurrence(start)
    return after(v.assign(y[-1]), lambda: y)


def placeholder_once() -> Any:
    """A placeholder beside `x`, of its shape."""
    return placeholder("x_again")


def turned(start: Any, y: Any) -> Any:
    """Three turns of a loop that begins with `start`."""
    weight = tf.constant(KERNEL[3:, :UNITS])
    body = lambda k, h: (k + 1, tf.tanh(h @ weight + y[-1]))  # noqa: E731
    return v1.while_loop(lambda k, _: k < 3, body, [tf.constant(0), start])[1]


def in_a_plain_loop(v: Any) -> Any:
    """A plain layer with a state, beside a recurrence that has none."""
    y = recurrence(tf.zeros([BATCH, UNITS]))
    last = turned(v.read_value(), y)
    return after(v.assign(last), lambda: y + last)


CASES = (
    in_a_plain_loop, plain, returned, read_after, read_before_and_after, added, twice, in_a_branch,
    in_both_branches, twice_in_a_branch, read_in_its_branch, reset_in_a_branch,
)  # fmt: skip


def drawn(build_output: Callable[[Any], Any], *, resource: bool) -> Any:
    """The GraphDef that `y` needs."""
    with drawing() as graph:
        v = v1.Variable(START * 0, trainable=False, name="v", use_resource=resource)
        tf.identity(build_output(v), "y")
    made = graph.as_graph_def()
    return extract_nodes(made, Index(made).ancestors(["y"]))


class Judge:
    """A graph in a Session, its variable `v` of either kind."""

    def __init__(self, graph: Any, variable: str = "v") -> None:
        made = import_graph(graph)
        self.session, target = v1.Session(graph=made), made.get_tensor_by_name(f"{variable}:0")
        with made.as_default():
            self.value = v1.placeholder(tf.float32)
            if target.dtype == tf.resource:
                self.write = tf.raw_ops.AssignVariableOp(resource=target, value=self.value)
                self.read = tf.raw_ops.ReadVariableOp(resource=target, dtype=tf.float32)
            else:
                self.write, self.read = tf.raw_ops.Assign(ref=target, value=self.value), target
        self.names = {node.name for node in graph.node}

    def set(self, value: np.ndarray) -> None:
        self.session.run(self.write, {self.value: value})

    def run(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        fed = {f"{name}:0": x for name in ("x", "x_again") if name in self.names}
        return self.session.run("y:0", fed), self.session.run(self.read)


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_reference_that_became_a_resource(case: Callable[[Any], Any]) -> None:
    graph = drawn(case, resource=False)
    made = tf1_ops.convert_assigned_variables(graph, {"v": InMemory(START)})
    assert not [
        node.name for node in made.node if node.op.startswith("Ref") or node.op in ("VariableV2", "Assign")
    ]
    judge, found = Judge(graph), Judge(made, "v/handle")
    for running in (judge, found):
        running.set(START)
    for x in FEEDS:
        for one, other in zip(found.run(x), judge.run(x), strict=True):
            np.testing.assert_array_equal(one, other)


def nothing_recurrent(v: Any) -> Any:
    """A counter of calls."""
    y = recurrence(tf.zeros([BATCH, UNITS])) * (1.0 + v[0, 0])
    return after(v.assign_add(tf.ones_like(v)), lambda: y)


def loop_beside(v: Any) -> Any:
    """A value of a loop that does not begin with the variable."""
    y = recurrence(tf.zeros([BATCH, UNITS])) * (1.0 + v[0, 0])
    last = turned(tf.zeros([BATCH, UNITS]), tf.ones([1, BATCH, UNITS]))
    return after(v.assign(last), lambda: y)


def moving_average(v: Any) -> Any:
    y = recurrence(v)
    return after(v.assign_sub((v - y[-1]) * 0.1), lambda: y)


def only_written(v: Any) -> Any:
    y = recurrence(tf.zeros([BATCH, UNITS]))
    return after(v.assign(y[-1]), lambda: y)


def left_alone(v: Any) -> Any:
    y = recurrence(v)
    v.assign(y[-1], name="update")
    return y


@pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])
@pytest.mark.parametrize(
    "case",
    [nothing_recurrent, loop_beside, moving_average, only_written, left_alone],
    ids=lambda case: case.__name__,
)
def test_what_is_no_state(case: Callable[[Any], Any], resource: bool) -> None:
    assert recurrent_state.find(Graph(drawn(case, resource=resource)), ["y:0"]) == ()


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
    made = tf1_ops.convert_assigned_variables(graph, {"v": InMemory(START)})
    assert "Assign" in {node.op for node in made.node}
