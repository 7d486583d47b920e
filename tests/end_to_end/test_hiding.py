"""Models whose outputs hide their recurrence: converted they are proven, with other weights refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import hidden_recurrences

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, VerificationError

#: What is changed in an artifact of each format that holds a graph.
GRAPHS = {"frozen": "frozen_graph.pb", "savedmodel": "saved_model.pb", "checkpoint": "model.ckpt.meta"}
#: The case in `make test`; layers have one in `REPEATED`.
FAST = ("chaotic-savedmodel",)
#: An output that is small, one that is masked, one behind a gate, and one that is no number.
WITNESSES = ("tiny", "masked", "behind_a_rare_value", "not_a_number")
GLUE = "cudnn_convert/verification/pieces/", "tests/support/hidden_recurrences.py"


def mirrored(value: np.ndarray) -> np.ndarray:
    """Other weights of the same shape."""
    return value[..., ::-1] * -3 + 1


@pytest.mark.first("masked")
@pytest.mark.parametrize(
    "name",
    [
        name
        if name in WITNESSES
        else pytest.param(name, marks=pytest.mark.slow("cudnn_convert/verification"))
        for name in hidden_recurrences.HIDING
    ],
)
def test_other_weights_are_refused_whatever_the_outputs_show(name: str, tmp_path: Path) -> None:
    source, out = hidden_recurrences.source(name, tmp_path), tmp_path / "out.onnx"
    proof = cudnn_convert.convert(source, out, format="onnx", outputs="answer").verification
    assert proof is not None
    (found,) = proof.recurrences
    assert (found.asked, found.passed, found.unseen) == (True, True, ())
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed) == (True, True)
    right = out.read_bytes()
    assert hidden_recurrences.corrupt_dense(out, mirrored) == 1
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert "op by op: differs at " in str(caught.value)
    out.write_bytes(right)
    hidden_recurrences.corrupt_onnx(out, mirrored, 2)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    result = caught.value.report
    assert [one.passed for one in result.recurrences] == [False]
    assert [one.passed for one in result.outputs] == [True]  # which is what hides it


@pytest.mark.slow(*GLUE)
@pytest.mark.parametrize("name", ["masked", "chaotic"])
def test_other_weights_of_a_graph_are_refused_too(name: str, tmp_path: Path) -> None:
    source, out = hidden_recurrences.source(name, tmp_path), tmp_path / "out.pb"
    cudnn_convert.convert(source, out, format="frozen", outputs="answer")
    hidden_recurrences.corrupt_frozen(out, mirrored)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out, inputs="x", outputs="answer")
    assert "recurrence rnn, by itself: layer 0 " in str(caught.value)


def cases(pairs: Iterable[tuple[str, str]]) -> Iterator[Any]:
    for name, form in pairs:
        marks = () if f"{name}-{form}" in FAST else pytest.mark.slow(*GLUE)
        yield pytest.param(name, form, marks=marks, id=f"{name}-{form}")


def require_refused(source: Path, out: Path, **flags: Any) -> None:
    """The artifact is refused for an op around its recurrence alone."""
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out, **flags)
    result = caught.value.report
    assert {one.passed for one in (*result.recurrences, *result.outputs)} == {True}
    assert result.ops is not None
    assert result.ops.difference is not None


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize(("name", "form"), cases(product(hidden_recurrences.HIDING, [*GRAPHS, "repaired"])))
def test_other_weights_around_the_recurrence_of_a_graph_are_refused(
    name: str, form: str, tmp_path: Path
) -> None:
    is_repaired, out = form == "repaired", tmp_path / "out"
    source = (
        hidden_recurrences.saved(name, tmp_path) if is_repaired else hidden_recurrences.source(name, tmp_path)
    )
    flags = {} if is_repaired else {"format": form, "outputs": "answer"}
    proof = cudnn_convert.convert(source, out, **flags).verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed) == (True, True), proof.glue
    hidden_recurrences.change_constants(out / GRAPHS.get(form, "saved_model.pb"), mirrored, "dense/kernel")
    require_refused(source, out)


@pytest.mark.parametrize(("name", "form"), cases(product(hidden_recurrences.KERAS_HIDING, ["keras", "h5"])))
def test_other_weights_around_the_recurrence_of_layers_are_refused(
    name: str, form: str, tmp_path: Path
) -> None:
    source, out = hidden_recurrences.keras_source(name, tmp_path), tmp_path / f"out.{form}"
    proof = cudnn_convert.convert(source, out, format=form).verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed) == (True, True), proof.glue
    hidden_recurrences.change_hdf5(out, mirrored, "dense")
    require_refused(source, out)


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
def test_a_layer_that_gives_no_value_of_the_source_is_told(tmp_path: Path) -> None:
    """A file that does not say what its layers gave, as one of another tool."""
    source, out = hidden_recurrences.keras_source("masked", tmp_path), tmp_path / "out.h5"
    cudnn_convert.convert(source, out, format="h5", verify=False)
    hidden_recurrences.change_hdf5(out, mirrored, "dense")
    found = cudnn_convert.verify(source, out).ops
    assert found is not None
    assert [line.partition(":")[0] for line in found.not_looked_at] == ["dense"]


def nudged(value: np.ndarray) -> np.ndarray:
    """One weight of the last gate is off by a thousandth of that gate's Frobenius norm."""
    made = value.copy()
    made[1, -2] += 1e-3 * np.linalg.norm(value[:, -len(value) :])
    return made


