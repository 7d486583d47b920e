"""ONNX Runtime answers as TensorFlow does for integers that floats lack, doubles, ties and empty axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from lower.onnx.test_exact_ops import OPSETS, agree
from support.versions import needs

from cudnn_convert.errors import UnsupportedModelError

raw = tf.raw_ops
INT32 = np.array([[2**31 - 1, 2**24 + 1, 5], [-(2**31), 2**24, 1]], np.int32)
INT64 = np.array([[2**53 + 1, 2**63 - 1, 7], [-(2**53) - 1, -(2**63), 1]])
DOUBLES = np.array([[1 + 1e-12, 1.0, 3e300], [1 - 1e-12, -1e300, 0.1]])
NARROW = np.array([[200, 100, 7], [0, 255, 3]], np.uint8)
NUMBERS = pytest.mark.parametrize(
    "x", [INT32, INT64, DOUBLES, NARROW], ids=["int32", "int64", "double", "uint8"]
)
#: Those that take axes as an input, and add up what is written to one place.
SINCE = OPSETS[1:]


@pytest.mark.first("int32")
@NUMBERS
def test_numbers_are_sorted_in_their_own_type(x: np.ndarray) -> None:
    agree(lambda x: tf.math.top_k(x, 2).values, x)
    agree(lambda x: tf.math.top_k(x, 3).indices, x)


@pytest.mark.first("_min-int64")
@NUMBERS
@pytest.mark.parametrize("op", [raw.Sum, raw.Max, raw.Min])
def test_numbers_are_reduced_in_their_own_type(op: Any, x: np.ndarray) -> None:
    agree(lambda x: op(input=x, axis=[1], keep_dims=True), x)
    agree(lambda x: op(input=x, axis=[-1, 0]), x)


@pytest.mark.parametrize("x", [INT32, INT64], ids=["int32", "int64"])
def test_a_mean_of_integers_is_a_sum_that_is_divided(x: np.ndarray) -> None:
    agree(lambda x: raw.Mean(input=x, axis=1), x // 4)


def test_a_mean_of_no_values_is_not_a_number() -> None:
    for steps in (0, 3):
        agree(lambda x: tf.reduce_mean(x, 1), np.ones((2, steps, 3), np.float32))


def test_a_maximum_of_no_values_is_below_all() -> None:
    agree(lambda x: tf.reduce_max(x, -1), np.ones((2, 3, 0), np.float32), opsets=SINCE[-1:])


def test_axes_that_are_fed() -> None:
    agree(tf.reduce_sum, DOUBLES, np.array([0], np.int32), opsets=SINCE)


@pytest.mark.first("int64", "double")
@NUMBERS
def test_numbers_are_told_apart_in_their_own_type(x: np.ndarray) -> None:
    flat = np.concatenate([x, x[::-1]]).reshape(-1)
    for part in range(3):
        agree(lambda x, part=part: tf.unique_with_counts(x)[part], flat)


def test_the_logarithm_of_a_double() -> None:
    agree(lambda x: tf.math.log(tf.abs(x)) * 1e9, DOUBLES)


@pytest.mark.parametrize("op", [tf.maximum, tf.minimum])
def test_the_larger_of_two_integers(op: Any) -> None:
    agree(op, INT32, INT32[::-1].copy())
    agree(op, INT64, INT64[::-1].copy())


@pytest.mark.first("ends3")
@pytest.mark.parametrize("ends", [(7.0, 0.0, -0.7), (0.0, 0.3, 0.1), (3.0, -0.5, -0.7), (1.0, 1.0, 0.5)])
def test_a_range_of_floats_has_as_many_numbers_as_their_type_counts(ends: tuple[float, ...]) -> None:
    for dtype in (np.float32, np.float64):
        agree(
            lambda *given: raw.Range(start=given[0], limit=given[1], delta=given[2]),
            *(np.array(x, dtype) for x in ends),
        )


@pytest.mark.parametrize("low, high, bits, narrow", [(0.0, 15.0, 4, False), (-6.0, 6.0, 8, True)])
def test_ties_between_levels_are_rounded_up(low: float, high: float, bits: int, narrow: bool) -> None:
    ties = np.array([0.5, 1.5, 2.5, -0.5, 14.5, 99, -99, 7.25], np.float32)
    agree(lambda x: tf.quantization.fake_quant_with_min_max_args(x, low, high, bits, narrow), ties)


def test_levels_of_each_channel() -> None:
    rows = np.array([[0.5, 0.5], [1.5, -2.5], [99, 0.2], [7.25, -99]], np.float32)
    quantize = tf.quantization.fake_quant_with_min_max_vars_per_channel
    agree(lambda x: quantize(x, tf.constant([0.0, -3.0]), tf.constant([15.0, 0.5]), 4), rows)


def test_sums_of_several_integers_and_permutations_that_are_inverted() -> None:
    agree(lambda x, y: tf.add_n([x, y, x]), INT32, INT32[::-1].copy())
    agree(tf.math.invert_permutation, np.array([2, 0, 3, 1], np.int32))


@pytest.mark.first("int64")
@pytest.mark.parametrize("x", [INT64, DOUBLES], ids=["int64", "double"])
def test_segments_add_up_and_multiply_in_their_own_type(x: np.ndarray) -> None:
    rows = (
        np.concatenate([x, x]).astype(x.dtype) % 1000003 if x.dtype == np.float64 else np.concatenate([x, x])
    )
    for op in (tf.math.unsorted_segment_sum, tf.math.unsorted_segment_prod):
        agree(
            lambda rows, ids, op=op: op(rows, ids, 4), rows, np.array([1, -1, 1, 3], np.int32), opsets=SINCE
        )
    agree(tf.math.segment_sum, rows, np.array([0, 0, 2, 2]), opsets=SINCE)


@pytest.mark.first("int64", "uint64")
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_bits_are_shifted_with_their_sign(dtype: str) -> None:
    limits = np.iinfo(dtype)
    signed = [-100, -7, -1] if limits.min else []
    x = np.array([100, 7, 1, 127, 0, *signed, limits.min, limits.max], dtype)
    places = np.array([[0, 1, 5, 7, limits.bits - 2, limits.bits - 1]], dtype)
    for op in (raw.RightShift, raw.LeftShift):
        agree(lambda x, y, op=op: op(x=x, y=y), x[:, None], places)


def test_casts_that_round_or_wrap_around_stay() -> None:
    agree(lambda x: tf.cast(tf.cast(x, tf.float32), tf.float64) * 1e9, DOUBLES % 7)
    agree(lambda x: tf.cast(tf.cast(x, tf.int8), tf.int32), INT32)


@needs("onnxruntime", 1, 30, why="ONNX Runtime gives zeros as the bound of no narrow integers")
def test_a_bound_of_no_narrow_integers_is_the_end_of_their_type() -> None:
    for op in (tf.reduce_max, tf.reduce_min):
        agree(lambda x, op=op: op(x, 1), np.ones((2, 0, 3), np.int8), opsets=SINCE[:1])


def test_what_a_float_would_lose_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"\(as float, which lacks numbers of int64\)"):
        agree(lambda x: raw.Bincount(arr=x, size=4, weights=np.zeros(0, np.float32)), np.ones(3, np.int32))
