"""Parameters that a graph computes: their values, their names, and what may not stand below them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.graphs import (
    BLOB,
    INPUTS,
    PATH,
    UNITS,
    drawing,
    lstm,
    model,
    placeholder,
    resource,
    saved,
    variable,
)
from support.plans import plan_graph
from support.samples import fixture
from support.tiers import combinations

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import Index
from cudnn_convert.lower.tensorflow.lower import lower
from cudnn_convert.model import Array, BlobEvidence
from cudnn_convert.plan import choose_outputs, obstacles
from cudnn_convert.read import read
from cudnn_convert.recurrences import parameter_source

v1 = tf.compat.v1
RNG = np.random.default_rng(7)
SHAPES = {"kernel": (INPUTS, 4 * UNITS), "recurrent_kernel": (UNITS, 4 * UNITS), "bias": (8 * UNITS,)}
VALUES = {f"rnn/{name}": RNG.uniform(-0.5, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}


def by_hand(values: dict[str, Array]) -> Array:
    """The blob of Keras's three arrays, as its layer packs it: block after block, bias after bias."""
    kernel, recurrent, bias = (values[f"rnn/{name}"] for name in SHAPES)
    blocks = [part[:, k * UNITS : (k + 1) * UNITS] for part in (kernel, recurrent) for k in range(4)]
    return np.concatenate([*(block.ravel() for block in blocks), bias])


def packed(kernel: Any, recurrent: Any, bias: Any) -> Any:
    """tensorflow v1.15.0 python/keras/layers/cudnn_recurrent.py CuDNNLSTM `_process_batch`."""
    blocks = [part[:, k * UNITS : (k + 1) * UNITS] for part in (kernel, recurrent) for k in range(4)]
    blocks += [bias[k * UNITS : (k + 1) * UNITS] for k in range(8)]
    return tf.concat([tf.reshape(block, [-1]) for block in blocks], 0)


def references() -> list[Any]:
    return [tf.identity(variable(f"rnn/{name}", shape)) for name, shape in SHAPES.items()]


def resources() -> list[Any]:
    handles = [resource(f"rnn/{name}", shape) for name, shape in SHAPES.items()]
    return [tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32) for handle in handles]


def constants() -> list[Any]:
    return [tf.constant(VALUES[f"rnn/{name}"], name=f"rnn/{name}") for name in SHAPES]


def blobs(graph: tf.Graph, values: dict[str, Array] | None = None) -> list[Array]:
    """What the recurrences of a graph are decoded from."""
    found = plan_graph(model(graph, VALUES if values is None else values)).recurrences
    assert all(isinstance(one.evidence, BlobEvidence) for one in found)
    return [one.evidence.blob for one in found]


def refused(graph: tf.Graph, values: dict[str, Array] | None = None) -> tuple[str, ...]:
    with pytest.raises(UnsupportedModelError) as caught:
        plan_graph(model(graph, VALUES if values is None else values))
    return caught.value.reasons


@pytest.mark.parametrize("made", [references, resources, constants])
def test_slices_and_a_concatenation(made: Callable[[], list[Any]]) -> None:
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), packed(*made())).output, name="scores")
    (found,) = plan_graph(model(graph, VALUES)).recurrences
    np.testing.assert_array_equal(found.evidence.blob, by_hand(VALUES))
    assert found.shared == "rnn/parameters"
    assert found.sizes.input_size == INPUTS


