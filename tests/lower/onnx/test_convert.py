"""The ONNX lowering against the float64 reference, in ONNX Runtime."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from support.cases import BATCH, INPUTS, STEPS, UNITS, Case, swapped
from support.lowered_recurrences import session
from support.samples import ROOT
from tf2onnx import constants, tfonnx
from tf2onnx.graph import Graph
from tf2onnx.handler import tf_op

from cudnn_convert.errors import UnsupportedModelError, UsageError
from cudnn_convert.graph import graph as immutable
from cudnn_convert.graph.passes.inlining import inline_functions
from cudnn_convert.lower.onnx import convert
from cudnn_convert.lower.onnx.convert import lower
from cudnn_convert.lower.onnx.walk import all_nodes
from cudnn_convert.model import Array, Cell, Mode, Recurrence, Signature
from cudnn_convert.weights import layouts
from cudnn_convert.weights.lazy import LazyLayers

# The ONNX lowering against the float64 reference, in ONNX Runtime.

FUSED = {"LSTM", "GRU", "RNN"}
v1 = tf.compat.v1


def errors(case: Case, run: Any, feeds: dict[str, Array]) -> list[float]:
    """By how much each output misses, in units of its tolerance."""
    turn = (lambda value: value) if case.time_major else swapped
    given = {entry.name: turn(feeds[entry.name]) for entry in run.get_inputs()}
    epsilon = max(1e-5, float(np.finfo(case.dtype).eps))
    found = []
    for got, want in zip(run.run(None, given), case.expected(feeds), strict=True):
        assert turn(got).shape == want.shape
        assert got.dtype == case.dtype
        found.append(float(np.max(np.abs(turn(got) - want) / (epsilon + epsilon * np.abs(want)), initial=0)))
    return found


#: ONNX Runtime 1.23.2, the last for Python 3.10, ends the process on a plain RNN of 0 steps; 1.31.1 does not.
OLD_RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24)


def agrees(case: Case, model: Any, *shapes: tuple[int, int]) -> None:
    run = session(model)
    spared = OLD_RUNTIME and case.mode in (Mode.RNN_TANH, Mode.RNN_RELU)
    for steps, batch in shapes or ((STEPS, BATCH), (4, 5), (1, 1), *([] if spared else [(0, 2)])):
        assert max(errors(case, run, case.feeds(steps, batch))) <= 1


def counts(model: Any) -> collections.Counter[str]:
    return collections.Counter(node.op_type for node in all_nodes(model.graph))


def lowered(case: Case, **options: Any) -> Any:
    graph, signature = case.graph()
    return lower(graph, signature, [case.recurrence()], **options).whole()


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_direction_and_depth(mode: Mode, directions: int, layers: int) -> None:
    case = Case(mode, layers, directions)
    model = lowered(case)
    agrees(case, model)
    found = counts(model)
    assert sum(found[op] for op in FUSED) == layers
    assert not {"Loop", "Scan", "If"} & set(found)
    assert [entry.name for entry in model.graph.input] == (
        ["x", "h", "c"] if mode is Mode.LSTM else ["x", "h"]
    )
    assert [entry.name for entry in model.graph.output] == ["y", "h_n", "c_n"][: len(model.graph.output)]
    assert model.ir_version == 8


@pytest.mark.parametrize("time_major", [True, False], ids=["time_major", "batch_major"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("mode", list(Mode))
def test_ragged_lengths(mode: Mode, directions: int, time_major: bool) -> None:
    case = Case(mode, 2, directions, "CudnnRNNV3", time_major)
    agrees(case, lowered(case))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU])
def test_other_dtypes_are_computed_in_float(mode: Mode, dtype: str) -> None:
    model = lowered(Case(mode, 2, 2, "CudnnRNNV2", dtype=dtype))
    # bfloat16 is the one that the model's own ends are widened from; its blob still holds rounded values.
    outer = {"float64": "double", "float16": "float16", "bfloat16": "float"}[dtype]
    assert {session(model).get_outputs()[0].type, session(model).get_inputs()[0].type} == {f"tensor({outer})"}
    if dtype != "bfloat16":
        agrees(Case(mode, 2, 2, "CudnnRNNV2", dtype=dtype), model)
    else:
        rounded = Rounded(mode, 2, 2, "CudnnRNNV2")
        agrees(rounded, model)


@pytest.mark.parametrize("op", ["CudnnRNN", "CudnnRNNV3"])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_skipped_input(mode: Mode, op: str) -> None:
    case = Case(mode, 2, 2, op, input_mode="skip_input")
    agrees(case, lowered(case))


@pytest.mark.first("1-1-time_major-1", "2-2-batch_major-3", "2-2-time_major-1", "3-1-time_major-5")
@pytest.mark.parametrize("projection", [1, 3, UNITS])
@pytest.mark.parametrize("time_major", [True, False], ids=["time_major", "batch_major"])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 2), (3, 1)])
def test_a_projection(layers: int, directions: int, time_major: bool, projection: int) -> None:
    case = Case(Mode.LSTM, layers, directions, "CudnnRNNV3", time_major, projection=projection)
    model = lowered(case)
    agrees(case, model)
    assert counts(model)["LSTM"] == layers
    assert counts(model)["MatMul"] == 3 * case.depth  # h0 in, y and h out


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_a_projection_in_other_dtypes(dtype: str) -> None:
    case = Case(Mode.LSTM, 2, 2, "CudnnRNNV3", dtype=dtype, projection=3)
    agrees(case, lowered(case))


def test_a_projection_without_an_inverse_is_refused() -> None:
    case = Dependent(Mode.LSTM, op="CudnnRNNV3", projection=2)
    with pytest.raises(UnsupportedModelError) as refused:
        lowered(case)
    assert refused.value.reasons == (
        "rnn: expected a projection whose rows are independent, found one whose rows are not; convert to "
        "savedmodel or frozen",
    )


class Dependent(Case):
    """One row of the projection is twice the other."""

    @property
    def blob(self) -> Array:
        found = super().blob
        end = found.size - 8 * self.units  # of the one pseudo-layer's matrices, the projection last
        found[end - self.units : end] = 2 * found[end - 2 * self.units : end - self.units]
        return found


class Rounded(Case):
    """The float node that a bfloat16 one becomes."""

    @property
    def blob(self) -> Array:
        return Case(self.mode, self.layers, self.directions, dtype="bfloat16").blob.astype(np.float32)


@pytest.mark.parametrize("opset", [11, 13, 15, 18])
def test_opsets(opset: int) -> None:
    case = Case(Mode.LSTM, 2, 2, "CudnnRNNV3", time_major=False)
    model = lowered(case, opset=opset)
    agrees(case, model)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
    with pytest.raises(UsageError, match="--opset: expected 11 to 18, found 19"):
        lowered(case, opset=19)


def test_a_known_number_of_steps_needs_no_guard() -> None:
    case = Case(Mode.GRU, 2)
    graph, signature = case.graph()
    next(node for node in graph.node if node.name == "x").attr["shape"].shape.dim[0].size = STEPS
    model = lower(graph, signature, [case.recurrence()]).whole()
    assert not {"Where", "Expand", "Equal"} & set(counts(model))
    agrees(case, model, (STEPS, BATCH))


def test_only_the_output_costs_no_guard() -> None:
    case = Case(Mode.LSTM, 2)
    graph, signature = case.graph()
    model = lower(graph, Signature(signature.inputs, {"y": "rnn:0"}), [case.recurrence()]).whole()
    assert set(counts(model)) == {"LSTM", "Slice", "Squeeze"}


@pytest.mark.parametrize("filled", [True, False], ids=["tf.fill", "a constant"])
@pytest.mark.parametrize(("h", "c"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (-0.25, 0.5)])
def test_a_fused_node_starts_from_zeros_by_itself_and_from_nothing_else(
    h: float, c: float, filled: bool
) -> None:
    case, batch = Case(Mode.LSTM, 2, 2, "CudnnRNNV3"), 5
    with tf.Graph().as_default() as graph:
        x, _, _, lengths = case.placeholders()
        last = np.arange(case.depth * batch * UNITS).reshape(case.depth, batch, UNITS) % 2  # zeros among them
        states = [
            tf.fill([case.depth, tf.shape(x)[1], UNITS], value)
            if filled
            else tf.constant(value * last, tf.float32)
            for value in (h, c)
        ]
        given = case.op_call(x, *states, lengths)
    ends = {key: given[k].name for k, key in enumerate(("y", "h_n", "c_n"))}
    signature = Signature({"x": "x:0", "lengths": "lengths:0"}, ends)
    model = lower(graph.as_graph_def(), signature, [case.recurrence()]).whole()
    assert {len(node.input) for node in all_nodes(model.graph) if node.op_type == "LSTM"} == {
        7 if h or c else 5
    }
    run = session(model)
    for steps in (STEPS, 1, 0):
        feeds = case.feeds(steps, batch)
        share = np.ones_like(last) if filled else last
        feeds |= {key: (value * share).astype(np.float32) for key, value in (("h", h), ("c", c))}
        assert max(errors(case, run, feeds)) <= 1


def branches() -> tuple[Any, Signature, tuple[Case, Case]]:
    """A node in each branch of a cond, within a larger graph."""
    cases = Case(Mode.LSTM, 2, 2), Case(Mode.LSTM, 1, 2)
    with tf.Graph().as_default() as graph:
        x, h, c = cases[0].placeholders()
        deep = v1.placeholder("bool", [], "deep")
        y = v1.cond(
            deep,
            lambda: cases[0].op_call(x, h, c, name="two").output,
            lambda: cases[1].op_call(x, h[:2], c[:2], name="one").output * 2.0,
            name="cond",
        )
        logits = tf.tensordot(y, tf.constant(np.linspace(-1, 1, 60).reshape(10, 6), tf.float32), 1)
        tf.nn.softmax(logits, name="probs")
        tf.identity(y, name="y")
    nodes = [node.name for node in graph.as_graph_def().node if node.op == "CudnnRNN"]
    assert sorted(nodes) == ["cond/one", "cond/two"]
    signature = Signature(
        {key: f"{key}:0" for key in ("deep", "x", "h", "c")}, {"probs": "probs:0", "y": "y:0", "again": "y:0"}
    )
    return graph.as_graph_def(), signature, cases


@pytest.mark.usefixtures("v1_control_flow")
def test_in_both_branches_of_a_cond() -> None:
    graph, signature, (two, one) = branches()
    before = graph.SerializeToString(deterministic=True)
    model = lower(graph, signature, [two.recurrence("cond/two"), one.recurrence("cond/one")]).whole()
    assert graph.SerializeToString(deterministic=True) == before
    assert [entry.name for entry in model.graph.output] == ["probs", "y", "again"]
    assert counts(model)["If"] == 1
    assert counts(model)["LSTM"] == 3
    feeds = two.feeds()
    _, y, again = session(model).run(None, feeds | {"deep": np.array(True)})
    np.testing.assert_allclose(y, two.expected(feeds)[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y, again)
    y = session(model).run(["y"], feeds | {"deep": np.array(False)})[0]
    shallow = feeds | {"h": feeds["h"][:2], "c": feeds["c"][:2]}
    np.testing.assert_allclose(y, 2 * one.expected(shallow)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("v1_control_flow")
def test_in_the_body_of_a_loop() -> None:
    case = Case(Mode.GRU, 1, 2, "CudnnRNNV3", time_major=False)
    with tf.Graph().as_default() as graph:
        x, h, c, lengths = case.placeholders()
        times = v1.placeholder("int32", [], "times")

        def body(k: Any, state: Any) -> tuple[Any, Any]:
            return k + 1, case.op_call(x, state, c, lengths).output_h

        zero = tf.constant(0)
        last = v1.while_loop(lambda k, _: k < times, body, [zero, h], name="while")[1]
        tf.identity(last, name="last")
    inputs = {key: f"{key}:0" for key in ("x", "h", "lengths", "times")}
    found = lower(
        graph.as_graph_def(), Signature(inputs, {"last": "last:0"}), [case.recurrence("while/rnn")]
    ).whole()
    assert (counts(found)["Loop"], counts(found)["GRU"]) == (1, 1)
    feeds = case.feeds()
    given = {key: swapped(feeds[key]) for key in ("x", "h", "lengths")}
    got = session(found).run(None, given | {"times": np.array(3, np.int32)})[0]
    for _ in range(3):
        feeds["h"] = case.expected(feeds)[1].astype(np.float32)
    np.testing.assert_allclose(swapped(got), feeds["h"], rtol=1e-5, atol=1e-5)


def grow(x: Any, limit: float) -> Any:
    """`x` doubled until it exceeds `limit`; the condition is a loop variable, which nothing else reads."""

    def body(_: Any, total: Any) -> tuple[Any, Any]:
        return total * 2 < limit, total * 2

    return v1.while_loop(lambda more, _: more, body, [x < limit, x])[1]


@pytest.mark.first("True")
@pytest.mark.parametrize("functional", [False, True])
def test_loops_within_loops(request: pytest.FixtureRequest, functional: bool) -> None:
    """Three deep, and two beside each other; the same bytes whatever tf2onnx did before."""
    if not functional:
        request.getfixturevalue("v1_control_flow")
    with tf.Graph().as_default() as graph:
        x, times = v1.placeholder("float32", [], "x"), v1.placeholder("int32", [], "times")

        def inner(k: Any, total: Any) -> tuple[Any, Any]:
            return k + 1, grow(total, 9.0) + 0.5

        def outer(k: Any, total: Any) -> tuple[Any, Any]:
            total = grow(total / 3, 4.0) - grow(total / 5, 2.0)
            return k + 1, v1.while_loop(lambda k, _: k < times, inner, [tf.constant(1), total])[1] / 4

        last = v1.while_loop(lambda k, _: k < times, outer, [tf.constant(0), x])[1]
        signature = Signature({"x": "x:0", "times": "times:0"}, {"y": last.name})
    first, second = (lower(graph.as_graph_def(), signature, []).whole() for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    assert counts(first)["Loop"] == 5
    assert "set" not in vars(tfonnx)
    onnx_run = session(first)
    with v1.Session(graph=graph) as run:
        for value, count in ((0.7, 0), (0.7, 1), (0.3, 2), (2.5, 4)):
            wanted = run.run(last, {x: value, times: count})
            feeds = {"x": np.array(value, np.float32), "times": np.array(count, np.int32)}
            np.testing.assert_allclose(onnx_run.run(None, feeds)[0], wanted, rtol=1e-6)


def test_an_output_has_the_dtype_of_its_op() -> None:
    """Which its node may not say: SavedModels leave attributes out that are the op's defaults."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", [None], "x")
        tf.argmax(x, name="place")
    definition = graph.as_graph_def()
    (node,) = (node for node in definition.node if node.name == "place")
    del node.attr["output_type"]
    model = lower(definition, Signature({"x": "x:0"}, {"place": "place:0"}), []).whole()
    (answer,) = session(model).run(None, {"x": np.array([1, -1, 2], np.float32)})
    assert answer.dtype == np.int64
    assert answer == 2


