"""Checks of what decoders are called with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from cudnn_convert.decode import arguments


@pytest.mark.parametrize("value", [True, 0, 2.0, "3", None])
def test_a_count_is_a_whole_number(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^width: expected a whole number of at least 1, found "):
        arguments.check_count("width", value)
    assert arguments.check_count("width", np.int64(3)) == 3


@pytest.mark.parametrize("value", [math.inf, math.nan, "1"])
def test_a_number_is_finite(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^penalty: expected a finite number, found "):
        arguments.check_number("penalty", value)


def test_narrow_floats_become_float32_and_others_are_refused() -> None:
    assert arguments.check_floats("scores", np.zeros([2], np.float16), "n").dtype == tf.float32
    assert arguments.check_floats("scores", np.zeros([2]), "n").dtype == tf.float64
    with pytest.raises(ValueError, match=r"^scores: expected floats, found int32 \[2\]$"):
        arguments.check_floats("scores", np.zeros([2], np.int32), "n")
    with pytest.raises(ValueError, match=r"^scores: expected rank 2, \[n, time\], found float32 \[2\]$"):
        arguments.check_floats("scores", np.zeros([2], np.float32), "n time")


def test_lengths_are_those_of_all_rows() -> None:
    sequences = tf.zeros([3, 5, 2])
    assert arguments.check_lengths(None, sequences).numpy().tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match=r"^lengths: expected one for each of 3 rows, found int64 \[2\]$"):
        arguments.check_lengths(np.array([1, 2], np.int64), sequences)


def test_a_choice_of_minus_infinity_is_no_nan() -> None:
    x, y = tf.constant([-math.inf, 1.0]), tf.constant([2.0, -math.inf])
    for condition in (True, False):
        chosen = arguments.choose(tf.constant([condition, condition]), x, y)
        np.testing.assert_array_equal(chosen, x if condition else y)


def test_a_state_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^h: expected float32 \[2, 3\] as before the step, found"):
        arguments.keep_shape("h", tf.zeros([2, 4]), tf.zeros([2, 3]))