@pytest.mark.first("CudnnRNNCanonicalToParamsV2")
@pytest.mark.parametrize("op", ["CudnnRNNCanonicalToParams", "CudnnRNNCanonicalToParamsV2"])
def test_the_op_that_packs_on_a_gpu(op: str, tmp_path: Path) -> None:
    """Two layers in two directions: 32 matrices, then 32 biases, each a variable of its own."""
    layers, directions = 2, 2
    widths = [INPUTS] * directions + [directions * UNITS] * directions
    shapes = [(UNITS, wide) for inputs in widths for wide in [inputs] * 4 + [UNITS] * 4]
    shapes += [(UNITS,)] * (8 * layers * directions)
    values = {f"rnn/v{k}": RNG.uniform(-0.5, 0.5, shape).astype(np.float32) for k, shape in enumerate(shapes)}
    with drawing() as graph:
        read_ = [tf.identity(variable(name, value.shape)) for name, value in values.items()]
        common = {
            "num_layers": layers, "num_units": UNITS, "input_size": INPUTS, "direction": "bidirectional",
            "weights": read_[:32], "biases": read_[32:],
        }  # fmt: skip
        x = placeholder("x")
        zeros = tf.zeros([layers * directions, tf.shape(x)[1], UNITS])
        rnn = tf.raw_ops.CudnnRNN(
            input=x, input_h=zeros, input_c=zeros, params=getattr(tf.raw_ops, op)(**common),
            direction="bidirectional", is_training=False,
        )  # fmt: skip
        tf.identity(rnn.output, name="scores")
    np.testing.assert_array_equal(
        blobs(graph, values)[0], np.concatenate([value.ravel() for value in values.values()])
    )
    report = cudnn_convert.convert(saved(tmp_path, graph, values), tmp_path / "out")
    assert report.verification.passed


def test_a_blob_in_parts() -> None:
    parts = {"rnn/part_0": BLOB[:30], "rnn/part_1": BLOB[30:]}
    with drawing() as graph:
        whole = tf.concat([tf.identity(variable(name, value.shape)) for name, value in parts.items()], 0)
        tf.identity(lstm(placeholder("x"), whole).output, name="scores")
    np.testing.assert_array_equal(blobs(graph, parts)[0], BLOB)


def test_arithmetic_on_a_blob() -> None:
    with drawing() as graph:
        scaled = tf.identity(variable("rnn/blob", BLOB.shape)) * variable("rnn/scale", [])
        tf.identity(lstm(placeholder("x"), tf.cast(scaled, tf.float32)).output, name="scores")
    values = {"rnn/blob": BLOB, "rnn/scale": np.float32(-0.75)}
    np.testing.assert_array_equal(blobs(graph, values)[0], BLOB * np.float32(-0.75))


def test_the_second_output_of_an_op() -> None:
    values = {"rnn/both": np.concatenate([BLOB + 1, BLOB])}
    with drawing() as graph:
        _, second = tf.split(tf.identity(variable("rnn/both", [2 * BLOB.size])), 2)
        tf.identity(lstm(placeholder("x"), second).output, name="scores")
    np.testing.assert_array_equal(blobs(graph, values)[0], BLOB)


def test_a_placeholder_below_is_refused_by_name() -> None:
    with drawing() as graph:
        scale = v1.placeholder(tf.float32, [], "noise/scale")
        tf.identity(lstm(placeholder("x"), variable("blob", BLOB.shape) * scale).output, name="scores")
    assert refused(graph) == (
        "mul: expected parameters that follow from variables and constants alone, found the placeholder "
        "noise/scale; bind it with --set noise/scale:0=VALUE",
    )
    found = plan_graph(model(graph), constants=["noise/scale:0=0.5"]).recurrences[0]
    np.testing.assert_array_equal(found.evidence.blob, BLOB * np.float32(0.5))


def test_other_ops_below_are_refused_by_name() -> None:
    with drawing() as graph:
        text = tf.io.read_file("weights.bin", name="from_disk")
        tf.identity(lstm(placeholder("x"), tf.io.decode_raw(text, tf.float32)).output, name="scores")
    expected = "expected parameters that follow from variables and constants alone"
    cure = "freeze the graph where it was trained, and convert that"
    assert refused(graph) == (
        f"DecodeRaw: {expected}, found DecodeRaw DecodeRaw; {cure}",
        f"DecodeRaw: {expected}, found ReadFile from_disk; {cure}",
    )