def test_an_output_may_be_an_input_and_an_input_may_be_unused() -> None:
    case = Case(Mode.RNN_TANH)
    with tf.Graph().as_default() as graph:
        x, h, c = case.placeholders()
        unused = v1.placeholder("int64", [None], "unused")
        outputs = case.op_call(x, h, c)
    signature = Signature(
        {"a": h.name, "unused": unused.name, "x:0": c.name, "b": x.name},
        {"given": x.name, "h:0": outputs.output_c.name, "b_y": outputs.output.name},
    )
    model = lower(graph.as_graph_def(), signature, [case.recurrence()]).whole()
    run, feeds = session(model), case.feeds()
    assert [entry.name for entry in run.get_inputs()] == ["a", "unused", "x:0", "b"]
    assert [entry.name for entry in run.get_outputs()] == ["given", "h:0", "b_y"]
    scalar, unread = np.array(3, np.float32), np.zeros(2, np.int64)
    given, cell, y = run.run(None, {"a": feeds["h"], "b": feeds["x"], "x:0": scalar, "unused": unread})
    np.testing.assert_array_equal(given, feeds["x"])
    assert cell == scalar
    np.testing.assert_allclose(y, case.expected(feeds)[0], rtol=1e-5, atol=1e-5)


def test_a_size_that_a_reshape_copies_is_the_right_one() -> None:
    """A column of scores turned into a row, as in an attention of two sequences."""
    generator = np.random.default_rng(3)
    with tf.Graph().as_default() as graph:
        x, y = (v1.placeholder("float32", [None, None, 4], name) for name in "xy")
        columns = [
            tf.tensordot(v, tf.constant(generator.standard_normal((4, 1)), "float32"), 1) for v in (x, y)
        ]
        tf.add(columns[0], tf.transpose(columns[1], [0, 2, 1]), name="scores")
    signature = Signature({"x": "x:0", "y": "y:0"}, {"scores": "scores:0"})
    run = session(lower(graph.as_graph_def(), signature, []).whole())
    feeds = {"x": (3, 5, 4), "y": (3, 2, 4)}
    feeds = {key: generator.standard_normal(shape).astype(np.float32) for key, shape in feeds.items()}
    with v1.Session(graph=graph) as tensorflow:
        expected = tensorflow.run("scores:0", {f"{key}:0": value for key, value in feeds.items()})
    np.testing.assert_allclose(run.run(None, feeds)[0], expected, rtol=1e-6, atol=1e-6)


