"""Statistics of the batch are told from those of a row, and their averages take their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.batch_norm import EPSILON, make_variables, normalise, values_of
from support.graphs import BLOB, UNITS, drawing, lstm, placeholder, v1, variable

from cudnn_convert.graph import moving_averages, session
from cudnn_convert.graph.graph import Graph, prune
from cudnn_convert.graph.passes import batch_statistics
from cudnn_convert.model import InMemory

RNG = np.random.default_rng(76)


def statistics(make: Callable[[Any], Any], shape: tuple[int | None, ...] = (None, None, 3)) -> list[str]:
    with drawing() as graph:
        tf.identity(make(placeholder("x", shape)), "y")
    return batch_statistics.find_statistics(Graph(graph.as_graph_def()), ["y:0"])


@pytest.mark.parametrize(
    ("make", "found"),
    [
        pytest.param(lambda x: x - tf.reduce_mean(x, [0, 1], name="mean"), ["mean:0"], id="mean"),
        pytest.param(lambda x: x / tf.reduce_sum(x, name="sum"), ["sum:0"], id="sum-of-all"),
        pytest.param(
            lambda x: x - tf.reduce_mean(tf.boolean_mask(x, x[..., 0] > 0), 0, name="mean"),
            ["mean:0"],
            id="mask",
        ),
        pytest.param(
            lambda x: tf.nn.batch_normalization(x, *v1.nn.moments(x, [0, 1], name="m"), None, None, 1e-3),
            ["m/mean:0", "m/variance:0"],
            id="moments",
        ),
        pytest.param(lambda x: x - tf.reduce_mean(x, -1, keepdims=True), [], id="layer-norm"),
        pytest.param(lambda x: x - tf.reduce_mean(x, 1, keepdims=True), [], id="instance-norm"),
        pytest.param(lambda x: tf.reduce_mean(x, [0, 1]), [], id="the-output-itself"),
        pytest.param(lambda x: x + tf.reduce_mean(variable("w", [4, 3]), 0), [], id="weights"),
        pytest.param(lambda x: v1.Print(x, [tf.reduce_mean(x)]), [], id="printed"),
        pytest.param(
            lambda x: x[:, : tf.cast(tf.reduce_sum(x), tf.int32)], [], id="a-size"
        ),
    ],
)  # fmt: skip
def test_statistics_by_their_axes(make: Callable[[Any], Any], found: list[str]) -> None:
    assert statistics(make) == found


@pytest.mark.parametrize(
    ("batch", "axes", "found"),
    [(1, [0], []), (4, [0], []), (4, [0, 1], ["mean:0"]), (4, [2], [])],
    ids=["of-one-row", "time", "both", "layer"],
)
def test_a_fixed_batch(batch: int, axes: list[int], found: list[str]) -> None:
    """The recurrence tells which axis is the batch; the steps are open."""

    def make(x: Any) -> Any:
        y = lstm(x, variable("blob", [64])).output
        return y - tf.reduce_mean(x[..., :2], axes, keepdims=True, name="mean")

    assert statistics(make, (None, batch, 3)) == found


def test_a_reduction_of_weights_in_a_fixed_batch_is_none() -> None:
    """The weights have as many rows as the batch."""

    def make(x: Any) -> Any:
        y = lstm(x, variable("blob", [64])).output
        kernel = tf.nn.l2_normalize(tf.identity(variable("w", [UNITS, 5])), 0)
        return tf.matmul(tf.reshape(y, [-1, UNITS]), kernel)

    assert statistics(make, (None, UNITS, 3)) == []


def pooled(x: Any) -> Any:
    """A mean over steps of each row."""
    return tf.reduce_mean(x, 0, name="known")


def flattened(x: Any) -> Any:
    return tf.reduce_mean(tf.reshape(x, [-1, 3]), 0, name="known")


def divided(x: Any) -> Any:
    """By a number of rows that is an input's."""
    lengths = placeholder("lengths", [x.shape[1]], tf.int32)
    return tf.divide(tf.reduce_sum(x, [0, 1]), tf.cast(tf.reduce_sum(lengths), tf.float32), "known")