def test_a_variable_without_a_value() -> None:
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), packed(*resources())).output, name="scores")
    values = {name: value for name, value in VALUES.items() if name != "rnn/bias"}
    (reason,) = refused(graph, values)
    assert reason.startswith("variable rnn/bias: expected a value of shape (16,), found no such key")


def test_a_length_that_no_sizes_have() -> None:
    with drawing() as graph:
        kernel, recurrent, _ = resources()
        bias = tf.raw_ops.ReadVariableOp(resource=resource("rnn/half", [4 * UNITS]), dtype=tf.float32)
        blocks = [tf.reshape(part, [-1]) for part in (kernel, recurrent, bias)]
        params = v1.placeholder_with_default(tf.concat(blocks, 0), [None])
        tf.identity(lstm(placeholder("x"), params).output, name="scores")
    (reason,) = refused(graph, VALUES | {"rnn/half": np.zeros(4 * UNITS, np.float32)})
    assert "found 48" in reason


def test_the_same_weights_have_one_name_and_others_another() -> None:
    """Two calls of a layer, and a third recurrence of the same variables that packs them in another order."""
    with drawing() as graph:
        made = resources()
        outputs = [lstm(placeholder(f"x{k}"), packed(*made), name=f"rnn{k}").output for k in range(2)]
        flat = [tf.reshape(part, [-1]) for part in made]
        outputs.append(lstm(placeholder("x2"), tf.concat(flat, 0), name="rnn2").output)
        v1.add_n(outputs, name="scores")
    made_plan = plan_graph(model(graph, VALUES))
    assert [one.shared for one in made_plan.recurrences] == [
        "rnn/parameters", "rnn/parameters", "rnn/parameters_1"
    ]  # fmt: skip
    lowered = lower(made_plan.graph, made_plan.recurrences, made_plan.model.variables, outputs=["scores:0"])
    kept = {node.name for node in lowered.graph.node if node.op == "VarHandleOp"}
    assert kept == {
        f"rnn/{name}/layer_0/forward/{part}"
        for name in ("parameters", "parameters_1")
        for part in ("kernel", "bias")
    }
    kernels = [
        lowered.variables[f"rnn/{name}/layer_0/forward/kernel"].read()
        for name in ("parameters", "parameters_1")
    ]
    assert not np.array_equal(*kernels)


def test_the_scope_of_variables() -> None:
    assert parameter_source.scope(["a/b/kernel", "a/b/bias"]) == "a/b"
    assert parameter_source.scope(["a/b/kernel", "a/bc/kernel"]) == "a"
    assert parameter_source.scope(["kernel", "a/kernel"]) == ""


def test_moving_averages_of_the_variables() -> None:
    averages = {f"{name}/ExponentialMovingAverage": value * 2 + 1 for name, value in VALUES.items()}
    with drawing() as graph:
        tf.identity(lstm(placeholder("x"), packed(*resources())).output, name="scores")
    (found,) = plan_graph(model(graph, VALUES | averages), weights="ema").recurrences
    np.testing.assert_array_equal(
        found.evidence.blob, by_hand({name: value * 2 + 1 for name, value in VALUES.items()})
    )


def test_twins_are_known_by_their_variables() -> None:
    """A layer that packs its blob in each call has no blob in common with itself."""
    with drawing() as graph:
        made, x = resources(), placeholder("x")
        for name, training in (("train", True), ("predict", False)):
            y = lstm(x, packed(*made), name=name, training=training).output
            tf.identity(y, name=f"{name}_scores")
    assert choose_outputs.infer_outputs(PATH, Graph(graph.as_graph_def())).outputs == ["predict_scores:0"]