def test_nodes_that_share_a_blob_share_its_weights() -> None:
    case = Case(Mode.GRU, 1, 2)
    with tf.Graph().as_default() as graph:
        x, h, c = case.placeholders()
        outputs = [case.op_call(x * k, h, c, name=f"rnn_{k}").output for k in (1.0, 2.0)]
        tf.add_n(outputs, name="y")
    twins = [dataclasses.replace(case.recurrence(f"rnn_{k}"), shared="blob") for k in ("1.0", "2.0")]
    signature = Signature({"x": x.name, "h": h.name}, {"y": "y:0"})
    model = lower(graph.as_graph_def(), signature, twins).whole()
    weights = [tensor for tensor in model.graph.initializer if len(tensor.dims) == 3]
    assert counts(model)["GRU"] == 2
    assert len(weights) == 2


def test_constants_of_three_small_numbers_are_no_weights() -> None:
    """tf2onnx makes one constant of all that are equal: what stands for weights must be like no other."""
    case = Case(Mode.GRU, units=3)
    masks = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 2]], np.float32)  # owner, layer and slot of W, R and B
    with tf.Graph().as_default() as graph:
        x, h, c = case.placeholders()
        y = case.op_call(x, h, c).output
        for number, mask in enumerate(masks):
            tf.multiply(y, tf.constant(mask), name=f"y{number}")
    names = [f"y{number}" for number in range(3)]
    signature = Signature({"x": x.name, "h": h.name}, {name: f"{name}:0" for name in names})
    run = session(lower(graph.as_graph_def(), signature, [case.recurrence()]).whole())
    feeds = case.feeds()
    answers = run.run(names, {"x": feeds["x"], "h": feeds["h"]})
    expected = case.expected(feeds)[0]
    for answer, mask in zip(answers, masks, strict=True):
        np.testing.assert_allclose(answer, expected * mask, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("output", ["rnn:3", "rnn:4"])
def test_reserved_outputs_are_refused(output: str) -> None:
    case = Case(Mode.LSTM, op="CudnnRNNV2")
    graph, signature = case.graph()
    with pytest.raises(UnsupportedModelError, match=f"output r: .*found {output}, which only gradients need"):
        lower(graph, Signature(signature.inputs, {"r": output}), [case.recurrence()]).whole()


def test_a_node_that_reads_reserved_outputs_is_refused_by_its_name() -> None:
    case = Case(Mode.LSTM)
    with tf.Graph().as_default() as graph:
        found = case.op_call(*case.placeholders())
        tf.identity(found.reserve_space, name="kept")
        tf.identity(found.output_c, name="fine")
    signature = Signature({"x": "x:0"}, {"kept": "kept:0", "fine": "fine:0"})
    with pytest.raises(UnsupportedModelError) as refused:
        lower(graph.as_graph_def(), signature, [case.recurrence()])
    assert refused.value.reasons == (
        "kept: expected to read outputs 0 to 2 of rnn, found rnn:3, which only gradients need; "
        "choose other --outputs",
    )


def test_a_recurrence_that_no_output_needs_is_left_out() -> None:
    cases = Case(Mode.GRU), Case(Mode.RNN_TANH)
    with tf.Graph().as_default() as graph:
        x, h, c = cases[0].placeholders()
        for case, name in zip(cases, ("unread", "read"), strict=True):
            case.op_call(x, h, c, name=name)
    recurrences = [case.recurrence(name) for case, name in zip(cases, ("unread", "read"), strict=True)]
    signature = Signature({"x": "x:0", "h": "h:0"}, {"y": "read:0", "h_n": "read:1"})
    model = lower(graph.as_graph_def(), signature, recurrences).whole()
    assert counts(model)["GRU"] == 0
    agrees(cases[1], model, (STEPS, BATCH))


def test_bfloat16_is_widened_wherever_a_graph_says_it() -> None:
    """In constants, and in lists of types among others."""
    with tf.Graph().as_default() as graph:
        x, k = v1.placeholder(tf.bfloat16, [None, 2], "x"), v1.placeholder(tf.int32, [], "k")
        y, count = tf.identity_n([x * tf.constant([1.5, -2.25], tf.bfloat16), k + 1])
        tf.identity(y, name="y")
        tf.identity(count, name="count")
    signature = Signature({"x": "x:0", "k": "k:0"}, {"y": "y:0", "count": "count:0"})
    run = session(lower(graph.as_graph_def(), signature, []).whole())
    given = np.array([[1, 2], [-0.3, 7]], np.float32)
    found, one = run.run(None, {"x": given, "k": np.array(4, np.int32)})
    np.testing.assert_array_equal(found, given * np.array([1.5, -2.25], np.float32))
    assert (found.dtype, one, one.dtype) == (np.float32, 5, np.int32)


@pytest.mark.parametrize("kind", ["branch", "loop"])
def test_bfloat16_is_widened_in_functions(kind: str) -> None:
    """Branches and loops without a cuDNN node stay functions, as TensorFlow 2 writes them."""
    with tf.Graph().as_default() as graph:
        x, k = v1.placeholder(tf.bfloat16, [None, 2], "x"), v1.placeholder(tf.int32, [], "k")

        def more(y: Any) -> Any:
            return y * tf.constant([1.5, -2.25], tf.bfloat16)

        if kind == "branch":
            y = tf.cond(k > 1, lambda: more(x), lambda: x + 1)
        else:
            y = tf.while_loop(lambda t, _: t < k, lambda t, y: (t + 1, more(y)), (tf.constant(1), x))[1]
        tf.identity(y, name="y")
    assert graph.as_graph_def().library.function
    model = lower(graph.as_graph_def(), Signature({"x": "x:0", "k": "k:0"}, {"y": "y:0"}), []).whole()
    given = np.array([[1, 2], [-0.5, 7]], np.float32)
    (found,) = session(model).run(None, {"x": given, "k": np.array(2, np.int32)})
    np.testing.assert_array_equal(found, given * np.array([1.5, -2.25], np.float32))
    assert found.dtype == np.float32


def test_the_opset_is_the_one_asked_for() -> None:
    with tf.Graph().as_default() as graph:
        tf.abs(v1.placeholder(tf.float32, [None], "x"), name="y")
    signature = Signature({"x": "x:0"}, {"y": "y:0"})
    for opset in (11, 14, 18):
        model = lower(graph.as_graph_def(), signature, [], opset=opset).whole()
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]


