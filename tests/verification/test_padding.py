"""Inputs in which a value stands for padding: found by the comparison that makes the mask, drawn to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras3_samples import exported

from cudnn_convert.graph.index import Index
from cudnn_convert.plan.from_graph import plan_graph
from cudnn_convert.read import read
from cudnn_convert.verification import feeds, graph_judge

v1 = tf.compat.v1


def padding_of(build: Callable[[Any], object], dtype: Any = tf.float32) -> Any:
    """The value that pads the placeholder `x [B, T, 3]` of a graph."""
    with tf.Graph().as_default() as graph:
        build(v1.placeholder(dtype, [None, None, 3], "x"))
    return feeds.find_padding(Index(graph.as_graph_def()), "x:0")


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda x: tf.not_equal(x, 0.0), 0.0, id="masking"),
        pytest.param(lambda x: tf.reduce_any(tf.not_equal(x, -7.5), -1), -7.5, id="another_value"),
        pytest.param(lambda x: tf.not_equal(3.0, x), 3.0, id="the_other_way_round"),
        pytest.param(lambda x: tf.not_equal(tf.identity(tf.identity(x)), 2.0), 2.0, id="behind_identities"),
        pytest.param(lambda x: tf.not_equal(tf.cast(x, tf.int32), 4), 4, id="behind_a_cast"),
        pytest.param(lambda x: (tf.sin(x), tf.not_equal(x, 5.0)), 5.0, id="one_of_several_readers"),
        pytest.param(lambda x: tf.equal(x, 0.0), None, id="equal"),
        pytest.param(lambda x: tf.not_equal(x, x), None, id="itself"),
        pytest.param(lambda x: tf.not_equal(tf.sin(x), 0.0), None, id="behind_arithmetic"),
        pytest.param(lambda x: tf.not_equal(x, v1.placeholder(tf.float32, [])), None, id="unknown"),
        pytest.param(lambda x: tf.not_equal(x, [0.0, 1.0, 2.0]), None, id="no_scalar"),
        pytest.param(lambda x: x * 2, None, id="no_mask"),
    ],
)
def test_the_value_that_an_input_is_compared_with(build: Callable[[Any], object], expected: Any) -> None:
    assert padding_of(build) == expected


def test_each_input_has_its_own() -> None:
    with tf.Graph().as_default() as graph:
        x, y, z = (v1.placeholder(tf.int32, [None, None], name) for name in "xyz")
        tf.not_equal(x, 1)
        tf.not_equal(y, 2)
        tf.identity(z)
    index = Index(graph.as_graph_def())
    assert [feeds.find_padding(index, name) for name in ("x:0", "y:0", "z:0")] == [1, 2, None]


def lengths_of(value: np.ndarray, pad: Any) -> list[int]:
    """How many steps each row `[T, ...]` has before nothing but `pad` follows; they must be free of it."""
    found = []
    for row in value:
        full = [step for step in range(len(row)) if np.any(row[step] != pad)]
        length = max(full, default=-1) + 1
        assert not np.any(row[:length] == pad), row
        assert np.all(row[length:] == pad), row
        found.append(length)
    return found


@pytest.mark.parametrize("pad", [0, 3, 9])
def test_ids_are_padded_on_the_right(pad: int) -> None:
    """No id means padding before the end, each is in its table, and each row has a step."""
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 10, (200, 12))
    assert (drawn == pad).any()
    found = feeds.pad_rows(rng, drawn.copy(), pad, ["batch", "time"], rows=10)
    assert (found.dtype, found.shape) == (drawn.dtype, drawn.shape)
    lengths = lengths_of(found, pad)
    assert min(lengths) == 1
    assert max(lengths) == 12
    assert len(set(lengths)) > 5
    assert ((found >= 0) & (found < 10)).all()
    kept = (found != pad) & (drawn != pad)
    np.testing.assert_array_equal(found[kept], drawn[kept])


@pytest.mark.parametrize("roles", [["batch", "time", None], ["time", "batch", None]])
def test_whole_steps_are_padding(roles: list[str | None]) -> None:
    """Of every feature alike, whichever axis is time."""
    rng = np.random.default_rng(2)
    drawn = rng.normal(size=(9, 9, 4)).astype(np.float32)
    found = feeds.pad_rows(rng, drawn.copy(), -1.0, roles, rows=None)
    assert found.dtype == np.float32
    by_row = found if roles[0] == "batch" else found.swapaxes(0, 1)
    assert len(set(lengths_of(by_row, -1.0))) > 3


def test_axes_of_known_width_are_taken_as_they_come() -> None:
    """Batch first, time second, where nothing else is said."""
    rng = np.random.default_rng(3)
    drawn = rng.integers(1, 9, (30, 5))
    assert len(set(lengths_of(feeds.pad_rows(rng, drawn, 0, [None, None], rows=9), 0))) > 2
    only_time = feeds.pad_rows(rng, drawn, 0, [None, "time"], rows=9)
    assert len(set(lengths_of(only_time, 0))) > 2


def test_one_axis_is_no_sequence() -> None:
    drawn = np.array([0, 4, 2])
    np.testing.assert_array_equal(
        feeds.pad_rows(np.random.default_rng(4), drawn, 0, ["batch"], rows=5), drawn
    )


@pytest.mark.parametrize(("case", "pad"), [("masked", 0), ("masked_last", 0.0), ("go_backwards_masked", 0.0)])
def test_what_verification_feeds_an_export_of_keras(case: str, pad: Any) -> None:
    made = plan_graph(read(exported(f"keras-3.15.1-{case}").path), signature="serving_default")
    with graph_judge.open_source(made) as judge:
        found = feeds.generate(made, judge, seed=11)
    lengths = [length for feed in found for value in feed.values() for length in lengths_of(value, pad)]
    assert min(lengths) >= 1
    assert len(set(lengths)) > 2
