"""The scores and transitions of a CRF are told by its forward algorithm."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, v1, variable

from cudnn_convert.graph import crf
from cudnn_convert.graph.graph import Graph

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
    made = Graph(graph.as_graph_def())
    return crf.find_chains(made, ["hidden:0", "scores:0"], made.shapes.get_tensor_by_name)


def test_scores_and_transitions_belong_together() -> None:
    assert chains() == [("scores:0", "transitions:0")]


@pytest.mark.parametrize(
    "found", [lambda: chains((1, TAGS)), lambda: chains((TAGS,)), lambda: chains(multiplies=True)],
    ids=["a-row", "a-bias", "a-recurrent-kernel"],
)  # fmt: skip
def test_other_variables_are_no_transitions(found: Any) -> None:
    assert found() == []


def lengths_of(origin: str) -> list[str]:
    """Of a loop over transitions that ends where `maximum(lengths - 1, 0)` says, lengths of this origin."""
    with drawing() as graph:
        ids = placeholder("ids", (None, None), tf.int32)
        fed = placeholder("fed", (None,), tf.int32)
        counted = tf.reduce_sum(tf.sign(tf.abs(ids)), 1, name="counted")
        lengths = {"fed": fed, "counted": counted, "mask": tf.reduce_sum(ids, 1), "step": tf.constant(3)}[
            origin
        ]
        transitions = tf.identity(variable("transitions", (TAGS, TAGS)), "transitions/read")
        last = tf.maximum(tf.cast(lengths, tf.int64) - 1, tf.constant(0, tf.int64))

        def step(t: Any, alphas: Any) -> Any:
            added = tf.reduce_logsumexp(tf.expand_dims(alphas, 2) + transitions, 1)
            over = tf.raw_ops.GreaterEqual(x=t, y=last)
            return t + 1, tf.where(over[..., None], alphas, added)

        start = tf.zeros([tf.shape(ids)[0], TAGS])
        start.set_shape([None, TAGS])
        v1.while_loop(lambda t, _: t < 5, step, [tf.constant(1, tf.int64), start])
    return crf.find_lengths(Graph(graph.as_graph_def()), "transitions:0")


def test_lengths_that_the_graph_counts_are_given_too() -> None:
    assert lengths_of("counted") == ["counted:0"]


@pytest.mark.parametrize("origin", ["fed", "mask", "step"])
def test_lengths_that_are_fed_are_known(origin: str) -> None:
    assert lengths_of(origin) == []