def test_ops_without_onnx_words_are_refused_all_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    case = Case(Mode.LSTM)
    with tf.Graph().as_default() as graph:
        x, h, c = case.placeholders()
        y = case.op_call(x, h, c).output
        axis = v1.placeholder("int32", [], "axis")
        tf.raw_ops.Digamma(x=y, name="odd")
        tf.raw_ops.Roll(input=y, shift=1, axis=axis, name="rolled")
    signature = Signature(
        {"x": x.name, "h": h.name, "c": c.name, "axis": axis.name}, {"odd": "odd:0", "rolled": "rolled:0"}
    )
    tables = {domain: [dict(ops) for ops in versions] for domain, versions in tf_op.get_opsets().items()}
    with pytest.raises(UnsupportedModelError) as caught:
        lower(graph.as_graph_def(), signature, [case.recurrence()]).whole()
    assert tables == tf_op.get_opsets()
    first, second = sorted(caught.value.reasons)
    assert first == (
        "odd: expected an op that ONNX has, found Digamma; "
        "cut the graph before it, which drops odd, rolled, with --outputs rnn:0"
    )
    assert second == (
        "rolled: expected an op that ONNX has, found Roll (make_sure failure: Can only convert Roll is axis "
        "is const); cut the graph before it, which drops odd, rolled, with --outputs rnn:0"
    )
    assert "tf2onnx" not in "".join(capfd.readouterr())


