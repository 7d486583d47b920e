"""The map of weights as a check of a proof: what it holds against an artifact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tensorflow as tf
from cases import Case
from keras3_samples import EXPORTS
from onnx import numpy_helper
from samples import fixture

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.model import Mode

GRU = fixture("1.15.5-gru_bi").prefix
v1 = tf.compat.v1


def changed(file: Path, place: int, change, *, stripped: bool = False) -> None:
    """Changes what the fused node reads in a place; `stripped` of where it came from."""
    model = onnx.load(str(file))
    node = next(node for node in model.graph.node if node.op_type == "GRU")
    tensor = next(one for one in model.graph.initializer if one.name == node.input[place])
    value = numpy_helper.to_array(tensor).copy()
    change(value)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    if stripped:
        del model.metadata_props[:]
    onnx.save(model, str(file))


def by_one_bit(value: np.ndarray) -> None:
    value[1, 2, 1] = np.nextafter(value[1, 2, 1], 9)


def gates_exchanged(value: np.ndarray) -> None:
    """In one direction alone."""
    units = value.shape[1] // 3
    value[1, : 2 * units] = np.roll(value[1, : 2 * units], units, axis=0)


def test_one_bit_of_a_weight_is_missed_in_an_artifact_of_this_tool(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    proof = cudnn_convert.convert(GRU, out, format="onnx").verification
    assert proof is not None
    assert proof.misplaced == ()
    right = out.read_bytes()
    changed(out, 2, by_one_bit)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(GRU, out)
    (line,) = caught.value.report.misplaced
    assert ": layer 0 backward, update, recurrent_kernel: expected the source's values in a tensor" in line
    assert f"weights of recurrence {line}" in str(caught.value)
    assert all(one.passed for one in caught.value.report.recurrences)  # no answer shows it
    out.write_bytes(right)
    # Of others it is not known whether they copy bits.
    changed(out, 2, by_one_bit, stripped=True)
    assert cudnn_convert.verify(GRU, out).misplaced == ()


def test_an_odd_order_is_seen_in_any_artifact(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    cudnn_convert.convert(GRU, out, format="onnx", verify=False)
    changed(out, 1, gates_exchanged, stripped=True)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(GRU, out)
    lines = caught.value.report.misplaced
    assert len(lines) == 3
    assert {line.partition(": ")[2].partition(", ")[0] for line in lines} == {"layer 0 backward"}
    assert all(
        "kernel: gates in the order reset, update, candidate, where the first layer has " in line
        for line in lines
    )


def tied(case: Case) -> np.ndarray:
    """Parameters of which several parts are alike, symmetric, zero, or of one kind of value."""
    blob, units, inputs = case.blob.copy(), case.units, case.inputs
    at, square = 4 * units * inputs, units * units
    blob[units * inputs : 2 * units * inputs] = blob[: units * inputs]  # two kernels
    for gate in range(2):
        blob[at + gate * square : at + (gate + 1) * square] = np.eye(units).ravel()
    symmetric = blob[at + 2 * square : at + 3 * square].reshape(units, units)
    symmetric += symmetric.T.copy()
    blob[at + 3 * square : at + 4 * square] = 0
    biases = blob[-8 * units * case.depth :]
    biases[: 2 * units] = 1
    biases[2 * units : 3 * units] = biases[3 * units : 4 * units]
    return blob


@pytest.mark.parametrize(
    ("form", "flags"),
    [
        ("onnx", {}),
        ("onnx", {"weights_dtype": "float16"}),
        ("savedmodel", {}),
        pytest.param("frozen", {"lowering": "portable"}, marks=pytest.mark.slow("cudnn_convert/weight_map")),
        pytest.param("tflite", {}, marks=pytest.mark.slow("cudnn_convert/weight_map")),
        pytest.param("npz", {}, marks=pytest.mark.slow("cudnn_convert/weight_map")),
    ],
)
def test_nothing_is_held_against_weights_that_are_alike(form: str, flags: dict, tmp_path: Path) -> None:
    case = Case(Mode.LSTM, layers=2, directions=2)
    with tf.Graph().as_default() as graph:
        ends = case.placeholders()
        blob = tied(case)
        once = case.op_call(*ends, params=tf.constant(blob, name="one"), name="one").output
        again = case.op_call(*ends, params=tf.constant(blob, name="other"), name="other").output
        tf.identity(once + 2 * again, "answer")
    source = tmp_path / "tied.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    given = {} if form == "npz" else {"outputs": "answer"}
    proof = cudnn_convert.convert(source, tmp_path / "out", format=form, **given, **flags).verification
    assert proof is not None
    assert (proof.passed, proof.misplaced) == (True, ())


def test_biases_may_lie_in_another_order_than_matrices(tmp_path: Path) -> None:
    """A frozen graph rearranges Keras' biases when it runs."""
    source = EXPORTS / "keras-3.15.1" / "float16" / "saved_model"
    proof = cudnn_convert.convert(source, tmp_path / "out.pb", format="frozen").verification
    assert proof is not None
    assert (proof.passed, proof.misplaced) == (True, ())


@pytest.mark.parametrize("form", ["onnx", "savedmodel"])
def test_nothing_is_held_against_a_projection_or_doubles(form: str, tmp_path: Path) -> None:
    projected = Case(Mode.LSTM, directions=2, op="CudnnRNNV3", projection=3)
    for number, case in enumerate((projected, Case(Mode.GRU, layers=2, dtype="float64"))):
        graph, _ = case.graph()
        source = tmp_path / f"{number}.pb"
        source.write_bytes(graph.SerializeToString())
        proof = cudnn_convert.convert(source, tmp_path / f"out{number}", format=form).verification
        assert proof is not None
        assert (proof.passed, proof.misplaced) == (True, ())
