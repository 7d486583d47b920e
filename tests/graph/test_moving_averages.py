"""Which variables are moving averages of which tensors: by what an assignment computes, not by names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from support.graphs import drawing, placeholder, resource, v1, variable

from cudnn_convert.graph import moving_averages
from cudnn_convert.graph.graph import Graph


def averages(update: Callable[[Any, Any, Any], Any], *, in_branch: bool = False) -> dict[str, list[str]]:
    """Of a variable `kept`, whose value is `kept_read`, that `update` moves towards the tensor `mean`."""
    with drawing() as graph:
        mean = tf.reduce_mean(placeholder("x"), [0, 1], name="mean")
        kept = variable("kept", [3])
        if in_branch:
            v1.cond(
                placeholder("flag", [], tf.bool),
                lambda: update(kept, tf.identity(kept, "read"), mean),
                lambda: tf.identity(mean),
            )
        else:
            update(kept, tf.identity(kept, "read"), mean)
    return moving_averages.find_averages(Graph(graph.as_graph_def()).index)


def assign(ref: Any, value: Any) -> Any:
    return tf.raw_ops.Assign(ref=ref, value=value)


def subtract(ref: Any, value: Any) -> Any:
    return tf.raw_ops.AssignSub(ref=ref, value=value)


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(lambda v, read, m: subtract(v, (read - m) * 0.01), id="assign_moving_average"),
        pytest.param(lambda v, read, m: assign(v, read * 0.99 + m * (1 - 0.99)), id="weights"),
        pytest.param(lambda v, read, m: assign(v, 0.01 * m + 0.99 * read), id="the-other-way-round"),
        pytest.param(lambda v, read, m: assign(v, read - (read - m) * 0.01), id="assigned-difference"),
        pytest.param(
            lambda v, read, m: tf.raw_ops.AssignAdd(ref=v, value=(m - read) / placeholder("calls", [])),
            id="cumulative",
        ),
        pytest.param(
            lambda v, read, m: subtract(v, (read - tf.squeeze(tf.reshape(m, [1, 3]), 0)) * 0.01),
            id="squeezed",
        ),
        pytest.param(
            lambda v, read, m: subtract(v, (read - m * (placeholder("n", []) / 9.0)) * 0.01), id="unbiased"
        ),
    ],
)
def test_an_average_is_known_however_it_is_written(update: Callable[[Any, Any, Any], Any]) -> None:
    assert averages(update)["mean:0"] == ["kept"]


def test_in_a_branch() -> None:
    found = averages(lambda v, read, m: assign(v, read * 0.9 + m * 0.1), in_branch=True)
    assert found["mean:0"] == ["kept"]


@pytest.mark.parametrize(
    "update",
    [
        pytest.param(lambda v, _, m: assign(v, m), id="state"),
        pytest.param(lambda v, _, m: tf.raw_ops.AssignAdd(ref=v, value=m), id="sum"),
        pytest.param(lambda v, read, m: assign(v, read + m), id="sum-assigned"),
        pytest.param(lambda v, read, _: assign(v, read * 0.5), id="decay"),
    ],
)
def test_other_assignments_are_none(update: Callable[[Any, Any, Any], Any]) -> None:
    assert averages(update) == {}


def test_a_resource() -> None:
    with drawing() as graph:
        mean = tf.reduce_mean(placeholder("x"), [0, 1], name="mean")
        handle = resource("kept", [3])
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        tf.raw_ops.AssignSubVariableOp(resource=handle, value=(read - mean) * 0.01)
    assert moving_averages.find_averages(Graph(graph.as_graph_def()).index) == {"mean:0": ["kept"]}


def test_an_average_that_is_corrected_for_its_zero_start() -> None:
    def update(biased: Any, read: Any, mean: Any) -> None:
        moved = subtract(biased, (read - mean) * 0.01)
        assign(variable("corrected", [3]), moved / (1.0 - placeholder("power", [])))

    assert averages(update)["mean:0"] == ["corrected"]


def test_ops_that_only_update_averages() -> None:
    with drawing() as graph:
        mean = tf.reduce_mean(placeholder("x"), [0, 1], name="mean")
        kept = variable("kept", [3])
        difference = tf.subtract(tf.identity(kept, "read"), mean, name="difference")
        tf.raw_ops.AssignSub(ref=kept, value=tf.multiply(difference, 0.1, name="step"), name="update")
        tf.identity(mean, "used")
    found = moving_averages.find_update_ops(Graph(graph.as_graph_def()).index)
    assert {"difference", "step", "update", "read"} <= found
    assert not found & {"mean", "used", "x", "kept"}


def known(make: Callable[[Any], Any]) -> dict[str, list[str]]:
    """The averages of a graph from `x` to `y`, with the part of it that inference needs."""
    with drawing() as graph:
        tf.identity(make(placeholder("x")), "y")
    index = Graph(graph.as_graph_def()).index
    return moving_averages.find_averages(index, index.ancestors(["y"], control=False))


def moved_towards(mean: Any, rate: float = 0.01) -> None:
    kept = variable("kept", [3])
    subtract(kept, (tf.identity(kept) - mean) * rate)


def count(x: Any) -> Any:
    sizes = tf.shape(x)
    return tf.cast(sizes[0] * sizes[1], tf.float32)


def divided(x: Any) -> Any:
    mean = tf.divide(tf.reduce_sum(x, [0, 1]), count(x), "mean")
    moved_towards(mean)
    return x - mean


def divided_twice(x: Any) -> Any:
    """The average is of a mean that inference scales in another way."""
    total = tf.reduce_sum(x, [0, 1])
    moved_towards(total / count(x))
    return x - total * (1 / count(x))


def squeezed(x: Any) -> Any:
    """Inference needs the mean in two forms."""
    mean = tf.reduce_mean(x, [0, 1], keepdims=True, name="mean")
    flat = tf.squeeze(mean, [0, 1])
    moved_towards(flat)
    return x - mean + flat


def state(x: Any) -> Any:
    """Inference needs what is assigned."""
    kept = variable("kept", [3])
    moved = tf.identity(kept) * 0.9 + tf.reduce_mean(x, [0, 1]) * 0.1
    assign(kept, moved)
    return x * moved


@pytest.mark.parametrize(
    ("make", "found"),
    [(divided, {"mean:0": ["kept"]}), (divided_twice, {}), (squeezed, {"mean:0": ["kept"]}), (state, {})],
)
def test_what_has_the_average_is_what_inference_needs(
    make: Callable[[Any], Any], found: dict[str, list[str]]
) -> None:
    averages = known(make)
    assert {name: kept for name, kept in averages.items() if "slice" not in name} == found


def test_an_average_in_many_steps() -> None:
    """A state of small steps, as many as a sequence has, is looked at once each."""
    with drawing() as graph:
        kept, x = variable("kept", [3]), placeholder("x", [3])
        assign(kept, tf.identity(kept, "value_0") + 0.1 * (x - kept))
    made, steps = graph.as_graph_def(), 400
    for k in range(steps):
        made.node.add(name=f"difference_{k}", op="Sub", input=["x", f"value_{k}"])
        made.node.add(name=f"step_{k}", op="Mul", input=[f"difference_{k}", "mul/x"])
        made.node.add(name=f"value_{k + 1}", op="AddV2", input=[f"value_{k}", f"step_{k}"])
    (write,) = (node for node in made.node if node.op == "Assign")
    write.input[1] = f"value_{steps}"
    assert moving_averages.find_averages(Graph(made).index) == {"x:0": ["kept"]}