def test_an_unknown_op_alone_is_refused_in_words_of_tensorflow() -> None:
    with tf.Graph().as_default() as graph:
        tf.raw_ops.Digamma(x=v1.placeholder(tf.float32, [None], "x"), name="odd")
    with pytest.raises(UnsupportedModelError) as refused:
        lower(graph.as_graph_def(), Signature({"x": "x:0"}, {"odd": "odd:0"}), [])
    assert refused.value.reasons == (
        "odd: expected an op that ONNX has, found Digamma; choose --format savedmodel or frozen",
    )


def test_where_nothing_can_be_cut_another_format_is_named() -> None:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        drawn = tf.raw_ops.RandomGamma(shape=[2], alpha=tf.constant(3.0), name="odd")
        tf.add(drawn, x, name="y")
    with pytest.raises(UnsupportedModelError) as refused:
        lower(graph.as_graph_def(), Signature({"x": "x:0"}, {"y": "y:0"}), [])
    assert refused.value.reasons == (
        "odd: expected an op that ONNX has, found RandomGamma; choose --format savedmodel or frozen",
    )


def test_what_the_converter_would_compute_is_refused_before_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tf2onnx and TensorFlow's optimizer run what is constant, a file's content too."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [], "x")
        read = tf.raw_ops.ReadFile(filename=str(tmp_path / "secret"), name="odd")
        tf.add(tf.strings.to_number(read), x, name="y")

    def begun(*_: Any, **__: Any) -> None:
        raise AssertionError("the converter has seen the graph")

    for name in ("_prepare", "run_tf2onnx"):
        monkeypatch.setattr(f"cudnn_convert.lower.onnx.convert.{name}", begun)
    with pytest.raises(UnsupportedModelError) as refused:
        lower(graph.as_graph_def(), Signature({"x": "x:0"}, {"y": "y:0"}), [])
    assert refused.value.reasons == (
        "odd: expected an op that ONNX has, found ReadFile; choose --format savedmodel or frozen",
    )


