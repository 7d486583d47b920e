"""Names that mean other tensors, sizes that are compared, and inputs that may be ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import numpy_helper
from support import gated_models
from support.graphs import drawing

import cudnn_convert
from cudnn_convert.errors import VerificationError
from cudnn_convert.formats import CUTS_KEY
from cudnn_convert.lower.onnx import convert, exact_ops
from cudnn_convert.verification.ops import ask


def turned_behind_an_activation(folder: Path) -> Path:
    """A graph of which tf2onnx moves the Transpose behind Relu, whose value gets the Transpose's name.

    A square has nothing that Relu would change, so that on a run the two names have one value.
    """
    with drawing() as graph:
        images = tf.compat.v1.placeholder(tf.float32, [None, 4, 6, 5], "x")
        turned = tf.transpose(images * images, [0, 2, 3, 1], name="turned")
        tf.cumsum(tf.nn.relu(turned), 1, name="y")
    source = folder / "turned.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    return source


def test_a_name_that_means_another_tensor_is_given_up(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    report = cudnn_convert.convert(
        turned_behind_an_activation(tmp_path), out, format="onnx", outputs="y:0", force_convert=True
    )
    assert report.verification is not None
    assert report.verification.ops is not None
    assert (report.verification.ops.verdict, report.verification.ops.regions) == ("equal op by op", 2)
    (cuts,) = (entry.value for entry in onnx.load(str(out)).metadata_props if entry.key == CUTS_KEY)
    assert "turned:0" not in cuts


def test_what_is_wrong_stays_so_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer bounds what it rounds: no run has such values, and no part without the name is right."""
    with drawing() as graph:
        rounded = tf.floor(tf.compat.v1.placeholder(tf.float32, [None, 5], "x"), name="rounded")
        tf.add(tf.identity(rounded * 2.0, name="twice"), 0.5, name="y")
    source, out = tmp_path / "model.pb", tmp_path / "out.onnx"
    source.write_bytes(graph.as_graph_def().SerializeToString())

    def round_bounded(graph: Any, node: Any, _name: str, _arguments: list[str]) -> None:
        ops = exact_ops.Replacement(graph, node)
        ops.finish(ops("Floor", [ops("Min", [ops.inputs[0], ops.constant(30, np.float32)])]))

    monkeypatch.setattr(convert, "_EXACT", {**convert._EXACT, "Floor": round_bounded})
    with pytest.raises(VerificationError, match=r"op by op: differs at \S+ \(Floor"):
        cudnn_convert.convert(source, out, format="onnx", outputs="y:0", force_convert=True)
    assert not out.exists()


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/verification/ops")
def test_a_size_that_is_compared_is_reached(tmp_path: Path) -> None:
    """`where(steps * rows > 40, hidden(y), seen(y))`: ordinary inputs have fewer, or many more."""
    import numpy as np
    import onnx
    import tensorflow as tf
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


@pytest.mark.parametrize(
    ("value", "are_ids"),
    [
        pytest.param(np.int32([[3, 0]]), True, id="integers"),
        pytest.param(np.float32([[3, 0]]), True, id="whole-floats"),
        pytest.param(np.float32([[3, 0.5]]), False, id="floats"),
        pytest.param(np.int32([3, 0]), False, id="one-axis"),
        pytest.param(np.array([[b"a", b"b"]], object), False, id="text"),
        pytest.param(np.array([[True, False]]), False, id="booleans"),
    ],
)
def test_which_inputs_may_be_ids(value: np.ndarray, are_ids: bool) -> None:
    assert ask._are_ids(value) == are_ids
