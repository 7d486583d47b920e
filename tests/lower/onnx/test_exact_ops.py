"""ONNX Runtime answers as TensorFlow does for negative, repeated, large and infinite values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.lowered_recurrences import session

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower.onnx.convert import lower
from cudnn_convert.model import Array, Signature

v1, raw = tf.compat.v1, tf.raw_ops
NOTHING = -np.inf
#: With and without ops that compare with equality; with and without attributes that became inputs.
OPSETS = (11, 17, 18)
IDS = np.array([1, -1, 5, 0, 4, -5, 7, -6], np.int32)
NUMBERS = np.array([-7, -6, -3, -1, 0, 1, 2, 5, 6, 7])
DIVISORS = np.array([3, -3, 3, 2, 5, -2, 7, -7, 4, -1])
ROWS = np.array([[2], [0], [2], [3], [0], [2]], np.int32)
SEGMENTS = np.array([1, -1, 3, 1, 0, -1], np.int32)


def values(*shape: int, dtype: str = "float32") -> Array:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * 4).astype(dtype)


def both(build: Callable[..., Any], given: tuple[Array, ...], opset: int) -> tuple[Array, Array]:
    """What ONNX Runtime and TensorFlow answer."""
    keys = [f"x{k}" for k in range(len(given))]
    with tf.Graph().as_default() as graph:
        open_sizes = [[None] * value.ndim for value in given]
        inputs = [
            v1.placeholder(value.dtype, shape, key)
            for value, shape, key in zip(given, open_sizes, keys, strict=True)
        ]
        tf.identity(build(*inputs), "y")
    signature = Signature({key: f"{key}:0" for key in keys}, {"y": "y:0"})
    run = session(lower(graph.as_graph_def(), signature, [], opset=opset).whole())
    with v1.Session(graph=graph) as tensorflow:
        expected = tensorflow.run("y:0", {f"{key}:0": x for key, x in zip(keys, given, strict=True)})
    return run.run(["y"], dict(zip(keys, given, strict=True)))[0], expected


def agree(build: Callable[..., Any], *given: Array, opsets: tuple[int, ...] = OPSETS) -> None:
    for opset in opsets:
        got, expected = both(build, given, opset)
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6, err_msg=f"opset {opset}")


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int32", "float16", "uint8"])
def test_ids_that_are_no_class_are_off(dtype: str, axis: int) -> None:
    on, off = (True, False) if dtype == "bool" else (1, 0)
    for ids in (IDS, IDS.reshape(2, 4).astype(np.int64)):
        agree(lambda x: tf.one_hot(x, 5, on, off, axis, dtype), ids, opsets=(17,))


def test_other_values_of_a_class() -> None:
    ids = IDS.reshape(2, 4)
    agree(lambda x: tf.one_hot(x, 5, 2.5, NOTHING), ids)
    agree(lambda x: tf.one_hot(x, 5, False, True, dtype=tf.bool), ids)
    scalars = (np.array(4, np.int32), np.array(0.5, np.float32), np.array(-0.5, np.float32))
    agree(lambda x, depth, on, off: tf.one_hot(x, depth, on, off, axis=0), ids, *scalars)
    agree(lambda x: tf.one_hot(x, 5), np.array(-1, np.int32))
    agree(lambda x: tf.one_hot(x, 5, axis=0), np.array(3, np.int32))


@pytest.mark.parametrize(
    ("build", "op", "why"),
    [
        (
            lambda x: tf.one_hot(x, 3, axis=1, name="y"),
            "OneHot",
            "an axis counted from the first of an unknown rank",
        ),
        (
            lambda x: raw.SegmentMax(data=x, segment_ids=[0, 2], name="y"),
            "SegmentMax",
            "segments of an unknown rank",
        ),
    ],
    ids=["axis", "segments"],
)
def test_an_unknown_rank_is_refused_where_it_counts(build: Any, op: str, why: str) -> None:
    with tf.Graph().as_default() as graph:
        build(tf.reshape(v1.placeholder(tf.int32, [None], "x"), v1.placeholder(tf.int32, [None], "shape")))
    with pytest.raises(UnsupportedModelError) as refused:
        lower(graph.as_graph_def(), Signature({"x": "x:0", "shape": "shape:0"}, {"y": "y:0"}), [])
    (reason,) = refused.value.reasons
    assert reason.startswith(f"y: expected an op that ONNX has, found {op} ({why})")


@pytest.mark.first("float16", "bool")
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "bool"])
def test_values_of_repeated_indices_add_up(dtype: str) -> None:
    updates = values(6, 3, dtype=dtype)
    agree(lambda i, x: tf.scatter_nd(i, x, [5, 3]), ROWS, updates, opsets=(16, 17))
    pairs = np.concatenate([ROWS, ROWS % 2], 1)
    agree(lambda i, x: tf.scatter_nd(i, x, [5, 3]), pairs, updates[:, 0], opsets=(17,))


def test_repeated_indices_are_refused_where_one_value_would_win() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", [6, 3], "x")
        tf.identity(tf.scatter_nd(ROWS, x, [5, 3], name="sums"), "y")
    with pytest.raises(UnsupportedModelError) as refused:
        lower(graph.as_graph_def(), Signature({"x": "x:0"}, {"y": "y:0"}), [], opset=15)
    (reason,) = refused.value.reasons
    assert reason.startswith(
        "sums: expected an op that ONNX has, found ScatterNd (ONNX adds up repeated indices from opset 16 on)"
    )


@pytest.mark.first("int32")
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integers_are_divided_down(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.append(NUMBERS, [limits.min, limits.max, limits.min]).astype(dtype)
    y = np.append(DIVISORS, [3, -3, 1]).astype(dtype)
    agree(tf.math.floordiv, x, y)
    agree(tf.math.floormod, x, y)


def test_integers_are_divided_towards_zero() -> None:
    x, y = NUMBERS.astype(np.int32), DIVISORS.astype(np.int32)
    for op in (raw.Div, raw.TruncateDiv, raw.Mod, raw.TruncateMod):
        agree(lambda x, y, op=op: op(x=x, y=y), x, y, opsets=(17,))
    agree(tf.math.floordiv, np.abs(x).astype(np.uint8), np.abs(y).astype(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_floats(dtype: str) -> None:
    x = np.array([-7.5, -6, -3.3, -1, 0, 1, 2.5, 0.5, 1.5, -0.5, 1e6, 1, -1], dtype)
    y = np.array([1.5, -1.5, 0.1, -0.1, 3, 0.1, 0.5, -2, 0.3, -0.7, 0.1, np.inf, np.inf], dtype)
    agree(tf.math.floormod, x, y)
    agree(tf.math.floordiv, x, y)
    agree(lambda x, y: raw.Mod(x=x, y=y), x, y)


@pytest.mark.parametrize(("dtype", "large"), [("int32", 2**24), ("int64", 2**53), ("uint8", 200)])
@pytest.mark.parametrize("op", [tf.less, tf.greater, tf.less_equal, tf.greater_equal])
def test_large_integers_differ(op: Any, dtype: str, large: int) -> None:
    x, y = np.array([[large, large + 1, large], [large + 1, large, large]], dtype)
    agree(op, x, y)


@pytest.mark.parametrize("op", [tf.less, tf.greater, tf.less_equal, tf.greater_equal])
def test_nothing_compares_with_what_is_no_number(op: Any) -> None:
    agree(op, np.array([np.nan, 1, 2, -np.inf], np.float32), np.array([np.nan, np.nan, 2, 1], np.float32))


@pytest.mark.first("float32")
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_bands_of_matrices(dtype: str) -> None:
    x = values(2, 4, 5)
    x = np.where(x > 0, NOTHING, x) if dtype == "float32" else x.astype(dtype)
    for lower_bound, upper in ((0, -1), (-1, 0), (1, 1), (2, -1), (-1, -1)):
        agree(lambda x, a=lower_bound, b=upper: tf.linalg.band_part(x, a, b), x, opsets=(17,))
    agree(tf.linalg.band_part, x, np.array(1, np.int32), np.array(-1, np.int32))


def test_slices_up_to_the_end() -> None:
    x, count = values(3, 4, 5), np.array(2, np.int32)
    agree(lambda x, n: tf.slice(x, [0, 1, 2], tf.stack([-1, n, -1])), x, count)
    agree(lambda x, n: tf.slice(x, tf.stack([0, 1, n]), [-1, 2, -1]), x, count)


@pytest.mark.first("max")
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_rows_of_no_segment_do_not_count(name: str) -> None:
    reduce = getattr(tf.math, f"unsorted_segment_{name}")
    agree(lambda x, ids: reduce(x, ids, 5), values(6, 3), SEGMENTS)
    agree(lambda x, ids: reduce(x, ids, 5), values(6, 3), np.full_like(SEGMENTS, -1), opsets=(17,))
    agree(reduce, values(6), SEGMENTS.astype(np.int64), np.array(6, np.int32))
    infinite = np.array([1, NOTHING, NOTHING, 2, np.inf, 0], np.float32)
    agree(lambda x, ids: reduce(x, ids, 5), infinite, SEGMENTS, opsets=(17,))


@pytest.mark.first("min")
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean"])
def test_segments_without_rows(name: str) -> None:
    ids = np.array([0, 0, 2, 2, 2, 5], np.int32)
    agree(getattr(tf.math, f"segment_{name}"), values(6, 3), ids)
    agree(getattr(tf.math, f"segment_{name}"), values(6), ids.astype(np.int64))


@pytest.mark.parametrize("name", ["mean", "sqrt_n"])
def test_segments_of_looked_up_rows(name: str) -> None:
    rows, ids = np.array([3, 0, 3, 1, 2], np.int32), np.array([0, 0, 2, 2, 4], np.int32)
    agree(getattr(tf.sparse, f"segment_{name}"), values(5, 3), rows, ids)


def test_in_the_body_of_a_loop() -> None:
    def build(ids: Any) -> Any:
        sums = tf.zeros([tf.shape(ids)[0], 5])
        return tf.while_loop(
            lambda k, _: k < tf.shape(ids)[1],
            lambda k, sums: (k + 1, sums + tf.one_hot(ids[:, k] // 2, 5)),
            [0, sums],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 5])],
        )[1]

    v1.disable_control_flow_v2()
    try:
        agree(build, IDS.reshape(2, 4), opsets=(17,))
    finally:
        v1.enable_control_flow_v2()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_choice_keeps_infinities(dtype: str) -> None:
    """In what it chooses and in what it does not, element by element, row by row, for all at once."""
    with tf.Graph().as_default() as graph:
        x, y = (v1.placeholder(dtype, [None, 3], name) for name in "xy")
        each, rows = v1.placeholder("bool", [None, 3], "each"), v1.placeholder("bool", [None], "rows")
        tf.raw_ops.SelectV2(condition=each, t=x, e=y, name="by_element")
        tf.raw_ops.Select(condition=rows, x=x, y=y, name="by_row")
        tf.raw_ops.SelectV2(condition=rows[0], t=x, e=y, name="whole")
        tf.raw_ops.SelectV2(condition=each, t=tf.cast(x > 0, "int32"), e=[7, 8, 9], name="numbers")
    names = ("by_element", "by_row", "whole", "numbers")
    signature = Signature({k: f"{k}:0" for k in ("x", "y", "each", "rows")}, {k: f"{k}:0" for k in names})
    run = session(lower(graph.as_graph_def(), signature, []).whole())
    feeds = {
        "x": np.array([[np.inf, 1, 2], [3, -np.inf, 4]], dtype),
        "y": np.array([[5, np.nan, -np.inf], [6, np.inf, 7]], dtype),
        "each": np.array([[True, True, False], [False, True, True]]),
        "rows": np.array([True, False]),
    }
    with v1.Session(graph=graph) as tensorflow:
        expected = tensorflow.run([f"{k}:0" for k in names], {f"{k}:0": feeds[k] for k in feeds})
    assert np.isinf(expected[0]).any()
    for name, got, want in zip(names, run.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(got, want, name)