def test_a_mistake_of_our_own_is_no_fault_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(convert, "replace", fails)
    with pytest.raises(RuntimeError, match=r"^ours$"):
        lowered(Case(Mode.LSTM))


def test_nodes_that_tf2onnx_made_are_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        logging.getLogger("tf2onnx.tfonnx").error("Tensorflow op [%s: %s] is not supported", "made", "Odd")

    monkeypatch.setattr(tfonnx, "process_tf_graph", fails)
    with pytest.raises(UnsupportedModelError) as refused:
        lowered(Case(Mode.LSTM))
    assert refused.value.reasons == (
        "made: expected an op that ONNX has, found none; choose --format savedmodel or frozen",
    )


def test_other_words_in_tf2onnxs_log_are_no_refusal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replace, log = convert.replace, logging.getLogger("tf2onnx.tfonnx")
    reason = (ValueError, ValueError("why"), None)

    def chatty(*given: Any) -> None:
        log.error(ValueError("no text"))
        log.error("Failed to convert node %(name)r", {"name": "a", "why": "b"}, exc_info=reason)
        log.error("Failed to convert node %r", "c")
        log.error("something else about %s", "d")
        log.error("something else about %s", "e", exc_info=reason)
        replace(*given)

    monkeypatch.setattr(convert, "replace", chatty)
    case = Case(Mode.GRU)
    agrees(case, lowered(case), (STEPS, BATCH))
    assert not caplog.records


