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
from support import hidden_recurrences, keras_files
from support.cases import Case
from support.graphs import drawing
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

import cudnn_convert
from cudnn_convert.artifacts import runners
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.source import read_source
from cudnn_convert.report import GlueReport
from cudnn_convert.verification.pieces import ask
from cudnn_convert.verification.pieces.piece_inputs import Artifact
from cudnn_convert.verification.settings import prepare_judging

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


def other_constant_in_tflite(file: Path, old: float, new: float) -> None:
    """One constant of floats has another value."""

    def change(value: np.ndarray) -> np.ndarray:
        return np.full_like(value, new) if value == np.float32(old) else value

    assert hidden_recurrences.change_tflite(file, change, lambda *_: True, rank=0) == 1


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


@pytest.mark.first("savedmodel")
@pytest.mark.parametrize("form", ["frozen", "savedmodel", "checkpoint"])
def test_the_glue_of_a_graph_is_run_by_itself(form: str, tmp_path: Path) -> None:
    proof = cudnn_convert.convert(
        source(tmp_path), tmp_path / "out", format=form, outputs="answer"
    ).verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed) == (True, True), proof.glue
    assert proof.glue.needed < 0.5


@pytest.mark.slow("cudnn_convert/verification/pieces/")
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


def test_an_einsum_of_tiny_weights_in_a_graph_is_looked_at(tmp_path: Path) -> None:
    kernel = np.random.default_rng(8).uniform(-1e-7, 1e-7, (5, 3)).astype(np.float32)

    def answer(x: Any) -> Any:
        case = Case(Mode.GRU)
        y = case.op_call(x, states(case, x)[0], tf.constant(0.0)).output
        return tf.einsum("tbi,io->tbo", y, tf.constant(kernel, name="dense/kernel"))

    path, out = gated(tmp_path, answer), tmp_path / "out.pb"
    cudnn_convert.convert(path, out, format="frozen", outputs="answer")
    hidden_recurrences.change_constants(out, lambda value: value[::-1] * 1.5, "dense/kernel")
    with pytest.raises(VerificationError, match="differs at dense/kernel:0"):
        cudnn_convert.verify(path, out)


def test_outputs_that_show_everything_need_no_glue(tmp_path: Path) -> None:
    graph, _ = CASE.graph()
    path = tmp_path / "open.pb"
    path.write_bytes(graph.SerializeToString())
    proof = cudnn_convert.convert(path, tmp_path / "out.onnx", format="onnx").verification
    assert proof is not None
    assert proof.glue is None


def states_in_tflite(file: Path) -> None:
    """One initial cell state is off by 0.001."""

    def change(value: np.ndarray) -> np.ndarray:
        made = value.copy()
        made[2, 0, 3] += 1e-3
        return made

    changed: list[int] = []

    def second(_: int, shape: tuple[int, ...]) -> bool:
        changed.append(shape == (4, 1, 5))
        return changed[-1] and sum(changed) == 2

    assert hidden_recurrences.change_tflite(file, change, second, rank=3) == 1


def halves_in_tflite(file: Path) -> None:
    """Both directions of the first layer's output come in the other order."""
    model = flatbuffer_utils.read_model(str(file))
    graph = model.subgraphs[0]
    codes = [max(one.builtinCode, one.deprecatedBuiltinCode) for one in model.operatorCodes]
    joins = [
        op
        for op in graph.operators
        if codes[op.opcodeIndex] == schema.BuiltinOperator.CONCATENATION
        and len(graph.tensors[op.outputs[0]].shape) == 3
    ]
    assert len(joins) == 2
    joins[0].inputs = [*reversed(joins[0].inputs)]
    flatbuffer_utils.write_model(model, str(file))


def converted(path: Path, out: Path) -> GlueReport:
    """What is said of the glue of a TensorFlow Lite file that is right."""
    proof = cudnn_convert.convert(path, out, format="tflite", outputs="answer").verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.message) == (True, True, ""), proof.glue
    return proof.glue


def require_refused(path: Path, out: Path, what: str) -> None:
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(path, out)
    assert f"around the recurrences: {what}" in str(caught.value)


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_wrong_wiring_of_loops_is_seen(tmp_path: Path) -> None:
    path, out = source(tmp_path), tmp_path / "out.tflite"
    assert converted(path, out).unjudged == ()
    right = out.read_bytes()
    states_in_tflite(out)
    require_refused(path, out, "initial c of rnn/layer_1_forward: off by ")
    out.write_bytes(right)
    halves_in_tflite(out)
    require_refused(path, out, "input of rnn/layer_1_forward: off by ")


def of_joined_layers(x: Any) -> Any:
    """Products that the converter joins with a bias, an activation or a factor."""
    case = Case(Mode.GRU)
    rng = np.random.default_rng(6)
    shut, tiny, large = (tf.constant(rng.uniform(-0.5, 0.5, (5, n)).astype(np.float32)) for n in (7, 8, 9))
    last = case.op_call(x, states(case, x)[0], tf.constant(0.0)).output[-1]
    bias = tf.constant(rng.uniform(-40, -30, 7).astype(np.float32))
    return tf.concat([tf.nn.relu(last @ shut + bias), last @ tiny * 1e-7, last @ large + 1e6], 1)


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_what_the_converter_joins_with_a_product_hides_nothing(tmp_path: Path) -> None:
    path, out = gated(tmp_path, of_joined_layers), tmp_path / "out.tflite"
    converted(path, out)
    right = out.read_bytes()

    def change(value: np.ndarray) -> np.ndarray:
        made = value.copy()
        made[3] *= 1.2
        return made

    for width in (7, 8):  # behind an activation that is shut, and with a factor
        assert hidden_recurrences.change_tflite(out, change, lambda _, shape, n=width: shape == (n, 5)) == 1
        with pytest.raises(VerificationError, match="differs at "):
            cudnn_convert.verify(path, out)
        out.write_bytes(right)


