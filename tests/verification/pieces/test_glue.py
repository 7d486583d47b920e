"""What stands around recurrences in an ONNX model, with their values given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras_files
import numpy as np
import onnx
import pytest
import tensorflow as tf
from cases import Case
from graphs import drawing
from onnx import helper, numpy_helper

import cudnn_convert
from cudnn_convert import planning
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.options import Options
from cudnn_convert.report import GlueReport
from cudnn_convert.verification import run, way
from cudnn_convert.verification.pieces import asking
from cudnn_convert.verification.pieces.piece import Artifact

v1 = tf.compat.v1
CASE = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3")


def source(folder: Path) -> Path:
    """Two layers of two directions, states and lengths, behind a dense layer and a gate that is shut."""
    rng = np.random.default_rng(3)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 3], "x")
        lengths = v1.placeholder(tf.int32, [None], "lengths")
        kernel = tf.constant(rng.uniform(-0.5, 0.5, (3, CASE.inputs)).astype(np.float32))
        inner = tf.tensordot(x, kernel, 1)
        states = [
            tf.tile(tf.constant(rng.uniform(-1, 1, (4, 1, 5)).astype(np.float32)), [1, tf.shape(x)[1], 1])
            for _ in range(2)
        ]
        y = CASE.op_call(inner, *states, lengths).output
        tf.identity(y * tf.cast(tf.reduce_max(x) > 99.0, tf.float32), "answer")
    path = folder / "gated.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def wired(file: Path, change: Callable[[Any, list[Any]], None]) -> None:
    model = onnx.load(str(file))
    change(model.graph, [node for node in model.graph.node if node.op_type == "LSTM"])
    onnx.save(model, str(file))


def other_state(graph: Any, nodes: list[Any]) -> None:
    """The second layer starts from h where it should from c."""
    nodes[1].input[6] = nodes[1].input[5]


def halves_exchanged(graph: Any, nodes: list[Any]) -> None:
    """Both directions of the first layer's output come in the other order."""
    wanted = nodes[1].input[0]
    order = helper.make_tensor("order", onnx.TensorProto.INT64, [10], [*range(5, 10), *range(5)])
    graph.initializer.append(order)
    made = helper.make_node("Gather", [wanted, "order"], ["exchanged"], axis=2)
    place = next(k for k, node in enumerate(graph.node) if node.name == nodes[1].name)
    nodes[1].input[0] = "exchanged"
    graph.node.insert(place, made)


def without_lengths(graph: Any, nodes: list[Any]) -> None:
    nodes[0].input[4] = ""


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (other_state, "initial c of LSTM_1"),
        (halves_exchanged, "input of LSTM_1"),
        (without_lengths, "lengths of LSTM_0"),
    ],
)
def test_wrong_wiring_behind_a_shut_gate_is_seen(change: Any, what: str, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    path = source(tmp_path)
    proof = cudnn_convert.convert(path, out, format="onnx", outputs="answer").verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.unjudged) == (True, True, ())
    assert proof.glue.needed < 0.5
    assert cudnn_convert.verify(path, out).passed
    wired(out, change)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, out)
    assert f"around the recurrences: {what}: off by " in str(caught.value)


