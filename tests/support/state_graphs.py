"""Graphs with state in a variable, and a judge that runs them.

The recurrence is BlockLSTM, which a CPU runs, so that every rewriting is compared with what it was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert.graph.graph import extract_nodes, import_graph
from cudnn_convert.graph.index import Index
from support.graphs import drawing, placeholder, v1

UNITS, BATCH = 4, 2
RANDOM = np.random.default_rng(7)
KERNEL = RANDOM.uniform(-0.5, 0.5, [3 + UNITS, 4 * UNITS]).astype(np.float32)
BIAS = RANDOM.uniform(-0.5, 0.5, [4 * UNITS]).astype(np.float32)
START = RANDOM.uniform(-0.5, 0.5, [BATCH, UNITS]).astype(np.float32)
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
