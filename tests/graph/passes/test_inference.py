"""Simplified graphs compute the same: dropout, branches, layer normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import (
    cast_dropout,
    drawing,
    floor_dropout,
    ops,
    placeholder,
    uniform,
    v1,
    variational_dropout,
)

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.graph import node_defs
from cudnn_convert.graph import ops as op_sets
from cudnn_convert.graph.graph import Graph, import_graph
from cudnn_convert.graph.passes import inference
from cudnn_convert.graph.passes.inference import separate_sums
from cudnn_convert.graph.session import session

# What inference does not need goes; what might matter stays; names keep their meaning.

X = np.arange(6, dtype=np.float32).reshape(1, 2, 3) + 1


def simplified(graph: tf.Graph, *outputs: str) -> Any:
    kept = [f"{name}:0" for name in outputs or ("out",)]
    return inference.simplify_for_inference(Graph(graph.as_graph_def()), kept).definition


def answer(graph: Any, output: str = "out:0", **feeds: Any) -> Any:
    with v1.Session(graph=import_graph(graph)) as session:
        return session.run(output, {f"{name}:0": value for name, value in {"x": X, **feeds}.items()})


def test_a_placeholder_with_default_becomes_its_default() -> None:
    with drawing() as graph:
        tf.multiply(placeholder("x"), v1.placeholder_with_default(2.0, [], "scale"), name="out")
    made = simplified(graph)
    assert ops(made)["scale"] == "Identity"
    np.testing.assert_array_equal(answer(made), X * 2)


def test_the_graph_that_was_given_is_not_changed() -> None:
    with drawing() as graph:
        train = v1.placeholder_with_default(False, [], "train")
        x = placeholder("x")
        tf.identity(v1.cond(train, lambda: x + 1, lambda: x), "out")
    source = graph.as_graph_def()
    before = source.SerializeToString(deterministic=True)
    inference.simplify_for_inference(Graph(source), ["out:0"])
    assert source.SerializeToString(deterministic=True) == before


#: Branches as TensorFlow 1 programs write them: `(true, false)` of the input.
BRANCHES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "arithmetic": (lambda x: x * 2, lambda x: x - 1),
    "as-it-is": (lambda x: x * 2, lambda x: x),
    "constant-true": (lambda x: tf.ones([1, 2, 3]) * 7, lambda x: x - 1),
    "constant-false": (lambda x: x * 2, lambda x: tf.zeros([1, 2, 3]) + 3),
    "both-constant": (lambda x: tf.ones([3]) * 7, lambda x: tf.zeros([3])),
}


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize("branches", BRANCHES.values(), ids=BRANCHES.keys())
def test_the_dead_branch_goes(branches: tuple[Any, Any], is_taken: bool) -> None:
    with drawing() as graph:
        train, x = v1.placeholder_with_default(is_taken, [], "train"), placeholder("x")
        made = v1.cond(train, lambda: branches[0](x), lambda: branches[1](x))
        tf.add(made, tf.reduce_sum(x) * 0, name="out")
    found = simplified(graph)
    assert not {"Switch", "Merge"} & set(ops(found).values())
    np.testing.assert_array_equal(answer(found), answer(graph.as_graph_def()))
    np.testing.assert_array_equal(answer(found), np.array(branches[0 if is_taken else 1](X)) + 0 * X.sum())


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_a_branch_within_a_branch(outer: bool, inner: bool) -> None:
    with drawing() as graph:
        x = placeholder("x")
        one, two = (v1.placeholder_with_default(value, []) for value in (outer, inner))
        made = v1.cond(one, lambda: v1.cond(two, lambda: x * 2, lambda: x * 3), lambda: x * 5)
        tf.identity(made, "out")
    found = simplified(graph)
    assert not {"Switch", "Merge"} & set(ops(found).values())
    np.testing.assert_array_equal(answer(found), X * ((2 if inner else 3) if outer else 5))


def test_a_branch_of_several_outputs() -> None:
    with drawing() as graph:
        x, train = placeholder("x"), v1.placeholder_with_default(False, [])
        one, two = v1.cond(train, lambda: (x, x + 1), lambda: (x * 2, tf.zeros([2])))
        tf.identity(one, "out")
        tf.identity(two, "other")
    found = simplified(graph, "out", "other")
    np.testing.assert_array_equal(answer(found), X * 2)
    np.testing.assert_array_equal(answer(found, "other:0"), np.zeros(2))


def test_a_live_branch_within_a_dead_switch_keeps_its_own() -> None:
    """The outer predicate is known, the inner one is an input."""
    with drawing() as graph:
        x, known = placeholder("x"), v1.placeholder_with_default(True, [])
        asked = placeholder("asked", [], tf.bool)
        tf.identity(v1.cond(known, lambda: v1.cond(asked, lambda: x * 2, lambda: x * 3), lambda: x), "out")
    found = simplified(graph)
    for asked_for, factor in ((True, 2), (False, 3)):
        np.testing.assert_array_equal(answer(found, asked=asked_for), X * factor)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_loop_in_a_branch(is_taken: bool) -> None:
    """Its bound is a constant, so nothing but its first values comes from the branch."""
    with drawing() as graph:
        x, known = placeholder("x"), v1.placeholder_with_default(is_taken, [])
        looped = lambda: v1.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * 2), (0, x))[1]  # noqa: E731
        tf.identity(v1.cond(known, looped, lambda: x - 1), "out")
    found = simplified(graph)
    assert ("LoopCond" in ops(found).values()) == is_taken
    np.testing.assert_array_equal(answer(found), X * 8 if is_taken else X - 1)


def test_a_switch_that_is_asked_for_stays() -> None:
    with drawing() as graph:
        x, train = placeholder("x"), placeholder("train", [], tf.bool)
        tf.identity(v1.cond(train, lambda: x * 2, lambda: x), "out")
    assert {"Switch", "Merge"} <= set(ops(simplified(graph)).values())


#: A dropout that is off: what it is made of, and what decides its rate.
OFF = {
    "1.12-keep": lambda x: floor_dropout(x, v1.placeholder_with_default(1.0, [])),
    "1.12-constant": lambda x: floor_dropout(x, tf.constant(1.0)),
    "1.13-rate": lambda x: floor_dropout(x, 1.0 - v1.placeholder_with_default(0.0, [])),
    "1.15-rate": lambda x: cast_dropout(x, v1.placeholder_with_default(0.0, [])),
    "1.15-keep": lambda x: cast_dropout(x, 1.0 - v1.placeholder_with_default(1.0, [])),
    "variational": lambda x: variational_dropout(x, v1.placeholder_with_default(1.0, [])),
}
#: Random numbers that matter.
ON = {
    "1.12-half": lambda x: floor_dropout(x, tf.constant(0.5)),
    "1.12-unknown": lambda x: floor_dropout(x, placeholder("keep", [])),
    "1.12-wide": lambda x: floor_dropout(x, tf.constant(1.0), high=2.0),
    "1.12-low": lambda x: floor_dropout(x, tf.constant(1.0), low=-1.0),
    "variational-half": lambda x: variational_dropout(x, tf.constant(0.5)),
    "1.15-half": lambda x: cast_dropout(x, tf.constant(0.5)),
    "1.15-unknown": lambda x: cast_dropout(x, placeholder("rate", [])),
    "1.15-low": lambda x: cast_dropout(x, tf.constant(0.0), low=-1.0),
    "other-way-round": lambda x: x * tf.cast(tf.constant(0.0) >= uniform(x), tf.float32),
    "product": lambda x: x * tf.floor(uniform(x) * tf.constant(1.0) * tf.identity(1.0)),
    "noise": lambda x: x * tf.raw_ops.RandomStandardNormal(shape=tf.shape(x), dtype=tf.float32),
}


@pytest.mark.parametrize("dropout", OFF.values(), ids=OFF.keys())
def test_a_dropout_that_is_off_goes_whole(dropout: Callable[[Any], Any]) -> None:
    with drawing() as graph:
        tf.identity(dropout(placeholder("x")), "out")
    found = simplified(graph)
    assert not op_sets.RANDOM & set(ops(found).values())
    np.testing.assert_array_equal(answer(found), X)


@pytest.mark.parametrize("dropout", ON.values(), ids=ON.keys())
def test_random_numbers_that_matter_stay(dropout: Callable[[Any], Any]) -> None:
    with drawing() as graph:
        tf.identity(dropout(placeholder("x")), "out")
    assert op_sets.RANDOM & set(ops(simplified(graph)).values())


def test_names_of_what_was_simplified_still_mean_the_same() -> None:
    with drawing() as graph:
        x, train = placeholder("x"), v1.placeholder_with_default(False, [], "train")
        dropped = tf.identity(floor_dropout(x, tf.constant(1.0)), "dropped")
        tf.identity(v1.cond(train, lambda: x * 0, lambda: dropped * 2, name="choice"), "out")
    found = simplified(graph, "out", "choice/Merge", "dropped")
    for name, expected in (("out", X * 2), ("choice/Merge", X * 2), ("dropped", X), ("train", False)):
        np.testing.assert_array_equal(answer(found, f"{name}:0"), expected)


# Layer normalisation keeps its epsilon, which TensorFlow's fused op does not.

RNG = np.random.default_rng(7)
FEED = (0.1 * RNG.normal(size=(3, 5, 6))).astype(np.float32)
GAIN, BIAS = RNG.normal(size=(2, 6)).astype(np.float32)
EPSILON = 1e-6


def normalised(*, swapped: bool = False) -> Any:
    """A frozen graph as TensorFlow 1's `batch_normalization` writes it, over the last axis of `x`."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 6], name="x")
        mean, variance = tf.nn.moments(x, [2], keepdims=True)
        total = EPSILON + variance if swapped else variance + EPSILON
        scale = tf.math.rsqrt(total) * tf.constant(GAIN)
        tf.identity(x * scale + (tf.constant(BIAS) - mean * scale), name="y")
    return graph.as_graph_def()


