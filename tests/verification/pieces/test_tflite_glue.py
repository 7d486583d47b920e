"""What stands around the loops of a TensorFlow Lite file, with their values given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import hidden_recurrences
from support.cases import Case
from support.graphs import drawing
from support.shut_gates import gated, of_twins, other_constant_in_tflite, source, states
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode
from cudnn_convert.report.values import GlueReport


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
