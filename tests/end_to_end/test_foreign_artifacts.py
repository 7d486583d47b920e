"""Artifacts that this tool did not make, or that somebody changed: right ones pass, wrong ones are named."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper
from support.command_line import Ended, command
from support.samples import fixture
from tensorflow.lite.tools import flatbuffer_utils
from tf2onnx import tfonnx

v1 = tf.compat.v1
GRU = fixture("1.15.5-frozen_text").prefix
LSTM = fixture("1.15.5-lstm_uni_3l").prefix
STATES = fixture("1.15.5-lstm_bi_2l_states").prefix
GRU_BI = fixture("1.15.5-gru_bi").prefix
KERAS = fixture("1.15.5-keras_lstm").prefix
LAYERS, UNITS = 3, 6


def verified(source: Path, artifact: Path, folder: Path, *flags: str) -> tuple[Ended, dict[str, Any]]:
    """The call and its report; the page lies beside it as `report.html`."""
    ended = command("verify", source, artifact, "--report", folder / "report.html", "--quiet", *flags)
    return ended, json.loads((folder / "report.json").read_text())


def names_the_worst(ended: Ended, report: dict[str, Any], output: str) -> None:
    """Exit code 3, and a line with the output, the element and both values, which the report has too."""
    assert ended.code == 3
    (line,) = [line for line in ended.stderr.splitlines() if f": output {output}: at [" in line]
    (told,) = [one for one in report["outputs"] if one["output"] == output]
    worst = told["worst_element"]
    expected, found = (f"{worst[side]:.9g}" for side in ("expected", "found"))
    assert f"at {worst['index']} expected {expected}, found {found}, allowed " in line
    assert told["max_abs"] > 1e-3
    assert told["passed"] is False


# tf2onnx's own handler of CudnnRNN, which reads the blob in a wrong order.


def by_tf2onnx(folder: Path) -> Path:
    graph = v1.GraphDef()
    text_format.Parse(GRU.read_text(), graph)
    logging.getLogger("tf2onnx").setLevel(logging.CRITICAL)
    with tf.Graph().as_default() as imported:
        tf.import_graph_def(graph, name="")
        made = tfonnx.process_tf_graph(
            imported, opset=13, input_names=["x:0"], output_names=["model/probs:0"]
        ).make_model("gru")
    made.ir_version = 8
    onnx.save(made, folder / "tf2onnx.onnx")
    return folder / "tf2onnx.onnx"


def test_what_tf2onnx_makes_of_a_cudnn_gru_is_caught(tmp_path: Path) -> None:
    """Its inputs are called as the source's tensors are, `x:0`, which pairs them."""
    artifact = by_tf2onnx(tmp_path)
    ended, report = verified(GRU, artifact, tmp_path, "--inputs=x", "--outputs=model/probs")
    names_the_worst(ended, report, "model_probs")
    rows = report["subject"]["weights"]["gates"]["model/cudnn_gru/CudnnRNN"]
    # It keeps the blob, whole, and slices it when it runs.
    assert len({row["target"]["tensor"] for row in rows}) == 1


# Ours, with one recurrent kernel transposed by hand.


def transposed_onnx(file: Path) -> None:
    """Gate for gate, R of the first fused node: `[directions, gates*units, units]`."""
    model = onnx.load(str(file))
    node = next(node for node in model.graph.node if node.op_type in ("LSTM", "GRU"))
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == node.input[2])
    value = numpy_helper.to_array(tensor)
    directions, _, units = value.shape
    turned = value.reshape(directions, -1, units, units).swapaxes(2, 3).reshape(value.shape)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(turned), tensor.name))
    onnx.save(model, str(file))


def transposed_saved_model(folder: Path) -> None:
    """Gate for gate, the recurrent rows of `[inputs+units, gates*units]` of the first layer."""
    prefix = str(folder / "variables" / "variables")
    reader = tf.train.load_checkpoint(prefix)
    values = {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}
    name = "cudnn_lstm/layer_0/forward/kernel"
    units = values[name].shape[1] // 4
    blocks = np.split(values[name][-units:], 4, axis=1)
    values[name] = np.concatenate([values[name][:-units], np.hstack([block.T for block in blocks])])
    for file in (folder / "variables").iterdir():
        file.unlink()
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[*values], shape_and_slices=[""] * len(values), tensors=[*values.values()]
    )