def expected() -> np.ndarray:
    wide = FEED.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    return centred / np.sqrt(wide.var(-1, keepdims=True) + EPSILON) * GAIN + BIAS


def answer_of_a_session(graph: Any) -> np.ndarray:
    """What a user's plain session gives."""
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        with v1.Session(graph=imported) as running:
            return np.asarray(running.run("y:0", {"x:0": FEED}))


def test_tensorflow_fuses_it_as_it_is() -> None:
    gap = np.abs(answer_of_a_session(normalised()) - expected()).max()
    if gap < 1e-5:
        pytest.skip("oneDNN is off, or this processor has none: nothing is fused")
    assert gap > 1e-2


@pytest.mark.parametrize("swapped", [False, True])
def test_a_user_gets_the_epsilon_of_the_source(swapped: bool) -> None:
    graph = normalised(swapped=swapped)
    made = separate_sums(Graph(graph)).definition
    np.testing.assert_allclose(answer_of_a_session(made), expected(), atol=1e-5)
    assert {node.name for node in graph.node} < {node.name for node in made.node}


def test_a_source_runs_with_its_own_epsilon() -> None:
    with session(normalised(), {}) as running:
        np.testing.assert_allclose(running.run("y:0", {"x:0": FEED}), expected(), atol=1e-5)


