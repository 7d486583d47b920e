"""Which ops take each step by itself; tests/graph/test_time_axis.py has them in graphs."""

from __future__ import annotations

import pytest
import tensorflow as tf

from cudnn_convert.graph import stepwise
from cudnn_convert.graph.stepwise import StepAxes
from cudnn_convert.private import tf_private

STEPS = StepAxes(7)


@pytest.mark.parametrize(
    ("shape", "axes", "paired"),
    [
        ([7, 3], [0], False),
        ([3, 14, 2], [1], False),
        ([7, 3, 7], [0, 2], True),
        ([98], [0], True),
        (None, [], False),
    ],
)
def test_steps_lie_where_the_size_is_a_multiple(
    shape: list[int] | None, axes: list[int], paired: bool
) -> None:
    with tf.Graph().as_default():
        value = tf.compat.v1.placeholder(tf.float32, shape)
    assert STEPS.axes(value) == axes
    assert STEPS.are_paired(value) == paired


@pytest.mark.parametrize("name", sorted(stepwise._RULES))
def test_every_rule_is_of_an_op_of_tensorflow(name: str) -> None:
    """Tables of TensorFlow 1 too; a name that is misspelt would never match."""
    assert tf_private.find_op(name) is not None
