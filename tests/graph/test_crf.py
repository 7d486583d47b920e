"""The scores and transitions of a CRF are told by its forward algorithm."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, v1, variable

from cudnn_convert.graph import crf
from cudnn_convert.graph.node_defs import Graph

TAGS = 4


def chains(shape: tuple[int, ...] = (TAGS, TAGS), *, multiplies: bool = False) -> list[tuple[str, str]]:
    """Of the forward algorithm over `scores`, `[batch, time, 4]`, and `transitions`; `hidden` is wider."""
    with drawing() as graph:
        x = placeholder("x", (None, None, 6))
        hidden = tf.identity(x, "hidden")
        scores = tf.identity(tf.tensordot(hidden, variable("w", [6, TAGS]), 1), "scores")
        scores.set_shape([None, None, TAGS])
        transitions = tf.identity(variable("transitions", shape), "transitions/read")

        def step(t: Any, alphas: Any) -> Any:
            if multiplies:
                return t + 1, alphas @ transitions
            expanded = tf.expand_dims(alphas, 2) + tf.expand_dims(transitions, 0)
            return t + 1, tf.reduce_logsumexp(expanded, 1) + scores[:, t]

        start = scores[:, 0]
        invariants = [tf.TensorShape([]), start.shape]
        v1.while_loop(lambda t, _: t < 5, step, [1, start], shape_invariants=invariants)
    return crf.find_chains(Graph(graph.as_graph_def()), ["hidden:0", "scores:0"])


def test_scores_and_transitions_belong_together() -> None:
    assert chains() == [("scores:0", "transitions:0")]


@pytest.mark.parametrize(
    "found", [lambda: chains((1, TAGS)), lambda: chains((TAGS,)), lambda: chains(multiplies=True)],
    ids=["a-row", "a-bias", "a-recurrent-kernel"],
)  # fmt: skip
def test_other_variables_are_no_transitions(found: Any) -> None:
    assert found() == []