#: A model of layers by its format, the paths of a recurrent kernel and a dense one, and what is seen of that.
LOST = "op by op: differs at "
OFF = "around the recurrences: input of model/parts/part/reading: off by "
REPEATED = {
    "stateful-keras": (hidden_recurrences.keras_stateful, "/cell/vars/1", "/dense/", LOST),
    "stateful-h5": (hidden_recurrences.keras_stateful, "/recurrent_kernel", "/dense/", LOST),
    "distributed-keras": (hidden_recurrences.keras_distributed, "/cell/vars/1", "/layer/layers/dense/", OFF),
    "distributed-h5": (hidden_recurrences.keras_distributed, "/recurrent_kernel", "/before/", OFF),
}


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize(
    "case",
    [
        one if one == "distributed-h5" else pytest.param(one, marks=pytest.mark.slow(*GLUE))
        for one in REPEATED
    ],
)
def test_layers_that_keep_state_or_read_parts_are_asked_and_so_is_what_is_around_them(
    case: str, tmp_path: Path
) -> None:
    make, recurrent, dense, what = REPEATED[case]
    form = case.partition("-")[2]
    source, out = make("masked", tmp_path), tmp_path / f"out.{form}"
    proof = cudnn_convert.convert(source, out, format=form).verification
    assert proof is not None
    assert [(one.asked, one.unseen) for one in proof.recurrences] == [(True, ())]
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.message) == (True, True, ""), proof.glue
    right = out.read_bytes()
    assert hidden_recurrences.change_hdf5(out, mirrored, dense) == 1
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert what in str(caught.value)
    out.write_bytes(right)
    assert hidden_recurrences.change_hdf5(out, nudged, recurrent) == 1
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert [one.passed for one in caught.value.report.recurrences] == [False]
    assert {one.passed for one in caught.value.report.outputs} == {True}


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize("form", ["h5", pytest.param("keras", marks=pytest.mark.slow(*GLUE))])
def test_a_layer_that_forgets_its_state_behind_a_shut_gate_is_seen(form: str, tmp_path: Path) -> None:
    source, out = hidden_recurrences.keras_stateful("masked", tmp_path), tmp_path / f"out.{form}"
    cudnn_convert.convert(source, out, format=form, verify=False)
    hidden_recurrences.change_config(out, '"stateful": true', '"stateful": false')
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert "around the recurrences: call 2: initial c of model/keeping: off by " in str(caught.value)


@pytest.mark.slow("cudnn_convert/verification")
@pytest.mark.parametrize("name", hidden_recurrences.HIDING)
def test_other_weights_of_a_tflite_file_are_refused_too(name: str, tmp_path: Path) -> None:
    source, out = hidden_recurrences.source(name, tmp_path), tmp_path / "out.tflite"
    proof = cudnn_convert.convert(source, out, format="tflite", outputs="answer").verification
    assert proof is not None
    (found,) = proof.recurrences
    assert (found.asked, found.passed, found.unseen) == (True, True, ())
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed) == (True, True), proof.glue
    right = out.read_bytes()
    assert hidden_recurrences.corrupt_tflite_dense(out, mirrored) == 1
    require_refused(source, out)
    out.write_bytes(right)
    assert hidden_recurrences.corrupt_tflite(out, mirrored) == 4
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert "recurrence rnn, by itself: layer 0 " in str(caught.value)
    assert [one.passed for one in caught.value.report.outputs] == [True]  # which is what hides it


def test_what_cannot_be_asked_is_not_proven_by_outputs_that_hide_it(tmp_path: Path) -> None:
    source, out = hidden_recurrences.source("masked", tmp_path), tmp_path / "out.tflite"
    cudnn_convert.convert(source, out, format="tflite", outputs="answer", verify=False)
    hidden_recurrences.forget_tflite_loops(out)
    with pytest.raises(UnsupportedModelError) as caught:
        cudnn_convert.verify(source, out)
    assert "recurrence rnn: not proven: not asked by itself: " in str(caught.value)
    assert "--data, or convert with --no-verify" in str(caught.value)