@pytest.fixture
def loggers() -> Iterator[list[logging.Logger]]:
    """Those that a conversion changes, each in a state of its own."""
    found = [logging.getLogger(name) for name in ("tf2onnx", "tensorflow")]
    before = [(one.handlers, one.propagate, one.level) for one in found]
    for one, level in zip(found, (logging.CRITICAL, logging.CRITICAL + 1), strict=True):
        one.handlers, one.propagate = [logging.NullHandler()], bool(level % 2)
        one.setLevel(level)
    yield found
    for one, (handlers, propagate, level) in zip(found, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


def test_reasons_are_heard_in_a_silent_program_whose_loggers_stay(loggers: list[logging.Logger]) -> None:
    before = [([*one.handlers], one.propagate, one.level) for one in loggers]
    with tf.Graph().as_default() as graph:
        tf.raw_ops.Digamma(x=v1.placeholder(tf.float32, [None], "x"), name="odd")
    with pytest.raises(UnsupportedModelError, match="odd: expected an op that ONNX has, found Digamma;"):
        lower(graph.as_graph_def(), Signature({"x": "x:0"}, {"odd": "odd:0"}), [])
    assert [([*one.handlers], one.propagate, one.level) for one in loggers] == before


def test_a_programs_own_handlers_stay_in_tf2onnxs_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = constants.TENSORFLOW_OPSET.domain
    own = {"Digamma": (len, {}), "CudnnRNN": (len, {})}
    monkeypatch.setitem(tf_op.get_opsets(), domain, [{}, dict(own)])
    mapping, domains = {"Neg": (len, {})}, {domain: own}
    monkeypatch.setattr(tf_op, "_MAPPING", mapping)
    monkeypatch.setattr(tf_op, "_DOMAIN_MAPPING", domains)
    case = Case(Mode.LSTM)
    agrees(case, lowered(case), (STEPS, BATCH))
    assert tf_op.get_opsets()[domain] == [{}, own]
    assert tf_op._MAPPING is mapping
    assert tf_op._DOMAIN_MAPPING is domains


def test_no_handler_of_ours_stays_in_tf2onnxs_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = constants.TENSORFLOW_OPSET.domain
    monkeypatch.delitem(tf_op.get_opsets(), domain, raising=False)
    lowered(Case(Mode.GRU))
    assert domain not in tf_op.get_opsets()


def test_swapped_gates_and_a_lost_bias_show(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(Mode.GRU, 2, 2)
    row = layouts.ONNX.gates[Mode.GRU]
    turned = dataclasses.replace(layouts.ONNX, gates={Mode.GRU: (row[1], row[0], row[2])})
    with monkeypatch.context() as patch:
        patch.setattr(layouts, "ONNX", turned)
        assert min(errors(case, session(lowered(case)), case.feeds())) > 1
    right = layouts.biases
    with monkeypatch.context() as patch:
        patch.setattr(layouts, "biases", lambda *given: (right(*given)[0], 0 * right(*given)[1]))
        assert min(errors(case, session(lowered(case)), case.feeds())) > 1


MAKE = """
import hashlib, sys
sys.path.insert(0, {tests!r})
from {module} import made, v1
v1.disable_control_flow_v2()
print(hashlib.sha256(made()).hexdigest())
"""


def made() -> bytes:
    graph, signature, (two, one) = branches()
    pair = [two.recurrence("cond/two"), one.recurrence("cond/one")]
    return bytes(lower(graph, signature, pair).whole().SerializeToString())


@pytest.mark.slow("cudnn_convert/lower/onnx/", "cudnn_convert/graph/")
@pytest.mark.usefixtures("v1_control_flow")
def test_the_same_bytes_in_every_process() -> None:
    """Names and orders depend neither on addresses nor on hashes, nor on what a process did before."""
    tests = ROOT / "tests"
    module = ".".join(Path(__file__).relative_to(tests).with_suffix("").parts)
    script = MAKE.format(tests=str(tests), module=module)
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "4242", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = {hashlib.sha256(model).hexdigest() for model in (made(), made())} | {done.stdout.strip()}
    assert len(found) == 1


# A cuDNN node in a graph of tf2onnx, before any pass of its optimizer: what stands in its place.

FLOAT, DOUBLE, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT32


def replaced(
    case: Case,
    *,
    shape: Sequence[int] | None = (-1, -1, INPUTS),
    recurrences: Sequence[Recurrence] = (),
    number: int = 0,
    steps: int = -1,
) -> Graph:
    """A graph of placeholders and what the node became; `shape` is that of x, `steps` what y is known by."""
    graph = Graph([], opset=17)
    dtype = {"float32": FLOAT, "float64": DOUBLE}[case.dtype]
    depth = case.depth
    ends = [("x:0", dtype, shape), ("h:0", dtype, [depth, -1, UNITS])]
    ends += [("c:0", dtype, [depth, -1, UNITS] if case.mode is Mode.LSTM else [2, 7])]
    ends += [("params:0", dtype, [-1]), ("lengths:0", INT32, [-1])]
    for name, kind, known in ends:
        graph.make_node("Placeholder", [], outputs=[name], name=name[:-2], shapes=[known], dtypes=[kind])
    shapes = [[steps, -1, case.directions * UNITS], [depth, -1, UNITS], [depth, -1, UNITS], [-1], [-1]]
    node = graph.make_node(
        case.op,
        [name for name, *_ in ends[: 5 if case.op == "CudnnRNNV3" else 4]],
        attr={"seed2": number},
        outputs=[f"rnn:{k}" for k in range(5)], name="rnn", shapes=shapes, dtypes=[dtype] * 5,
        skip_conversion=False, infer_shape_dtype=False,
    )  # fmt: skip
    convert.replace(graph, node, recurrences or [case.recurrence()])
    return graph


def count_types(graph: Graph) -> dict[str, int]:
    found = collections.Counter(node.type for node in graph.get_nodes())
    return {op: count for op, count in found.items() if op not in {"Placeholder", "Const"}}


@pytest.mark.parametrize(("mode", "handed_on"), [(Mode.LSTM, {}), (Mode.GRU, {"Identity": 1})])
def test_time_major_floats_need_nothing_round_the_node(mode: Mode, handed_on: dict[str, int]) -> None:
    """The node's own outputs have the names; the cell state of a GRU is what comes in."""
    found = count_types(replaced(Case(mode), shape=(STEPS, BATCH, INPUTS)))
    assert found == {mode.value.upper(): 1, "Squeeze": 1, **handed_on}


@pytest.mark.parametrize("shape", [None, (-1, -1, INPUTS), (0, 2, INPUTS)])
def test_a_number_of_steps_that_is_not_known_is_looked_at(shape: Any) -> None:
    found = count_types(replaced(Case(Mode.LSTM), shape=shape))
    assert found["Where"] == 2


def test_others_are_cast_and_turned_and_back() -> None:
    made = replaced(Case(Mode.LSTM, 1, 1, "CudnnRNNV3", time_major=False, dtype="float64"))
    found = count_types(made)
    assert (found["Cast"], found["Transpose"]) == (6, 6)
    casts = [node.get_attr_int("to") for node in made.get_nodes() if node.type == "Cast"]
    assert casts == [FLOAT] * 3 + [DOUBLE] * 3
    turns = [node.get_attr_value("perm") for node in made.get_nodes() if node.type == "Transpose"]
    assert turns == [[1, 0, 2]] * 6


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs_keep_their_names_shapes_and_dtypes(dtype: str) -> None:
    case = Case(Mode.LSTM, 2, 2, dtype=dtype)
    made = replaced(case)
    kind = FLOAT if dtype == "float32" else DOUBLE
    shapes = [[-1, -1, 2 * UNITS], [4, -1, UNITS], [4, -1, UNITS]]
    for k, shape in enumerate(shapes):
        assert made.get_shape(f"rnn:{k}") == shape
        assert made.get_dtype(f"rnn:{k}") == kind
    assert made.get_node_by_output("rnn:3") is None
    assert made.get_node_by_name("rnn") is None


def test_a_shape_that_only_the_source_knows_is_kept() -> None:
    assert replaced(Case(Mode.LSTM), shape=None, steps=9).get_shape("rnn:0") == [9, -1, UNITS]


def test_what_is_no_lstm_hands_its_cell_state_on() -> None:
    made = replaced(Case(Mode.GRU))
    assert made.get_node_by_output("rnn:2").input == ["c:0"]
    assert made.get_shape("rnn:2") == [2, 7]


def tickets(graph: Graph) -> list[list[float]]:
    (node,) = [node for node in graph.get_nodes() if node.type == "GRU"]
    return [graph.get_node_by_output(name).get_tensor_value() for name in node.input[1:4]]


def test_recurrences_of_one_blob_read_the_first_one_s_weights() -> None:
    """As far as blob, sizes and dtype are one: a blob may be decoded in another way by another node."""
    case = Case(Mode.GRU)
    one = dataclasses.replace(case.recurrence(), shared="one")
    twin = dataclasses.replace(one, node="twin")
    other = dataclasses.replace(one, shared="other")
    wide = dataclasses.replace(one, dtype=Case(Mode.GRU, dtype="float64").recurrence().dtype)
    deep = dataclasses.replace(Case(Mode.GRU, layers=2).recurrence(), shared="one")
    every = [other, wide, deep, one, twin]
    for number, owner in ((0, 0), (3, 3), (4, 3)):
        made = replaced(case, recurrences=every, number=number)
        assert [one[:3] for one in tickets(made)] == [[owner, 0, slot] for slot in range(3)]


def test_weights_without_a_projection_are_not_looked_at() -> None:
    def unread(layer: int) -> tuple[Cell, ...]:
        raise AssertionError(layer)

    recurrence = dataclasses.replace(Case(Mode.GRU).recurrence(), cells=LazyLayers(1, unread))
    assert [*convert.refusals([recurrence])] == []


def test_a_projection_of_dependent_rows_is_refused() -> None:
    right, wrong = (Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=2).recurrence(node) for node in "ab")
    cell = wrong.cells[1][1]
    row = cell.projection[:1]
    spoiled = dataclasses.replace(cell, projection=row.repeat(2, 0))
    cells = (wrong.cells[0], (wrong.cells[1][0], spoiled))
    (reason,) = convert.refusals([right, dataclasses.replace(wrong, cells=cells)])
    assert reason.startswith("b: expected a projection whose rows are independent")


def each_step(x: Any) -> Any:
    """What TimeDistributed of Keras 3 makes of a layer; the loop alone reads the transposed input."""
    kernel = tf.constant(np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32))
    steps = tf.transpose(x, [1, 0, 2])
    every = tf.vectorized_map(lambda k: tf.matmul(steps[k], kernel), tf.range(tf.shape(x)[1]))
    return tf.transpose(every, [1, 0, 2])


