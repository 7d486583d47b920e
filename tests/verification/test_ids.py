"""Which tables the integers of an input pick rows of, and random ones that stay within them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import BLOB, INPUTS, drawing, lstm, model, placeholder, variable
from support.plans import plan_graph

from cudnn_convert.graph.index import Index
from cudnn_convert.verification import feeds, graph_judge, ids

v1 = tf.compat.v1
raw = tf.raw_ops
ROWS = 5
TABLE = np.random.default_rng(1).normal(size=(ROWS, INPUTS)).astype(np.float32)


def rows_of(build: Callable[[Any], Any], count: Callable[..., int | None] = ids.count_rows) -> int | None:
    """The rows of the table that `build` makes of the ids `x [3, 4]`."""
    with drawing() as graph:
        build(placeholder("x", (3, 4), tf.int32))
    return count(Index(graph.as_graph_def()), graph, "x:0")


def taken(picked: Any, rows: int = ROWS) -> Any:
    return raw.GatherV2(params=tf.zeros([rows, INPUTS]), indices=picked, axis=0)


def in_a_branch(x: Any) -> Any:
    """The second branch hands the ids on."""
    return v1.cond(tf.shape(x)[0] > 9, lambda: tf.zeros_like(x), lambda: x)


HAND_ON = {
    "slice": lambda x: tf.slice(x, [0, 0], [2, 2]),
    "pad": lambda x: tf.pad(x, [[0, 0], [1, 1]]),
    "first_word": lambda x: tf.concat([tf.ones([3, 1], tf.int32), x[:, :-1]], 1),
    "old_concat": lambda x: raw.Concat(concat_dim=1, values=[x, x]),
    "reverse": lambda x: tf.reverse(x, [1]),
    "reverse_rows": lambda x: tf.reverse_sequence(x, tf.constant([1, 2, 3]), 1, 0),
    "split": lambda x: tf.split(x, 2, 1)[1],
    "split_by_sizes": lambda x: tf.split(x, [1, 3], 1)[1],
    "unpack": lambda x: tf.unstack(x, axis=1)[2],
    "pack": lambda x: tf.stack([tf.zeros_like(x), x], 2),
    "tile": lambda x: tf.tile(x, [2, 1]),
    "mask": lambda x: tf.boolean_mask(x, [True, False, True]),
    "gather_nd": lambda x: tf.gather_nd(x, [[0, 1], [2, 3]]),
    "to_dense": lambda x: raw.SparseToDense(
        sparse_indices=[[0], [1], [2]], output_shape=[4], sparse_values=x[:, 0], default_value=0
    ),
    "unique": lambda x: tf.unique(tf.reshape(x, [-1]))[0],
    "select": lambda x: tf.where(x > 9, tf.zeros_like(x), x),
    "clip": lambda x: tf.maximum(0, x),
    "branch": in_a_branch,
    "stop": tf.stop_gradient,
    "print": lambda x: raw.Print(input=x, data=[x]),
}


@pytest.mark.parametrize("name", HAND_ON)
def test_what_hands_ids_on(name: str) -> None:
    assert rows_of(lambda x: taken(HAND_ON[name](x))) == ROWS


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda x: (taken(x, 9), taken(tf.reverse(x, [1]), 7)), 7, id="the_smaller_table"),
        pytest.param(lambda x: raw.GatherV2(params=tf.zeros([2, 8, 6]), indices=x, axis=1), 8, id="axis"),
        pytest.param(lambda x: tf.one_hot(tf.pad(x, [[0, 0], [1, 1]]), 6), 6, id="one_hot"),
        pytest.param(lambda x: taken(x + 1), None, id="arithmetic"),
        pytest.param(lambda x: taken(tf.unique(tf.reshape(x, [-1]))[1]), None, id="places_in_unique"),
        pytest.param(lambda x: tf.slice(taken([0, 1]), [x[0, 0], 0], [1, 1]), None, id="begin_of_a_slice"),
        pytest.param(lambda x: taken(tf.cast(x > 0, tf.int32)), None, id="mask"),
    ],
)
def test_a_table_is_that_of_the_values(build: Callable[[Any], Any], expected: int | None) -> None:
    assert rows_of(build) == expected


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        pytest.param(lambda x: taken(x * tf.cast(x < 9, tf.int32)), ROWS, id="product"),
        pytest.param(lambda x: (taken(x - 1, 9), taken(x + 1, 7)), 7, id="the_smaller_table"),
        pytest.param(lambda x: taken(tf.map_fn(lambda row: row, x)), ROWS, id="loop"),
        pytest.param(lambda x: taken(tf.cast(x > 0, tf.int32)), None, id="mask"),
        pytest.param(lambda x: taken(tf.range(tf.shape(x)[1])), None, id="shape"),
        pytest.param(lambda x: taken(tf.argmax(taken(x, 9), 1), 3), 9, id="what_comes_of_a_row"),
    ],
)
def test_the_smallest_table_that_integers_come_to(build: Callable[[Any], Any], expected: int | None) -> None:
    assert rows_of(build, ids.count_fewest_rows) == expected


def drawn(build: Callable[[Any], Any]) -> list[np.ndarray]:
    """Random ids `x` of a model whose recurrence reads the rows of what `build` makes of them."""
    with drawing() as graph:
        picked = build(placeholder("x", (None, None), tf.int32))
        rows = raw.GatherV2(params=variable("table", TABLE.shape), indices=picked, axis=0)
        tf.identity(lstm(tf.transpose(rows, [1, 0, 2]), variable("blob", BLOB.shape)).output, "scores")
    plan = plan_graph(model(graph, {"table": TABLE}), outputs=["scores"])
    with graph_judge.open_source(plan) as judge:
        return [feed["x:0"] for feed in feeds.generate(plan, judge, seed=5)]


def test_ids_are_all_those_of_the_table_where_they_are_handed_on() -> None:
    found = drawn(lambda x: tf.concat([tf.ones_like(x[:, :1]), x[:, :-1]], 1))
    assert [values.shape for values in found] == [(3, 17), (2, 9)]
    assert {*found[0].ravel().tolist()} == {*range(ROWS)}


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda x: x * tf.cast(x < 99, tf.int32), id="product"),
        pytest.param(lambda x: x + 1, id="one_more"),
        pytest.param(lambda x: tf.ensure_shape(tf.map_fn(lambda row: row, x), [None, None]), id="loop"),
    ],
)
def test_ids_are_small_where_the_graph_computes_others(build: Callable[[Any], Any]) -> None:
    for values in drawn(build):
        assert {*values.ravel().tolist()} == {1, 2, 3}