def gated(folder: Path, answer: Callable[[Any], Any]) -> Path:
    """What `answer` makes of `x [time, batch, 4]`, behind a gate that is shut."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 4], "x")
        tf.identity(answer(x) * tf.cast(tf.reduce_max(x) > 99.0, tf.float32), "answer")
    path = folder / "gated.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def states(case: Case, x: Any) -> list[Any]:
    """Distinct initial states for a case."""
    rng = np.random.default_rng(4)
    return [
        tf.tile(
            tf.constant(rng.uniform(-1, 1, (case.depth, 1, width)).astype(np.float32)), [1, tf.shape(x)[1], 1]
        )
        for width in (case.sizes.width, case.units)
    ]


def of_projections(x: Any) -> Any:
    case = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", projection=3)
    return case.op_call(x, *states(case, x), tf.fill([tf.shape(x)[1]], tf.shape(x)[0])).output


def of_twins(x: Any) -> Any:
    """Two recurrences with the weights of one, the second on what the first gives."""
    case = Case(Mode.LSTM, units=4)
    weights = tf.constant(case.blob, name="blob")
    first = case.op_call(x, *states(case, x), params=weights, name="first").output
    return case.op_call(first * 0.7, *states(case, x), params=weights, name="second").output


def other_projection(graph: Any, _: list[Any]) -> None:
    """One projection of the first layer has another value in one place."""
    by_name = {one.name: one for one in graph.initializer}
    products = [node for node in graph.node if node.op_type == "MatMul" and node.input[1] in by_name]
    tensor = next(by_name[node.input[1]] for node in products if [*by_name[node.input[1]].dims] == [5, 3])
    value = numpy_helper.to_array(tensor).copy()
    value[1, 2] += 0.01
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def other_factor(graph: Any, _: list[Any]) -> None:
    """What is between both recurrences multiplies by 0.8."""
    tensor = next(
        one
        for one in graph.initializer
        if numpy_helper.to_array(one).size == 1
        and abs(float(numpy_helper.to_array(one).ravel()[0]) - 0.7) < 1e-6
    )
    value = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(np.full_like(value, 0.8), tensor.name))


@pytest.mark.parametrize(
    ("answer", "change"),
    [(of_projections, other_projection), (of_twins, other_factor)],
    ids=["projections", "twins"],
)
def test_what_stands_between_fused_nodes_is_seen(answer: Any, change: Any, tmp_path: Path) -> None:
    path, out = gated(tmp_path, answer), tmp_path / "out.onnx"
    proof = cudnn_convert.convert(path, out, format="onnx", outputs="answer").verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.message) == (True, True, "")
    wired(out, change)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, out)
    assert "around the recurrences: input of LSTM_1: off by " in str(caught.value)


def of_a_dense_layer(x: Any) -> Any:
    """A matrix that is large enough to be stored as half, behind a recurrence."""
    case = Case(Mode.GRU)
    kernel = np.random.default_rng(5).uniform(-0.5, 0.5, (5, 64)).astype(np.float32)
    y = case.op_call(x, states(case, x)[0], tf.constant(0.0)).output
    return tf.tensordot(tf.tensordot(y, tf.constant(kernel), 1), tf.constant(kernel.T[:, ::-1].copy()), 1)


def test_products_of_matrices_in_half_are_looked_for(tmp_path: Path) -> None:
    path, out = gated(tmp_path, of_a_dense_layer), tmp_path / "out.onnx"
    flags = {"format": "onnx", "outputs": "answer", "weights_dtype": "float16"}
    proof = cudnn_convert.convert(path, out, **flags).verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.products) == (True, True, 2)

    def change(graph: Any, _: list[Any]) -> None:
        tensor = next(one for one in graph.initializer if [*one.dims] == [5, 64])
        value = numpy_helper.to_array(tensor)
        assert value.dtype == np.float16
        value = value.copy()
        value[:, 7] *= 1.2
        tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))

    model = onnx.load(str(out))
    change(model.graph, [])
    onnx.save(model, str(out))
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, out)
    assert "around the recurrences: MatMul " in str(caught.value)


def in_a_loop(folder: Path) -> Path:
    """Three passes of a recurrence on what it gave, times 0.7, behind a gate that is shut."""
    case = Case(Mode.LSTM, units=4)
    with drawing() as graph:
        x = v1.placeholder(tf.float32, [None, None, 4], "x")

        def body(count: Any, y: Any) -> Any:
            return count + 1, case.op_call(y * 0.7, *states(case, x)).output

        _, y = tf.while_loop(lambda count, _: count < 3, body, [0, x])
        tf.identity(y * tf.cast(tf.reduce_max(x) > 99.0, tf.float32), "answer")
    path = folder / "loop.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def other_factor_in_onnx(file: Path) -> None:
    """The loop multiplies by 0.8."""
    model = onnx.load(str(file))

    def change(graph: Any) -> int:
        wanted = [
            one for one in graph.initializer if list(numpy_helper.to_array(one).ravel()) == [np.float32(0.7)]
        ]
        for one in wanted:
            value = numpy_helper.to_array(one)
            one.CopyFrom(numpy_helper.from_array(np.full_like(value, 0.8), one.name))
        return len(wanted) + sum(
            change(attr.g) for node in graph.node for attr in node.attribute if attr.HasField("g")
        )

    assert change(model.graph) == 1
    onnx.save(model, str(file))


def other_factor_in_a_graph(file: Path) -> None:
    graph = v1.GraphDef.FromString(file.read_bytes())
    for node in graph.node:
        tensor = node.attr["value"].tensor
        if (
            node.op == "Const"
            and node.attr["dtype"].type == 1
            and tf.make_ndarray(tensor).ravel()[:1] == np.float32(0.7)
        ):
            tensor.CopyFrom(tf.make_tensor_proto(np.float32(0.8)))
    file.write_bytes(graph.SerializeToString())


@pytest.mark.parametrize(
    ("out", "change", "what"),
    [
        ("out.onnx", other_factor_in_onnx, "input of LSTM_"),
        ("out.pb", other_factor_in_a_graph, "input of while/rnn"),
    ],
)
def test_what_stands_in_a_loop_is_seen(out: str, change: Any, what: str, tmp_path: Path) -> None:
    path, file = in_a_loop(tmp_path), tmp_path / out
    form = "onnx" if out.endswith("onnx") else "frozen"
    proof = cudnn_convert.convert(path, file, format=form, outputs="answer").verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.message) == (True, True, "")
    change(file)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, file, inputs="x", outputs="answer")
    assert f"around the recurrences: {what}" in str(caught.value)


@pytest.mark.parametrize("form", ["frozen", "savedmodel", "checkpoint"])
def test_the_glue_of_a_graph_is_run_by_itself(form: str, tmp_path: Path) -> None:
    proof = cudnn_convert.convert(
        source(tmp_path), tmp_path / "out", format=form, outputs="answer"
    ).verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.products) == (True, True, 1), proof.glue
    assert proof.glue.needed < 0.5


def test_other_initial_states_of_a_graph_are_seen(tmp_path: Path) -> None:
    path, out = source(tmp_path), tmp_path / "out.pb"
    cudnn_convert.convert(path, out, format="frozen", outputs="answer")
    graph = v1.GraphDef.FromString(out.read_bytes())
    states = [
        node
        for node in graph.node
        if node.op == "Const"
        and [one.size for one in node.attr["value"].tensor.tensor_shape.dim] == [4, 1, 5]
    ]
    value = tf.make_ndarray(states[1].attr["value"].tensor).copy()
    value[2, 0, 3] += 1e-3
    states[1].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    out.write_bytes(graph.SerializeToString())
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, out, inputs="x,lengths", outputs="answer")
    assert "around the recurrences: initial c of rnn: off by " in str(caught.value)


def test_outputs_that_show_everything_need_no_glue(tmp_path: Path) -> None:
    graph, _ = CASE.graph()
    path = tmp_path / "open.pb"
    path.write_bytes(graph.SerializeToString())
    proof = cudnn_convert.convert(path, tmp_path / "out.onnx", format="onnx").verification
    assert proof is not None
    assert proof.glue is None


def test_what_stands_around_recurrences_in_several_files_is_run_by_itself(tmp_path: Path) -> None:
    rng, source, out = np.random.default_rng(2), tmp_path / "weights.h5", tmp_path / "out"
    gates = {"first": 4, "second": 3}
    weights = {name: keras_files.cudnn(rng, count, 5, 3, f"{name}/") for name, count in gates.items()}
    with h5py.File(source, "w") as file:
        keras_files.put(file, weights)
    flags = Options.of({"format": "onnx", "states": True})
    cudnn_convert.convert(source, out, format="onnx", states=True)
    plan = planning.planned(planning.opened(source, flags, tag=flags.tag), flags)
    with way.of(plan).opened(plan) as judge:
        feed = way.of(plan).generated(plan, judge, seed=1)[0]

    def around() -> GlueReport:
        artifact = Artifact("onnx", out, plan, run.opened("onnx", out, plan.parts))
        return asking.glue(artifact, feed, dtype=np.dtype(np.float32), stored="float32", trust=False)

    right = around()
    assert (right.asked, right.passed, right.message) == (True, True, "")
    assert right.compared > sum(value.size for value in feed.values())  # each enters, and outputs
    model = onnx.load(str(out / "second.onnx"))
    (node,) = [one for one in model.graph.node if one.op_type == "GRU"]
    model.graph.node.insert(0, helper.make_node("Neg", [node.input[5]], ["negative"]))
    node.input[5] = "negative"
    onnx.save(model, str(out / "second.onnx"))
    wrong = around()
    assert not wrong.passed
    assert wrong.message.startswith("initial h of second/GRU_0: off by ")