def each_picture(x: Any) -> Any:
    kernel = tf.ones([2, 2, 1, 3])
    steps = tf.transpose(x, [1, 0, 2])[..., None, None] * tf.ones([2, 1])
    every = tf.vectorized_map(
        lambda k: tf.nn.conv2d(steps[k], kernel, 1, "SAME"), tf.range(tf.shape(steps)[0])
    )
    return tf.reduce_sum(every, [3, 4])


def the_last(x: Any) -> Any:
    """The last item of a list of one, which each iteration writes anew, as Keras' layers read it."""
    first = tf.TensorArray(tf.float32, 1)
    loop = tf.while_loop(
        lambda k, _: k < tf.shape(x)[1],
        lambda k, kept: (k + 1, kept.write(0, x[:, k] * tf.cast(k, tf.float32))),
        [0, first],
    )
    return loop[1].stack()[-1] + each_step(x)[:, 0, :3]


@pytest.mark.first("the_last")
@pytest.mark.parametrize("build", [each_step, each_picture, the_last], ids=lambda build: build.__name__)
def test_loops_of_lists_of_unknown_rank(build: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    function = tf.function(build, autograph=False).get_concrete_function(
        tf.TensorSpec([None, None, 3], name="x")
    )
    graph = inline_functions(
        immutable.Graph(function.graph.as_graph_def()), [function.inputs[0].name, function.outputs[0].name]
    )
    signature = Signature({"x": function.inputs[0].name}, {"y": function.outputs[0].name})
    (answers,) = session(lower(graph, signature, []).whole()).run(None, {"x": x})
    np.testing.assert_allclose(answers, function(tf.constant(x)), rtol=1e-5, atol=1e-5)