@pytest.mark.first("lstm")
@pytest.mark.parametrize("source", [STATES, GRU_BI], ids=["lstm", "gru"])
def test_a_transposed_recurrent_kernel_in_onnx_is_caught(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert command(source, out, "--format=onnx", "--quiet").code == 0
    transposed_onnx(out)
    ended, report = verified(source, out, tmp_path)
    names_the_worst(ended, report, "rnn_out")
    doubted(report, "transposed, where the kernel lies as it is", "forward", "backward")


@pytest.mark.slow("cudnn_convert/report", "cudnn_convert/weight_map")
def test_a_transposed_recurrent_kernel_in_a_saved_model_is_caught(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command(STATES, out, "--quiet").code == 0
    transposed_saved_model(out)
    ended, report = verified(STATES, out, tmp_path)
    names_the_worst(ended, report, "rnn_out")
    doubted(report, "as it is, where the kernel lies transposed", "forward")


def doubted(report: dict[str, Any], doubt: str, *directions: str) -> None:
    """The map doubts what was changed, and nothing else."""
    (rows,) = report["subject"]["weights"]["gates"].values()
    odd = {(row["layer"], row["direction"], row["weights"], row["doubt"]) for row in rows if row["doubt"]}
    assert odd == {(0, way, "recurrent_kernel", doubt) for way in directions}
    assert all(row["target"] for row in rows)


# Right ones, from the variables of the checkpoint and the papers' equations.


def stored() -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray, np.ndarray]:
    """`(kernel [inputs+units, 4*units], bias)` of each layer, gates i, c, f, o, and the head's."""
    reader = tf.train.load_checkpoint(str(LSTM))
    scope = "cudnn_lstm/rnn/multi_rnn_cell/cell_{}/cudnn_compatible_lstm_cell/"
    cells = [
        (reader.get_tensor(f"{scope.format(k)}kernel"), reader.get_tensor(f"{scope.format(k)}bias"))
        for k in range(LAYERS)
    ]
    names = sorted(name for name in reader.get_variable_to_shape_map() if not name.startswith("cudnn_lstm"))
    bias, kernel = (next(name for name in names if name.endswith(end)) for end in ("bias", "kernel"))
    return cells, reader.get_tensor(kernel), reader.get_tensor(bias)


def onnx_by_hand(folder: Path) -> Path:
    cells, head, head_bias = stored()
    nodes, constants, x = [], [], "feed"
    for k, (kernel, bias) in enumerate(cells):
        i, c, f, o = np.split(kernel, 4, axis=1)
        bi, bc, bf, bo = np.split(bias, 4)
        wide = np.concatenate([gate.T for gate in (i, o, f, c)])
        b = np.concatenate([bi, bo, bf, bc, np.zeros(4 * UNITS, np.float32)])
        inputs = kernel.shape[0] - UNITS
        for name, value in {"w": wide[:, :inputs], "r": wide[:, inputs:], "b": b}.items():
            constants.append(numpy_helper.from_array(np.ascontiguousarray(value[None]), f"{name}{k}"))
        nodes.append(helper.make_node("LSTM", [x, f"w{k}", f"r{k}", f"b{k}"], [f"y{k}"], hidden_size=UNITS))
        nodes.append(helper.make_node("Squeeze", [f"y{k}", "one"], [f"x{k}"]))
        x = f"x{k}"
    constants += [numpy_helper.from_array(np.array([1], np.int64), "one")]
    constants += [numpy_helper.from_array(head, "head"), numpy_helper.from_array(head_bias, "head_bias")]
    nodes += [
        helper.make_node("MatMul", [x, "head"], ["product"]),
        helper.make_node("Add", ["product", "head_bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["answer"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "by_hand",
        [helper.make_tensor_value_info("feed", TensorProto.FLOAT, ["time", "batch", 4])],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["time", "batch", head.shape[1]])],
        constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))
    return folder / "model.onnx"


def looped(x: Any) -> Any:
    """The network of the checkpoint in plain ops: the equations of an LSTM, step by step."""
    cells, head, head_bias = stored()
    for kernel, bias in cells:
        weights, added = tf.constant(kernel), tf.constant(bias)

        def step(state: Any, now: Any, weights: Any = weights, added: Any = added) -> Any:
            h, c = state
            i, new, f, o = tf.split(tf.concat([now, h], 1) @ weights + added, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(new)
            return tf.sigmoid(o) * tf.tanh(c), c

        zeros = tf.zeros([tf.shape(x)[1], UNITS])
        x, _ = tf.scan(step, x, (zeros, zeros))
    return tf.nn.softmax(tf.tensordot(x, tf.constant(head), 1) + head_bias)


def saved_model_by_hand(folder: Path) -> Path:
    module = tf.Module()
    spec = tf.TensorSpec([None, None, 4], tf.float32, "feed")
    module.call = tf.function(lambda feed: {"answer": looped(feed)}, input_signature=[spec])
    tf.saved_model.save(module, str(folder / "saved"), signatures={"predict": module.call})
    return folder / "saved"


def frozen_by_hand(folder: Path) -> Path:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, None, 4], "feed")
        tf.identity(looped(x), "answer")
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    return folder / "graph.pb"


