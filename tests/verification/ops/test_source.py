"""The source's own graph, cut at tensors that get other values."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support import cases
from support.graphs import drawing, model, placeholder, v1
from support.plans import plan_graph

from cudnn_convert.model import Mode
from cudnn_convert.verification.ops.source import open_source

X = np.array([[1.0, -2.0, 3.0]], np.float32)


def test_what_gives_nothing_below_zero_is_known() -> None:
    with drawing() as graph:
        x = placeholder("x", [None, 3])
        size = tf.reshape(tf.gather(tf.abs(x), [1, 0]), [-1], name="size")
        tf.subtract(tf.reduce_sum(x), size, name="out")
    plan = plan_graph(model(graph, {}), outputs=["out"])
    with open_source(plan, ["size:0", "out:0"], trust=False) as source:
        assert [source.is_positive(name) for name in ("size:0", "out:0", "x:0")] == [True, False, False]


@pytest.mark.parametrize("flag", [True, False])
def test_a_cut_before_a_branch_leaves_the_choice_of_its_side(flag: bool) -> None:
    """The side that is not taken would be ready first."""
    with drawing() as graph:
        x = tf.multiply(placeholder("x", [None, 3]), 2.0, name="cut")
        taken = lambda: tf.abs(tf.negative(tf.abs(tf.negative(x))))  # noqa: E731
        other = lambda: tf.negative(x)  # noqa: E731
        chosen = v1.placeholder_with_default(flag, [], "flag")
        tf.identity(v1.cond(chosen, *((taken, other) if flag else (other, taken))), "out")
    plan = plan_graph(model(graph, {}), outputs=["out"])
    with open_source(plan, ["cut:0"], trust=False) as source:
        (answer,) = source.run(["out:0"], {"x:0": X}, {"cut:0": X * 5})
    np.testing.assert_array_equal(answer, np.abs(X * 5))


def test_a_branch_of_constants_is_read_with_what_decides() -> None:
    """A constant reads no Switch: the predicate is found by what its branch waits for."""
    with drawing() as graph:
        x = placeholder("x", [None, 3])
        first, second = tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0])
        gate = tf.greater(tf.reduce_sum(x), 6.0, name="gate")
        chosen = v1.cond(gate, lambda: tf.identity(first), lambda: tf.identity(second))
        tf.multiply(chosen, 2.0, name="out")
    plan = plan_graph(model(graph, {}), outputs=["out"])
    with open_source(plan, ["out:0"], trust=False) as source:
        region = source.region("out:0", ())
    assert "gate" in region.nodes
    assert region.leaves == {"x:0"}


def test_what_only_moves_a_recurrence_is_known() -> None:
    case = cases.Case(Mode.GRU)
    with drawing() as graph:
        x = placeholder("x", [None, None, 4])
        y = case.op_call(x, tf.zeros([1, tf.shape(x)[1], case.units]), tf.constant(0.0), name="rnn").output
        both = tf.concat([y, tf.reverse(y, [0])], 2, name="both")
        tf.transpose(both, [1, 0, 2], name="turned")
        tf.multiply(both, 2.0, name="doubled")
        tf.concat([y, x], 2, name="beside")
    names = ["turned:0", "doubled:0", "beside:0", "x:0"]
    plan = plan_graph(model(graph, {}), outputs=["turned", "doubled", "beside"])
    with open_source(plan, names, trust=False) as source:
        assert [source.moves_recurrence(name) for name in names] == [True, False, False, False]
