"""Functions of Python as parts of a graph: what of their control flow TensorFlow takes apart when it runs."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from cudnn_convert.graph.passes import inlining
from cudnn_convert.graph.passes.inlining import LOWERED

SPECS = (tf.TensorSpec([None]), tf.TensorSpec([]))


def halved(x: Any, bound: Any) -> Any:
    """A branch around a loop around a branch."""

    def step(value: Any) -> Any:
        return tf.cond(value > 2 * bound, lambda: value / 4, lambda: value / 2)

    total = tf.reduce_sum(x)
    return tf.cond(
        total > bound, lambda: tf.while_loop(lambda value: value > bound, step, [total])[0], lambda: total
    )


def test_branches_stay_calls_and_loops_do_not() -> None:
    """Of a branch made of Switch nodes both sides run, if one without values."""
    body = inlining.trace_function(halved, *SPECS)
    _, functions = inlining.library(halved, *SPECS)
    for nodes in (body.nodes, body.library, functions):
        inner = [node for function in nodes for node in getattr(function, "node_def", [function])]
        branches = [node for node in inner if node.op in {"If", "StatelessIf"}]
        loops = [node for node in inner if node.op in {"While", "StatelessWhile"}]
        assert branches
        assert not any(node.attr[LOWERED].b for node in branches)
        assert nodes is body.nodes or loops
        assert all(node.attr[LOWERED].b for node in loops)
