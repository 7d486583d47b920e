"""The loops of a TensorFlow Lite file, wherever they stand, asked by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case
from support.samples import fixture
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode

v1 = tf.compat.v1
GRU = Case(Mode.GRU, 2, 2, units=6)
#: Two layers and directions, a branch, a loop of the model, lengths, a projection, final states, fixed sizes.
NESTED = (
    *("lstm_bi_2l_states", "while_refine"),
    *(
        pytest.param(name, marks=pytest.mark.slow("cudnn_convert/lower/tflite"))
        for name in (
            "cond",
            "v3_gru_lengths",
            "op_proj_lstm",
            "op_skip_lstm",
            "final_state_only",
            "queue_input",
        )
    ),
)


def nudge(file: Path) -> None:
    """One recurrent weight of the last loop is off by a thousandth of its gate's norm."""
    model = flatbuffer_utils.read_model(str(file))
    product = schema.BuiltinOperator.FULLY_CONNECTED
    tensor = [
        graph.tensors[op.inputs[1]]
        for graph in model.subgraphs[1:]
        for op in graph.operators
        if model.operatorCodes[op.opcodeIndex].builtinCode == product
        and model.buffers[graph.tensors[op.inputs[1]].buffer].data is not None
    ][-1]
    buffer = model.buffers[tensor.buffer]
    value = np.frombuffer(bytes(bytearray(buffer.data)), np.float32).reshape(tensor.shape).copy()
    width = value.shape[1]
    value[1, 1] += 1e-3 * np.linalg.norm(value[:width])
    buffer.data = np.frombuffer(value.tobytes(), np.uint8)
    flatbuffer_utils.write_model(model, str(file))


@pytest.mark.first("while_refine")
@pytest.mark.parametrize("name", NESTED)
def test_every_layer_is_asked_and_a_single_weight_is_seen(name: str, tmp_path: Path) -> None:
    sample, out = fixture(f"1.15.5-{name}"), tmp_path / "model.tflite"
    proof = cudnn_convert.convert(sample.prefix, out, format="tflite", **sample.options).verification
    assert proof is not None
    assert all(one.asked for one in proof.recurrences)
    assert max(one.needed for one in proof.recurrences) < 0.5
    assert min(one.weakest or 0 for one in proof.recurrences) >= 5
    if name == "cond":
        return  # there the weights are arguments of the branch
    nudge(out)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(sample.prefix, out)
    wrong = [one for one in caught.value.report.recurrences if not one.passed]
    assert f"recurrence {wrong[0].node}, by itself: layer " in str(caught.value)


@pytest.mark.slow("cudnn_convert/verification/pieces/tflite")
def test_a_fused_backward_direction_whose_last_step_alone_is_read(tmp_path: Path) -> None:
    """Nothing turns its outputs round: they are in the order of its steps."""
    sample, out = fixture("1.15.5-final_state_only"), tmp_path / "model.tflite"
    fused = {"format": "tflite", "lowering": "fused", "steps": 7}
    proof = cudnn_convert.convert(sample.prefix, out, **fused, **sample.options).verification
    assert proof is not None
    assert all(one.asked for one in proof.recurrences)
    assert max(one.needed for one in proof.recurrences) < 0.5
    assert min(one.weakest or 0 for one in proof.recurrences) >= 5


def source(case: Case, shape: Sequence[int | None], path: Path) -> Path:
    """A frozen graph whose input has some sizes."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [*shape, 4], "x")
        states = tf.zeros([4, tf.shape(x)[1], case.units])
        c = states if case.mode is Mode.LSTM else tf.constant(0.0)
        tf.identity(case.op_call(x, states, c, name="rnn").output * 1e-6, "answer")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@pytest.mark.slow("cudnn_convert/verification/pieces/tflite", "cudnn_convert/lower/tflite")
@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        (Mode.LSTM, (40, 3)),
        *(
            pytest.param(mode, shape, marks=pytest.mark.slow("cudnn_convert/lower/tflite"))
            for mode in (Mode.LSTM, Mode.GRU, Mode.RNN_TANH)
            for shape in ((5, None), (None, 3), (64, 3), (1, 2), (300, None))
        ),
    ],
)
def test_fixed_sizes_are_kept_and_a_single_step_is_taken_from_the_end(
    mode: Mode, shape: Sequence[int | None], tmp_path: Path
) -> None:
    """Outputs too small to be judged leave each recurrence to itself."""
    case: Any = replace(GRU, mode=mode)
    frozen, out = source(case, shape, tmp_path / "source.pb"), tmp_path / "model.tflite"
    proof = cudnn_convert.convert(frozen, out, format="tflite", outputs="answer").verification
    assert proof is not None
    assert [(one.layers, one.asked, one.passed) for one in proof.recurrences] == [
        ((0,), True, True),
        ((1,), True, True),
    ]
    assert max(one.needed for one in proof.recurrences) < 0.5
    nudge(out)
    with pytest.raises(VerificationError, match="recurrence rnn, by itself: layer "):
        cudnn_convert.verify(frozen, out)


def of_fixed_size(case: Case, path: Path, inputs: Any, **given: Any) -> Path:
    """A frozen graph of a recurrence on what `inputs` makes of 5 steps of 3 rows."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [5, 3, 4], "x")
        states = tf.zeros([case.depth, 3, case.units])
        tf.identity(case.op_call(inputs(x), states, states, **given).output, "answer")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_a_sum_before_a_recurrence_is_no_part_of_its_weights(tmp_path: Path) -> None:
    """Of a known size the converter would make it one."""
    frozen = of_fixed_size(GRU, tmp_path / "source.pb", lambda x: x * 0.5 + 1.0)
    proof = cudnn_convert.convert(
        frozen, tmp_path / "model.tflite", format="tflite", outputs="answer"
    ).verification
    assert proof is not None
    assert [(one.asked, one.passed) for one in proof.recurrences] == [(True, True)] * 2