@pytest.mark.first("frozen_by_hand")
@pytest.mark.parametrize("made", [onnx_by_hand, saved_model_by_hand, frozen_by_hand])
def test_a_right_artifact_made_by_hand_is_equal(made: Callable[[Path], Path], tmp_path: Path) -> None:
    artifact = made(tmp_path)
    ended, report = verified(LSTM, artifact, tmp_path, "--inputs=feed=x", "--outputs=answer=probs")
    assert (ended.code, ended.stdout) == (0, "equal\n"), ended.stderr
    (output,) = report["outputs"]
    assert 0 < output["max_abs"] < 1e-5
    assert output["over_time"]["axis"] == 0
    # A graph of functions holds constants of its own, but all the same matrices.
    weights = report["subject"]["weights"]
    (rows,) = weights["gates"].values()
    assert not [row for row in rows if "kernel" in row["weights"] and row["target"] is None]
    (order,) = weights["target_layouts"].values()
    assert ("onnx" if made is onnx_by_hand else "contrib") in order["names"]


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter")
def test_a_tflite_file_without_signatures_is_paired_by_the_names_of_its_tensors(tmp_path: Path) -> None:
    artifact = tmp_path / "model.tflite"
    assert command(LSTM, artifact, "--format=tflite", "--no-verify", "--quiet").code == 0
    model = flatbuffer_utils.read_model(str(artifact))
    model.signatureDefs, model.metadata = [], []
    flatbuffer_utils.write_model(model, str(artifact))
    interpreter = tf.lite.Interpreter(str(artifact))
    (x,), (y,) = interpreter.get_input_details(), interpreter.get_output_details()
    ended, report = verified(
        LSTM, artifact, tmp_path, f"--inputs={x['name']}=x", f"--outputs={y['name']}=probs"
    )
    assert ended.code == 0, ended.stderr
    assert 0 < report["outputs"][0]["max_abs"] < 1e-5


def test_a_keras_model_made_by_hand_is_equal_to_a_checkpoint(tmp_path: Path) -> None:
    """The format holds layers, the source none: only its outputs are compared."""
    reader = tf.train.load_checkpoint(str(KERAS))
    kernel, recurrent, bias = (
        reader.get_tensor(f"cu_dnnlstm/{name}") for name in ("kernel", "recurrent_kernel", "bias")
    )
    units = recurrent.shape[0]
    turned = [
        np.hstack([block.reshape(units, -1).T for block in np.split(packed, 4, axis=1)])
        for packed in (kernel, recurrent)
    ]
    x = keras.Input([None, kernel.shape[0]], name="feed")
    layer = keras.layers.LSTM(units, return_sequences=True)
    model = keras.Model(x, layer(x))
    layer.set_weights([*turned, bias[: 4 * units] + bias[4 * units :]])
    model.save(tmp_path / "model.keras")
    flags = ("--inputs=feed=x", "--outputs=answer=cu_dnnlstm/transpose_1")
    ended, report = verified(KERAS, tmp_path / "model.keras", tmp_path, *flags)
    assert ended.code == 0, ended.stderr
    assert report["outputs"][0]["over_time"]["axis"] == 1


def test_names_that_pair_with_nothing_are_a_usage_error(tmp_path: Path) -> None:
    artifact = onnx_by_hand(tmp_path)
    ended = command("verify", LSTM, artifact, "--inputs=x", "--outputs=answer=probs", "--quiet")
    assert ended.code == 2
    assert ended.stderr == (
        f"cudnn-convert: {artifact}: inputs: expected the artifact's inputs feed, found x; "
        "name them with --inputs NAME=TENSOR\n"
    )


def test_an_output_under_another_name_is_missing(tmp_path: Path) -> None:
    artifact = onnx_by_hand(tmp_path)
    ended, report = verified(LSTM, artifact, tmp_path, "--inputs=feed=x", "--outputs=wrong=probs")
    assert ended.code == 3
    assert [(one["output"], one["message"]) for one in report["outputs"]] == [
        ("wrong", "missing"),
        ("answer", "not expected"),
    ]


def test_an_artifact_that_its_runtime_cannot_run_is_no_bug_of_ours(tmp_path: Path) -> None:
    model = onnx.load(str(onnx_by_hand(tmp_path)))
    for tensor in model.graph.initializer:
        if tensor.name == "head":
            wide = np.vstack([numpy_helper.to_array(tensor)] * 2)
            tensor.CopyFrom(numpy_helper.from_array(wide, "head"))
    onnx.save(model, str(tmp_path / "broken.onnx"))
    ended = command(
        "verify", LSTM, tmp_path / "broken.onnx", "--inputs=feed=x", "--outputs=answer=probs", "--quiet"
    )
    assert ended.code == 1
    assert f"{tmp_path / 'broken.onnx'}: artifact: expected a model that " in ended.stderr