@pytest.mark.parametrize(
    ("make", "batch", "is_statistic"),
    [
        (lambda x: tf.tanh(x[-1], name="known"), 1, False),
        (lambda x: tf.nn.softmax(x[-1], name="known"), 4, False),
        (pooled, 1, False),
        (pooled, 4, False),
        (flattened, 1, True),
        (flattened, None, True),
        (divided, 1, True),
        (divided, 4, True),
        (divided, None, True),
        (lambda x: tf.reduce_mean(x, [0, 1], name="known"), 3, True),
    ],
)
def test_what_has_an_average_is_a_statistic_if_it_reduces_rows(
    make: Callable[[Any], Any], batch: int | None, is_statistic: bool
) -> None:
    """Values of single rows are none, such as what a state moves towards."""
    with drawing() as graph:
        x = placeholder("x", (None, batch, 3))
        tf.subtract(x[..., :2] + make(x)[..., :2], lstm(x, variable("blob", [64])).output, "y")
    found = batch_statistics.find_statistics(Graph(graph.as_graph_def()), ["y:0"], ["known:0"])
    assert ("known:0" in found) == is_statistic


def run(graph: Graph, values: dict[str, Any], x: Any, output: str) -> Any:
    tensors = {name: InMemory(value) for name, value in values.items()}
    with session.session(graph, tensors) as running:
        return running.run(output, {"x:0": x})


@pytest.mark.parametrize(("major", "found"), [(True, ["mean:0"]), (False, [])], ids=["time", "batch"])
def test_the_rows_of_a_recurrence_are_where_its_attribute_says(major: bool, found: list[str]) -> None:
    """A mean over seven places of an image, beside seven steps, or seven rows."""
    with drawing() as graph:
        image = placeholder("x", [None, 4, 7, 3])
        centred = image - tf.reduce_mean(image, [1, 2, 3], keepdims=True, name="mean")
        x = tf.reshape(centred[:, 0], [-1, 7, 3])
        zeros = tf.zeros([1, 7 if major else tf.shape(x)[0], UNITS])
        tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=zeros,
            input_c=zeros,
            params=tf.constant(BLOB),
            sequence_lengths=tf.fill([7], 7),
            is_training=False,
            time_major=major,
            name="rnn",
        )
    outputs = batch_statistics.find_statistics(Graph(graph.as_graph_def()), ["rnn:0"])
    assert outputs == found


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
@pytest.mark.parametrize("place", ["root", "loop"])
def test_averages_take_the_place_of_statistics(rank: int, place: str) -> None:
    """Expected is NumPy's normalisation by the averages."""
    with drawing() as graph:
        x = placeholder("x", (*[None] * (rank - 1), 3))
        if place == "loop":

            def body(number: Any, y: Any) -> Any:
                return number + 1, normalise(y, -1, training=True, variables=variables)

            variables = make_variables("norm", 3)
            y = _loop(x, body)
        else:
            y = normalise(x, -1, training=True)
        tf.identity(y, "y")
    source = Graph(graph.as_graph_def())
    values = values_of("norm", 3)
    found = {name: names[0] for name, names in moving_averages.find_averages(source.index).items()}
    statistics = batch_statistics.find_statistics(source, ["y:0"], found)
    assert len(statistics) == 2
    chosen = {name: found[name] for name in statistics}
    taken = batch_statistics.take_averages(source, chosen, lambda node: values[node.name].shape)
    pruned = prune(taken, ["y:0"])
    assert not any(node.op == "Mean" for node in pruned.node)
    x = RNG.normal(size=(*range(2, rank + 1), 3)).astype(np.float32)
    gamma, beta, mean, variance = values.values()
    expected = x
    for _ in range(2 if place == "loop" else 1):
        expected = (expected - mean) / np.sqrt(variance + EPSILON) * gamma + beta
    np.testing.assert_allclose(run(pruned, values, x, "y:0"), expected, rtol=1e-5, atol=1e-5)


def _loop(x: Any, body: Callable[[Any, Any], Any]) -> Any:
    invariants = [tf.TensorShape([]), x.shape]
    return v1.while_loop(lambda number, _: number < 2, body, [0, x], shape_invariants=invariants)[1]
