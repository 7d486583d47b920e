"""Fused LSTM ops and unrolled steps of TensorFlow Lite, run by its interpreter.

The float64 reference judges.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support.cases import BATCH, STEPS, Case
from support.tiers import tier
from tensorflow.lite.python import schema_py_generated as schema

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.lower import tflite, tflite_fused
from cudnn_convert.model import Array, Mode, Signature
from cudnn_convert.targets import tflite as write_tflite

v1 = tf.compat.v1
FUSED = "UNIDIRECTIONAL_SEQUENCE_LSTM"
#: float32 sums of 20 products of numbers near 1, over 7 steps.
TOLERANCE = 1e-5


def draw(
    case: Case, *, steps: int = STEPS, batch: int = BATCH, states: bool = False, cell: bool = False
) -> tuple[Any, Signature]:
    """A graph of a node of fixed sizes: with `states` it takes them, with `cell` it gives the final cell."""
    major = (lambda time, rows: [time, rows]) if case.time_major else (lambda time, rows: [rows, time])
    with tf.Graph().as_default() as graph:
        inputs = {"x": v1.placeholder(case.dtype, [*major(steps, batch), case.inputs], "x")}
        for key, width in (("h", case.sizes.width), ("c", case.units)):
            shape = [*major(case.depth, batch), width]
            inputs[key] = v1.placeholder(case.dtype, shape, key) if states else tf.zeros(shape, case.dtype)
        if case.mode is not Mode.LSTM:
            inputs["c"] = tf.constant(0, case.dtype)
        if case.op == "CudnnRNNV3":
            inputs["lengths"] = v1.placeholder("int32", [batch], "lengths")
        outputs = case.op_call(*inputs.values())
        ends = {"y": outputs.output, "h_n": outputs.output_h} | ({"c_n": outputs.output_c} if cell else {})
        named = {key: tf.identity(value, key).name for key, value in ends.items()}
    fed = {key: value.name for key, value in inputs.items() if value.op.type == "Placeholder"}
    return graph.as_graph_def(), Signature(fed, named)


def write(case: Case, graph: Any, signature: Signature, path: Path) -> tflite.LiteGraph:
    lowered = tflite.lower_tflite(graph, [case.recurrence()], {}, ends=[*signature.tensors], fused=True)
    write_tflite.write(lowered.graph, signature, path, provenance="{}", built_in=True, fused=lowered.fused)
    return lowered


def list_ops(path: Path) -> list[str]:
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(path.read_bytes(), 0))
    assert len(model.subgraphs) == 1, "a loop or a branch"
    return [names[model.operatorCodes[op.opcodeIndex].builtinCode] for op in model.subgraphs[0].operators]


def feed(case: Case, signature: Signature, *, batch: int = BATCH) -> dict[str, Array]:
    """Random inputs, zeros for states that the file does not take; some rows are shorter, one is empty."""
    values = case.feeds(STEPS, batch)
    return {key: value if key in signature.inputs else np.zeros_like(value) for key, value in values.items()}


def run(path: Path, case: Case, signature: Signature, values: dict[str, Array]) -> dict[str, Array]:
    def turned(value: Array) -> Array:
        return value if case.time_major or value.ndim < 3 else value.swapaxes(0, 1)

    runner = tf.lite.Interpreter(str(path)).get_signature_runner()
    answers = runner(
        **{
            key: turned(values[key].astype(np.float32) if values[key].dtype.kind == "f" else values[key])
            for key in signature.inputs
        }
    )
    return {key: turned(value) for key, value in answers.items()}


def check(case: Case, path: Path, *, batch: int = BATCH, **kinds: bool) -> tuple[list[str], tuple[str, ...]]:
    graph, signature = draw(case, batch=batch, **kinds)
    lowered = write(case, graph, signature, path)
    values = feed(case, signature, batch=batch)
    answers = run(path, case, signature, values)
    expected = dict(zip(("y", "h_n", "c_n"), case.expected(values), strict=False))
    for key, value in answers.items():
        np.testing.assert_allclose(value, expected[key], TOLERANCE, TOLERANCE, err_msg=key)
    return list_ops(path), lowered.notes


@pytest.mark.parametrize(
    ("case", "batch"),
    [
        pytest.param(case, batch, marks=tier(first=k == 0))
        for k, (case, batch) in enumerate(
            [
                (Case(Mode.LSTM, 2, 2), 3),
                (Case(Mode.LSTM), 1),
                (Case(Mode.LSTM, 1, 2, time_major=False), 1),
                (Case(Mode.LSTM, 3, time_major=False), 2),
                (Case(Mode.LSTM, dtype="float16"), 3),
                (Case(Mode.LSTM, 2, dtype="float64"), 1),
                (Case(Mode.LSTM, 2, 2, input_mode="skip_input"), 3),
            ]
        )
    ],
)
def test_lstms_that_begin_with_zeros_are_fused_ops(tmp_path: Path, case: Case, batch: int) -> None:
    ops, notes = check(case, tmp_path / "m.tflite", batch=batch)
    assert ops.count(FUSED) == case.depth
    assert ops.count("REVERSE_V2") == 2 * case.layers * (case.directions - 1)
    assert notes == (
        "fused LSTMs keep their states from call to call: reset them before each sequence with "
        "Interpreter.reset_all_variables() of TensorFlow Lite, or Reset() of TensorFlow Lite Micro",
    )


LENGTHS = "the fused op takes no lengths of rows"
UNROLLED = [
    (Case(Mode.GRU, 2, 2), {}, "the fused op computes LSTMs, and this is a gru"),
    (Case(Mode.RNN_TANH, 1, 2, time_major=False), {}, "the fused op computes LSTMs, and this is a rnn_tanh"),
    (Case(Mode.RNN_RELU, 2), {}, "the fused op computes LSTMs, and this is a rnn_relu"),
    (Case(Mode.RNN_RELU, 1, 2, dtype="float64"), {}, "the fused op computes LSTMs, and this is a rnn_relu"),
    (Case(Mode.GRU, 2, dtype="float64"), {}, "the fused op computes LSTMs, and this is a gru"),
    (Case(Mode.GRU, dtype="float16"), {}, "the fused op computes LSTMs, and this is a gru"),
    (Case(Mode.LSTM, 2, 2, "CudnnRNNV3"), {}, LENGTHS),
    (Case(Mode.GRU, 1, 2, "CudnnRNNV3", time_major=False), {"states": True}, "the fused op computes LSTMs"),
    (Case(Mode.LSTM, 2), {"states": True, "cell": True}, "the fused op begins with zeros"),
    (Case(Mode.LSTM, 1, 2), {"cell": True}, "the fused op gives no final cell state"),
    (Case(Mode.LSTM, 2, 1, "CudnnRNNV3", projection=3), {}, LENGTHS),
]


#: Two layers and directions with lengths, and what is no LSTM.
FIRST_UNROLLED = (Case(Mode.LSTM, 2, 2, "CudnnRNNV3"), Case(Mode.GRU, dtype="float16"))


@pytest.mark.parametrize(
    ("case", "kinds", "reason"),
    [pytest.param(*row, marks=tier(first=row[0] in FIRST_UNROLLED)) for row in UNROLLED],
)
def test_others_are_unrolled_step_by_step(
    tmp_path: Path, case: Case, kinds: dict[str, bool], reason: str
) -> None:
    ops, notes = check(case, tmp_path / "m.tflite", **kinds)
    assert FUSED not in ops
    (note,) = notes
    assert note.startswith(f"rnn is unrolled into {STEPS} steps: {reason}")


def test_a_recurrence_of_open_sizes_or_of_too_many_steps_is_refused() -> None:
    case = Case(Mode.GRU)
    graph, _ = case.graph()
    with pytest.raises(
        UnsupportedModelError, match="rnn: expected an input of fixed sizes, found open steps"
    ):
        tflite_fused.choose_forms(Graph.of(graph), [case.recurrence()], ["rnn:0"])
    graph, signature = draw(case, steps=tflite_fused.MOST_STEPS + 1)
    with pytest.raises(
        UnsupportedModelError,
        match=r"expected at most 512 steps to unroll .*, found 513; leave out --lowering fused",
    ):
        tflite_fused.choose_forms(Graph.of(graph), [case.recurrence()], [*signature.tensors])


def test_fused_ops_take_any_number_of_steps() -> None:
    case = Case(Mode.LSTM, 2)
    graph, signature = draw(case, steps=2000)
    (sized,) = tflite_fused.choose_forms(Graph.of(graph), [case.recurrence()], [*signature.tensors])
    assert (sized.steps, sized.rows, sized.reason) == (2000, BATCH, "")


def test_a_fused_op_that_the_converter_leaves_out_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marked function has no equations: a file of its body would compute something else."""
    case = Case(Mode.LSTM)
    graph, signature = draw(case)
    mark = tflite_fused._mark_as_lstm
    monkeypatch.setattr(tflite_fused, "_mark_as_lstm", lambda name, sized: mark(name, sized).python_function)
    with pytest.raises(UnsupportedModelError, match="rnn/layer_0_forward: expected a fused op, found none"):
        write(case, graph, signature, tmp_path / "m.tflite")
    assert not [*tmp_path.iterdir()]


def test_a_case_is_not_changed_by_its_lowering() -> None:
    case = Case(Mode.LSTM)
    graph, signature = draw(case)
    before = graph.SerializeToString(deterministic=True)
    tflite.lower_tflite(graph, [case.recurrence()], {}, ends=[*signature.tensors], fused=True)
    assert graph.SerializeToString(deterministic=True) == before
    assert dataclasses.asdict(case) == dataclasses.asdict(Case(Mode.LSTM))


def test_sums_of_biases_of_doubles_are_rounded_once() -> None:
    case = Case(Mode.LSTM, dtype="float64")
    (cell,) = case.recurrence().cells[0]
    once = (cell.bias + cell.recurrent_bias).astype(np.float32)
    twice = cell.bias.astype(np.float32) + cell.recurrent_bias.astype(np.float32)
    assert (once != twice).any()
    # Keras' gates have cuDNN's order, those of loops another.
    np.testing.assert_array_equal(tflite_fused._read_lstm(cell)["bias"], once.ravel())
    np.testing.assert_array_equal(np.sort(tflite_fused._read_cell(cell)["bias"]), np.sort(once.ravel()))
