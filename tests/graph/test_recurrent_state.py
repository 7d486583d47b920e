"""What is state of a recurrence in a variable, and what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from support.state_graphs import BATCH, UNITS, after, drawn, recurrence, turned

from cudnn_convert.graph import recurrent_state
from cudnn_convert.graph.graph import Graph


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
