"""Models whose outputs hide their recurrence: converted they are proven, with other weights refused."""

from __future__ import annotations

from pathlib import Path

import hiding
import numpy as np
import pytest

import cudnn_convert
from cudnn_convert.errors import UnsupportedModelError, VerificationError


def mirrored(value: np.ndarray) -> np.ndarray:
    """Other weights of the same shape."""
    return value[..., ::-1] * -3 + 1


@pytest.mark.parametrize("name", hiding.HIDING)
def test_other_weights_are_refused_whatever_the_outputs_show(name: str, tmp_path: Path) -> None:
    source, out = hiding.source(name, tmp_path), tmp_path / "out.onnx"
    proof = cudnn_convert.convert(source, out, format="onnx", outputs="answer").verification
    assert proof is not None
    (found,) = proof.recurrences
    assert (found.asked, found.passed, found.unseen) == (True, True, ())
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.products) == (True, True, 1)
    right = out.read_bytes()
    assert hiding.corrupt_dense(out, mirrored) == 1
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert "around the recurrences: MatMul " in str(caught.value)
    out.write_bytes(right)
    hiding.corrupt_onnx(out, mirrored, 2)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    result = caught.value.report
    assert [one.passed for one in result.recurrences] == [False]
    assert [one.passed for one in result.outputs] == [True]  # which is what hides it


@pytest.mark.parametrize("name", ["masked", "chaotic"])
def test_other_weights_of_a_graph_are_refused_too(name: str, tmp_path: Path) -> None:
    source, out = hiding.source(name, tmp_path), tmp_path / "out.pb"
    cudnn_convert.convert(source, out, format="frozen", outputs="answer")
    hiding.corrupt_frozen(out, mirrored)
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out, inputs="x", outputs="answer")
    assert "recurrence rnn, by itself: layer 0 " in str(caught.value)


@pytest.mark.parametrize("name", ["masked", "chaotic"])
def test_other_weights_around_the_recurrence_of_a_graph_are_refused(name: str, tmp_path: Path) -> None:
    source, out = hiding.source(name, tmp_path), tmp_path / "out.pb"
    proof = cudnn_convert.convert(source, out, format="frozen", outputs="answer").verification
    assert proof is not None
    assert proof.glue is not None
    assert (proof.glue.asked, proof.glue.passed, proof.glue.products) == (True, True, 1)
    hiding.change_constants(out, mirrored, "dense/kernel")
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out, inputs="x", outputs="answer")
    assert "around the recurrences: MatMul Tensordot/MatMul: expected values of a tensor" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        name if name == "masked" else pytest.param(name, marks=pytest.mark.slow("cudnn_convert/verification"))
        for name in hiding.HIDING
        if name != "infinite"  # which TensorFlow Lite makes the largest number of: see below
    ],
)
def test_other_weights_of_a_tflite_file_are_refused_too(name: str, tmp_path: Path) -> None:
    source, out = hiding.source(name, tmp_path), tmp_path / "out.tflite"
    proof = cudnn_convert.convert(source, out, format="tflite", outputs="answer").verification
    assert proof is not None
    (found,) = proof.recurrences
    assert (found.asked, found.passed, found.unseen) == (True, True, ())
    assert hiding.corrupt_tflite(out, mirrored) == 4
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.verify(source, out)
    assert "recurrence rnn, by itself: layer 0 " in str(caught.value)
    assert [one.passed for one in caught.value.report.outputs] == [True]  # which is what hides it


@pytest.mark.slow("cudnn_convert/verification")
def test_infinity_that_tflite_makes_a_number_of_is_a_difference(tmp_path: Path) -> None:
    source, out = hiding.source("infinite", tmp_path), tmp_path / "out.tflite"
    with pytest.raises(VerificationError) as caught:
        cudnn_convert.convert(source, out, format="tflite", outputs="answer")
    assert "output answer: NaN or Inf at other places" in str(caught.value)


def test_what_cannot_be_asked_is_not_proven_by_outputs_that_hide_it(tmp_path: Path) -> None:
    source, out = hiding.source("masked", tmp_path), tmp_path / "out.tflite"
    cudnn_convert.convert(source, out, format="tflite", outputs="answer", verify=False)
    hiding.forget_tflite_loops(out)
    with pytest.raises(UnsupportedModelError) as caught:
        cudnn_convert.verify(source, out)
    assert "recurrence rnn: not proven: not asked by itself: " in str(caught.value)
    assert "--data, or convert with --no-verify" in str(caught.value)