def test_in_a_loop_the_constant_enters_it() -> None:
    with drawing() as graph:
        x = v1.placeholder(tf.float32, [None, None, 6], name="x")
        outside = tf.constant(EPSILON)

        def body(step: Any, value: Any) -> Any:
            mean, variance = tf.nn.moments(value, [2], keepdims=True)
            scale = tf.math.rsqrt(variance + outside) * GAIN
            return step + 1, tf.ensure_shape(value * scale + (BIAS - mean * scale), x.shape)

        _, y = v1.while_loop(lambda step, _: step < 1, body, [0, x])
        tf.identity(y, name="y")
    made = separate_sums(Graph(graph.as_graph_def())).definition
    assert [node.op for node in made.node if node.name.endswith("/negated")] == ["Const", "Enter"]
    np.testing.assert_allclose(answer_of_a_session(made), expected(), atol=1e-5)


def test_other_sums_stay() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4])
        tf.math.rsqrt(x + 1.0)
        tf.reduce_mean(x, -1) + 1.0
        tf.math.rsqrt(tf.reduce_mean(x, -1) + tf.reduce_max(x, -1))
    source = Graph(graph.as_graph_def())
    assert separate_sums(source) is source


def test_nodes_with_inputs_wait_for_nothing_more() -> None:
    """A constant stays where it was: in its branch or loop."""
    nodes = [
        node_defs.placeholder("x", tf.float32, tf.TensorShape([])),
        node_defs.constant("k", np.array(2.0), control=["^x"]),
        node_defs.node("y", "Mul", ["x", "k", "^x"], T=tf.float32),
        node_defs.node("all", "NoOp", ["^y", "^k"]),
    ]
    graph = inference.drop_waits(Graph(tf.Graph().as_graph_def(), nodes))
    assert {node.name: [*node.input] for node in graph.node} == {
        "x": [],
        "k": ["^x"],
        "y": ["x", "k"],
        "all": ["^y", "^k"],
    }


