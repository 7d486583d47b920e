"""Artifacts without the source's names, one part of which is wrong and hidden by what the outputs show."""

from __future__ import annotations

import pytest
from support.samples import ROOT

import cudnn_convert
from cudnn_convert.errors import VerificationError

HIDDEN = ROOT / "tests" / "data" / "hidden"
#: Wrong artifacts of each source, and what says so.
WRONG = [
    ("columns_exchanged", "corrupt_columns.onnx", "op by op: differs at "),
    ("columns_exchanged", "corrupt_columns.pb", "op by op: differs at h1_kernel:0"),
    ("visible_beside_hidden", "corrupt_zero_kernel.onnx", "op by op: differs at "),
    ("zero_kernel", "corrupt_zero_kernel.onnx", "op by op: differs at "),
    ("tiny_recurrent_kernel_transposed", "corrupt.onnx", "by itself: layer 0 forward: "),
]


@pytest.mark.first("tiny_recurrent_kernel_transposed-corrupt.onnx-by itself: layer 0 forward: ")
@pytest.mark.parametrize(("name", "artifact", "reason"), WRONG)
def test_a_hidden_part_that_is_wrong_is_refused(name: str, artifact: str, reason: str) -> None:
    with pytest.raises(VerificationError, match=reason):
        cudnn_convert.verify(HIDDEN / name / "source.pb", HIDDEN / name / artifact)


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize("name", ["visible_beside_hidden", "zero_kernel"])
def test_the_same_artifact_without_a_fault_is_equal(name: str) -> None:
    proof = cudnn_convert.verify(HIDDEN / name / "source.pb", HIDDEN / name / "intact.onnx")
    assert proof.passed
    assert proof.ops is not None
    assert proof.ops.verdict == "equal op by op"
