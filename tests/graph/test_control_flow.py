"""Loops and branches of TensorFlow 1: what lies in them, and which placeholder decides."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from support.graphs import drawing, placeholder, v1

from cudnn_convert.graph import control_flow
from cudnn_convert.graph.index import Index


def branching() -> Index:
    """`y` is computed in the branch of a placeholder, `z` behind it."""
    with drawing() as graph:
        x, train = placeholder("x", []), placeholder("train", [], tf.bool)
        chosen = v1.cond(train, lambda: tf.tanh(x, "y"), lambda: tf.identity(x, "other"))
        tf.negative(chosen, "z")
    return Index(graph.as_graph_def())


def test_a_loop_whose_number_of_parallel_steps_was_stripped_has_the_default() -> None:
    with drawing() as graph:
        v1.while_loop(lambda _: True, tf.tanh, [placeholder("x", [])], name="loop", parallel_iterations=10)
    stripped = graph.as_graph_def()
    for node in stripped.node:
        node.attr.pop("parallel_iterations", None)
    entered = control_flow.enter(Index(stripped), "into", "x", "loop/while_context", tf.float32)
    assert entered.attr["parallel_iterations"].i == 10


def test_frames_of_nested_loops_are_outermost_first() -> None:
    def inner(x: Any) -> Any:
        return v1.while_loop(lambda _: True, lambda y: tf.tanh(y, "deep"), [x], name="inner")

    with drawing() as graph:
        x = placeholder("x", [])
        tf.identity(v1.while_loop(lambda _: True, inner, [x], name="outer"), "end")
    index = Index(graph.as_graph_def())
    frames = control_flow.frames(index)
    (deep,) = (name for name in index.nodes if name.endswith("/deep"))
    outer, within = frames[deep]
    assert outer.startswith("outer/")
    assert "inner/" in within
    assert frames["x"] == frames["end"] == ()
    assert control_flow.inside(index) >= {deep}
    assert not {"x", "end"} & control_flow.inside(index)


def test_what_runs_at_every_call_is_outside_of_branches() -> None:
    index = branching()
    assert {"x", "train", "z"} <= control_flow.certain(index)
    assert not {"cond/y", "cond/other"} & control_flow.certain(index)
    assert {"cond/y", "cond/other"} <= control_flow.inside(index)
    assert "z" not in control_flow.inside(index)


def test_the_placeholder_that_decides_a_branch_is_found() -> None:
    index = branching()
    assert control_flow.leaving(index, "cond/y") == ("train", False)
    assert control_flow.leaving(index, "cond/other") == ("train", True)
    assert control_flow.leaving(index, "z") is None
    assert control_flow.bind("train", False).options == {"set": ("train:0=false",)}