@pytest.mark.usefixtures("v1_control_flow")
def test_a_slice_in_a_loop_has_strides_that_are_a_constant() -> None:
    """TensorFlow knows the rank of the slice then; one whose strides are no constant stays as it is."""
    with drawing() as graph:
        x, other = v1.placeholder("float32", [None, 2, 3], "x"), v1.placeholder("int32", [1], "other")
        fixed = tf.constant([1])

        def body(k: Any, total: Any) -> Any:
            ends = tf.reshape(k, [1]), tf.reshape(k + 1, [1])
            first = tf.strided_slice(x, *ends, tf.identity(fixed), shrink_axis_mask=1, name="first")
            return k + 1, total + first + tf.strided_slice(x, *ends, other, name="second")[0]

        shapes = [tf.TensorShape([]), tf.TensorShape(None)]
        tf.identity(tf.while_loop(lambda k, _: k < 2, body, [0, tf.zeros([2, 3])], shapes)[1], "out")
    source = Graph(graph.as_graph_def())
    copied = inference.copy_strides_into_loops(source)
    shapes_by_name = {
        name: (source.shapes.get_tensor_by_name(name).shape, copied.shapes.get_tensor_by_name(name).shape)
        for name in ("while/first:0", "while/second:0")
    }
    assert [shape.rank for pair in shapes_by_name.values() for shape in pair] == [None, 2, None, None]
    feeds = {"x": np.stack([X[0], X[0] * 3]), "other": [1]}
    np.testing.assert_array_equal(answer(copied.definition, **feeds), answer(graph.as_graph_def(), **feeds))


# Weights in 8 bits, as TensorFlow 1's graph transforms stored them.


def quantized(low: Any, high: Any, name: str = "w") -> Any:
    """A Dequantize of [0, 1, 128, 255] between `low` and `high`."""
    values = tf.constant(np.array([0, 1, 128, 255], np.uint8).view(tf.quint8.as_numpy_dtype))
    return tf.raw_ops.Dequantize(input=values, min_range=low, max_range=high, mode="MIN_FIRST", name=name)


def test_weights_in_8_bits_become_floats() -> None:
    with drawing() as graph:
        fed = v1.placeholder(tf.float32, [], "fed")
        tf.identity(quantized(tf.identity(-0.5), 1.0) * 2.0, "out")
        quantized(fed, 1.0, "of_this_call")
    folded = inference.fold_quantized_weights(Graph(graph.as_graph_def()))
    assert {name: folded.index.nodes[name].op for name in ("w", "of_this_call")} == {
        "w": "Const",
        "of_this_call": "Dequantize",
    }
    expected = 2 * (-0.5 + np.array([0, 1, 128, 255]) * 1.5 / 255)
    with v1.Session(graph=import_graph(folded)) as session:
        np.testing.assert_allclose(session.run("out:0"), expected, rtol=1e-5)


def test_a_single_weight_in_8_bits() -> None:
    """As `quantize_weights` with a `minimum_size` of 1 stores it."""
    with drawing() as graph:
        value = tf.constant(np.array(128, np.uint8).view(tf.quint8.as_numpy_dtype))
        scale = tf.raw_ops.Dequantize(input=value, min_range=-0.5, max_range=1.0, mode="MIN_FIRST", name="w")
        tf.identity(scale, "out")
    folded = inference.fold_quantized_weights(Graph(graph.as_graph_def()))
    assert folded.index.nodes["w"].op == "Const"
    with v1.Session(graph=import_graph(folded)) as session:
        answer = session.run("out:0")
    assert np.shape(answer) == ()
    np.testing.assert_allclose(answer, -0.5 + 128 * 1.5 / 255, rtol=1e-5)


def test_a_graph_without_such_weights_stays_itself() -> None:
    with drawing() as graph:
        tf.identity(placeholder("x"), "out")
    given = Graph(graph.as_graph_def())
    assert inference.fold_quantized_weights(given) is given


def test_weights_in_8_bits_of_too_few_bytes() -> None:
    with drawing() as graph:
        quantized(-1.0, 1.0)
    definition = graph.as_graph_def()
    (values,) = (node for node in definition.node if node.attr["dtype"].type == tf.quint8.as_datatype_enum)
    values.attr["value"].tensor.tensor_content = b"x"
    with pytest.raises(InvalidModelError, match="expected quantized weights that TensorFlow can read"):
        inference.fold_quantized_weights(Graph(definition))