def of_a_branch(x: Any) -> Any:
    """A projected recurrence on inputs times 0.7, in one of two branches."""
    case = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3", projection=3)
    lengths = tf.fill([tf.shape(x)[1]], tf.shape(x)[0])
    return tf.cond(
        tf.reduce_sum(tf.square(x)) > -1.0,
        lambda: case.op_call(x * 0.7, *states(case, x), lengths).output,
        lambda: tf.zeros([tf.shape(x)[0], tf.shape(x)[1], 6]),
    )


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_what_stands_in_a_branch_of_a_tflite_file_is_seen(tmp_path: Path) -> None:
    with drawing():
        path, out = gated(tmp_path, of_a_branch), tmp_path / "out.tflite"
    converted(path, out)
    right = out.read_bytes()
    other_constant_in_tflite(out, 0.7, 0.8)
    require_refused(path, out, "input of cond/rnn/layer_0_forward: off by ")
    out.write_bytes(right)
    other_constant_in_tflite(out, -1.0, 1e9)
    require_refused(path, out, "input of cond/rnn/layer_0_forward: expected [")


def of_rows(x: Any) -> Any:
    """Rows that a recurrence gives in three passes on inputs times 0.7, behind none at first."""
    case = Case(Mode.LSTM, units=4)

    def body(count: Any, rows: Any) -> Any:
        y = case.op_call(x * tf.cast(count, tf.float32) * 0.7, *states(case, x)).output
        return count + 1, tf.concat([rows, y], 1)

    start = tf.zeros([tf.shape(x)[0], 0, 4])
    shapes = [tf.TensorShape([]), tf.TensorShape([None, None, 4])]
    _, rows = tf.while_loop(lambda count, _: tf.cast(count, tf.float32) < 2.5, body, [0, start], shapes)
    return tf.reduce_max(rows, 1)


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_every_pass_of_a_loop_of_a_tflite_file_is_followed(tmp_path: Path) -> None:
    with drawing():
        path, out = gated(tmp_path, of_rows), tmp_path / "out.tflite"
    converted(path, out)
    right = out.read_bytes()
    other_constant_in_tflite(out, 0.7, 0.8)
    require_refused(path, out, "input of while/rnn/layer_0_forward: off by ")
    out.write_bytes(right)
    other_constant_in_tflite(out, 2.5, 1.5)
    require_refused(path, out, "input of while/rnn/layer_0_forward: expected [")


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_twins_of_a_tflite_file_are_told_apart(tmp_path: Path) -> None:
    path, out = gated(tmp_path, of_twins), tmp_path / "out.tflite"
    converted(path, out)
    other_constant_in_tflite(out, 0.7, 0.8)
    require_refused(path, out, "input of second/layer_0_forward: off by ")


def of_a_block(x: Any) -> Any:
    """A recurrence behind a block LSTM, whose own product no tensor of the source has."""
    rng = np.random.default_rng(7)
    kernel, bias = (
        tf.constant(rng.uniform(-0.5, 0.5, shape).astype(np.float32)) for shape in ((8, 16), (16,))
    )
    start, peepholes = tf.zeros([tf.shape(x)[1], 4]), tf.zeros(4)
    block = tf.raw_ops.BlockLSTM(
        seq_len_max=tf.cast(tf.shape(x)[0], tf.int64),
        **{"x": x, "w": kernel, "b": bias, "cs_prev": start, "h_prev": start, "cell_clip": 0.0},
        **dict.fromkeys(("wci", "wcf", "wco"), peepholes),
    )
    case = Case(Mode.GRU, units=4)
    return case.op_call(block.h * 0.7, states(case, x)[0], tf.constant(0.0)).output


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_a_block_lstm_runs_where_a_recurrence_is_given(tmp_path: Path) -> None:
    path, out = gated(tmp_path, of_a_block), tmp_path / "out.tflite"
    converted(path, out)
    other_constant_in_tflite(out, 0.7, 0.8)
    require_refused(path, out, "input of rnn/layer_0_forward: off by ")


def test_what_stands_around_recurrences_in_several_files_is_run_by_itself(tmp_path: Path) -> None:
    rng, source, out = np.random.default_rng(2), tmp_path / "weights.h5", tmp_path / "out"
    gates = {"first": 4, "second": 3}
    weights = {name: keras_files.cudnn(rng, count, 5, 3, f"{name}/") for name, count in gates.items()}
    with h5py.File(source, "w") as file:
        keras_files.put(file, weights)
    flags = Options.of({"format": "onnx", "states": True})
    cudnn_convert.convert(source, out, format="onnx", states=True)
    plan = make_plan(read_source(source, flags, tag=flags.tag), flags)
    judging = prepare_judging(plan, flags)
    with judging.judge.open() as source_run:
        feed = judging.judge.make_feeds(source_run, seed=1)[0]

    def around() -> GlueReport:
        artifact = Artifact("onnx", out, plan, runners.open_artifact("onnx", out, plan.parts))
        return ask.glue(artifact, judging, feed)

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
