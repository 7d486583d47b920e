"""Artifacts without the source's names, one part of which is wrong and hidden by what the outputs show."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(("name", "artifact", "reason"), WRONG)
def test_a_hidden_part_that_is_wrong_is_refused(name: str, artifact: str, reason: str) -> None:
    with pytest.raises(VerificationError, match=reason):
        cudnn_convert.verify(HIDDEN / name / "source.pb", HIDDEN / name / artifact)


@pytest.mark.parametrize("name", ["visible_beside_hidden", "zero_kernel"])
def test_the_same_artifact_without_a_fault_is_equal(name: str) -> None:
    proof = cudnn_convert.verify(HIDDEN / name / "source.pb", HIDDEN / name / "intact.onnx")
    assert proof.passed
    assert proof.ops is not None
    assert proof.ops.verdict == "equal op by op"


def test_a_size_that_is_compared_is_reached(tmp_path: Path) -> None:
    """`where(steps * rows > 40, hidden(y), seen(y))`: ordinary inputs have fewer, or many more."""
    import numpy as np
    import onnx
    import tensorflow as tf
    from onnx import numpy_helper
    from support import gated_models
    from support.graphs import drawing

    rng = np.random.default_rng(3)
    with drawing() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, 4], "x")
        y = gated_models.CASE.op_call(
            x, tf.zeros([1, tf.shape(x)[1], 5]), tf.constant(0.0), name="rnn"
        ).output
        kernels = [tf.constant(rng.uniform(-0.5, 0.5, (5, 3)).astype(np.float32)) for _ in range(2)]
        seen, hidden = (tf.tensordot(y, kernel, 1) for kernel in kernels)
        is_long = tf.greater(tf.shape(x)[0] * tf.shape(x)[1], 40, name="is_long")
        tf.where(is_long, hidden, seen, name="answer")
    source, out = tmp_path / "source.pb", tmp_path / "out.onnx"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    proof = cudnn_convert.convert(source, out, format="onnx", outputs="answer").verification
    assert proof is not None
    assert proof.ops is not None
    assert (proof.ops.verdict, proof.ops.not_reached) == ("equal op by op", ())
    model = onnx.load(str(out))
    limit = next(
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type in (6, 7) and numpy_helper.to_array(tensor).ravel().tolist() == [40]
    )
    right = numpy_helper.to_array(limit)
    for step in (1, -1):
        limit.CopyFrom(numpy_helper.from_array(right + right.dtype.type(step), limit.name))
        onnx.save(model, str(out))
        with pytest.raises(VerificationError, match="op by op: differs at "):
            cudnn_convert.verify(source, out)
