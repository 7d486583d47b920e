"""What stands around recurrences in an artifact, with their values given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import helper, numpy_helper
from support import keras_files
from support.cases import Case
from support.graphs import drawing
from support.shut_gates import CASE, gated, of_twins, other_constant_in_tflite, source, states, v1

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.report.values import GlueReport
from cudnn_convert.verification.pieces import ask
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.settings import make_settings


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


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
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


def of_projections(x: Any) -> Any:
    case = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", projection=3)
    return case.op_call(x, *states(case, x), tf.fill([tf.shape(x)[1]], tf.shape(x)[0])).output


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


def test_a_matrix_in_half_is_looked_at(tmp_path: Path) -> None:
    path, out = gated(tmp_path, of_a_dense_layer), tmp_path / "out.onnx"
    flags = {"format": "onnx", "outputs": "answer", "weights_dtype": "float16"}
    proof = cudnn_convert.convert(path, out, **flags).verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed) == (True, True)

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
    assert "differs at " in str(caught.value)


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


def other_factor_in_tflite(file: Path) -> None:
    other_constant_in_tflite(file, 0.7, 0.8)


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


@pytest.mark.first(
    "out.onnx-other_factor_in_onnx-input of LSTM_", "out.pb-other_factor_in_a_graph-input of while/rnn"
)
@pytest.mark.parametrize(
    ("out", "change", "what"),
    [
        ("out.onnx", other_factor_in_onnx, "input of LSTM_"),
        ("out.tflite", other_factor_in_tflite, "input of while/rnn/layer_0_forward"),
        ("out.pb", other_factor_in_a_graph, "input of while/rnn"),
    ],
)
def test_what_stands_in_a_loop_is_seen(out: str, change: Any, what: str, tmp_path: Path) -> None:
    path, file = in_a_loop(tmp_path), tmp_path / out
    form = {".pb": "frozen"}.get(file.suffix, file.suffix[1:])
    proof = cudnn_convert.convert(path, file, format=form, outputs="answer").verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.message) == (True, True, "")
    change(file)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, file, inputs="x", outputs="answer")
    assert f"around the recurrences: {what}" in str(caught.value)


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
    plan = make_plan(read_source(source, flags, tag=flags.tag), flags)
    settings = make_settings(plan, flags)
    with settings.judge.open() as source_run:
        feed = settings.judge.make_feeds(source_run, seed=1)[0]

    def around() -> GlueReport:
        artifact = Artifact("onnx", out, plan, runners.open_artifact("onnx", out, plan.parts))
        return ask.glue(artifact, settings, feed)

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