def test_what_only_parameters_need_may_lack_a_cpu_kernel() -> None:
    with drawing() as graph:
        one = tf.raw_ops.CudnnRNNCanonicalToParams(
            num_layers=1, num_units=UNITS, input_size=INPUTS,
            weights=[tf.ones([1])] * 8, biases=[tf.ones([1])] * 8, name="packing",
        )  # fmt: skip
        tf.identity(lstm(placeholder("x"), tf.identity(one)).output, name="scores")
        tf.identity(one, name="shown")
    kept = graph.as_graph_def()
    with pytest.raises(UnsupportedModelError, match="packing"):
        obstacles.check_runs_on_cpu(PATH, Graph(kept), outputs={"a": "scores:0", "b": "shown:0"})
    kept.node.remove(next(node for node in kept.node if node.name == "shown"))
    obstacles.check_runs_on_cpu(PATH, Graph(kept), outputs={"a": "scores:0"})
    hidden = parameter_source.parameters_only(Index(kept), {"scores"})
    assert "packing" in hidden
    assert not hidden & {"x", "rnn", "rnn_zeros"}


def in_a_branch(x: Any, made: list[Any]) -> Any:
    """Packed in the branch itself, from variables that a Switch brings in."""
    flag = v1.placeholder(tf.bool, [], "flag")
    return v1.cond(flag, lambda: lstm(x, packed(*made)).output, lambda: tf.tanh(x)[:, :, :UNITS])


def before_a_branch(x: Any, made: list[Any]) -> Any:
    flag, blob = v1.placeholder(tf.bool, [], "flag"), packed(*made)
    return v1.cond(flag, lambda: lstm(x, blob).output, lambda: tf.tanh(x)[:, :, :UNITS])


def looped(x: Any, call: Callable[[Any], Any]) -> Any:
    """A recurrence applied to its own output, widened to the inputs, three times."""

    def body(step: Any, y: Any) -> tuple[Any, Any]:
        wide = tf.reshape(tf.concat([y, x[:, :, UNITS:]], 2), tf.shape(x))
        return step + 1, call(wide)

    known = [tf.TensorShape([]), tf.TensorShape([None, None, UNITS])]
    return v1.while_loop(
        lambda step, _: step < 3, body, [tf.constant(0), x[:, :, :UNITS]], shape_invariants=known
    )[1]


def in_a_loop(x: Any, made: list[Any]) -> Any:
    return looped(x, lambda wide: lstm(wide, packed(*made)).output)


def before_a_loop(x: Any, made: list[Any]) -> Any:
    blob = packed(*made)
    return looped(x, lambda wide: lstm(wide, blob).output)


#: Every place, with either kind of variable and in either format.
PLACES = {
    (in_a_branch, references, "savedmodel"),
    (before_a_branch, resources, "onnx"),
    (in_a_loop, resources, "savedmodel"),
    (before_a_loop, references, "onnx"),
}


@pytest.mark.first("in_a_branch-references-savedmodel", "before_a_loop-references-onnx")
@combinations(
    lambda *case: case in PLACES,
    place=[in_a_branch, before_a_branch, in_a_loop, before_a_loop],
    made=[references, resources],
    form=["savedmodel", "onnx"],
)
def test_inside_control_flow(place: Any, made: Any, form: str, tmp_path: Path) -> None:
    with drawing() as graph:
        tf.identity(place(v1.placeholder(tf.float32, [None, None, INPUTS], "x"), made()), name="scores")
    np.testing.assert_array_equal(blobs(graph)[0], by_hand(VALUES))
    report = cudnn_convert.convert(saved(tmp_path, graph, VALUES), tmp_path / "out", format=form)
    assert report.verification.passed


def test_the_variables_of_keras_go() -> None:
    made = plan_graph(read(fixture("1.15.5-keras_tagger").prefix), outputs=["logits:0"])
    lowered = lower(
        made.graph, made.recurrences, made.model.variables, outputs=made.signature.outputs.values()
    )
    names = {node.name for node in lowered.graph.node if node.op == "VarHandleOp"}
    scopes = [f"bidirectional/{way}_cu_dnnlstm/layer_0/forward" for way in ("forward", "backward")]
    packs = {f"{scope}/{name}" for scope in scopes for name in ("kernel", "bias")}
    assert names == packs | {"dense/kernel", "dense/bias", "embedding/embeddings"}