@pytest.mark.slow("cudnn_convert/verification/pieces/")
def test_constant_lengths_leave_a_recurrence_to_the_outputs(tmp_path: Path) -> None:
    """The converter moves them into the loop, where no others can be asked for."""
    case = Case(Mode.LSTM, directions=2, op="CudnnRNNV3")
    frozen = of_fixed_size(case, tmp_path / "source.pb", lambda x: x, lengths=np.array([5, 2, 3], np.int32))
    proof = cudnn_convert.convert(
        frozen, tmp_path / "model.tflite", format="tflite", outputs="answer"
    ).verification
    assert proof is not None
    assert proof.end_to_end == "equal"
    (found,) = proof.recurrences
    assert found.message == (
        "not asked by itself: in the file the lengths of its rows are constants of its loop"
    )


def fused(path: Path, *, backward: bool = True) -> tuple[Path, Path]:
    """A source whose outputs hide two LSTM layers, and its file of fused ops."""
    case = Case(Mode.LSTM, 2, 2 if backward else 1, units=6)
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [9, 2, 4], "x")
        states = tf.zeros([case.depth, 2, 6])
        tf.identity(case.op_call(x, states, states, name="rnn").output * 1e-6, "answer")
    source, out = path / "source.pb", path / "model.tflite"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    proof = cudnn_convert.convert(source, out, outputs="answer", lowering="fused").verification
    assert proof is not None
    assert [(one.layers, one.asked, one.passed) for one in proof.recurrences] == [
        ((0,), True, True),
        ((1,), True, True),
    ]
    assert max(one.needed for one in proof.recurrences) < 0.5
    assert min(one.weakest or 0 for one in proof.recurrences) >= 5
    return source, out


def list_fused(model: Any) -> list[Any]:
    kind = schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM
    return [
        op for op in model.subgraphs[0].operators if model.operatorCodes[op.opcodeIndex].builtinCode == kind
    ]


def exchange(op: Any, first: int, second: int) -> None:
    op.inputs[first], op.inputs[second] = op.inputs[second], op.inputs[first]


def exchange_ops(first: Any, second: Any, place: int) -> None:
    first.inputs[place], second.inputs[place] = second.inputs[place], first.inputs[place]


def nudge_operand(model: Any, *, number: int, place: int) -> None:
    """One value is off by a thousandth of its matrix' norm, or of all biases'."""
    op = list_fused(model)[number]
    tensor = model.subgraphs[0].tensors[op.inputs[place]]
    buffer = model.buffers[tensor.buffer]
    value = np.frombuffer(bytes(bytearray(buffer.data)), np.float32).copy()
    value[-2] += 1e-3 * np.linalg.norm(value) * (1 if len(tensor.shape) > 1 else 2)
    buffer.data = np.frombuffer(value.tobytes(), np.uint8)


def drop_reversal(model: Any) -> None:
    """The readers of what is turned round read it as it was."""
    graph, kind = model.subgraphs[0], schema.BuiltinOperator.REVERSE_V2
    turned = [op for op in graph.operators if model.operatorCodes[op.opcodeIndex].builtinCode == kind]
    for op in graph.operators:
        op.inputs = [turned[-1].inputs[0] if k == turned[-1].outputs[0] else k for k in op.inputs]
    graph.operators.remove(turned[-1])


#: The operands 1 to 4 are kernels, 5 to 8 recurrent kernels, 12 to 15 biases, each in the order i, f, c, o.
OPERANDS = (*range(1, 9), *range(12, 16))


CHANGES = {
    **{
        f"operand {place} of op {number}": partial(nudge_operand, number=number, place=place)
        for number in (0, -1)
        for place in OPERANDS
    },
    "gates i and f": lambda model: [exchange(list_fused(model)[1], k, k + 1) for k in (1, 5, 12)],
    "recurrent gates c and o": lambda model: exchange(list_fused(model)[2], 7, 8),
    "directions": lambda model: [exchange_ops(*list_fused(model)[2:4], k) for k in OPERANDS],
    "a reversal": drop_reversal,
}
#: A weight, a gate and the order of steps; `make test-every` has all.
FIRST = ("operand 6 of op -1", "recurrent gates c and o", "a reversal")


def list_unseen(folder: Path, names: Iterable[str]) -> list[str]:
    """The changes of a file of fused ops that a verification does not see."""
    source, out = fused(folder)
    content, unseen = out.read_bytes(), []
    for name in names:
        model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
        CHANGES[name](model)
        flatbuffer_utils.write_model(model, str(out))
        try:
            cudnn_convert.verify(source, out)
        except VerificationError:
            continue
        unseen.append(name)
    return unseen


def test_a_change_of_a_fused_op_is_seen(tmp_path: Path) -> None:
    assert not list_unseen(tmp_path, FIRST)


@pytest.mark.slow("cudnn_convert/verification/pieces/tflite", "cudnn_convert/lower/tflite_fused.py")
def test_every_change_of_a_fused_op_is_seen(tmp_path: Path) -> None:
    assert not list_unseen(tmp_path, CHANGES.keys() - {*FIRST})
