"""TensorFlow Lite files part by part: what outputs hide, whatever random inputs draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import gated_models
from support.graphs import drawing, placeholder
from support.versions import needs

import cudnn_convert
from cudnn_convert.artifacts.tflite import pack_model, schema, unpack_model
from cudnn_convert.errors import VerificationError
from cudnn_convert.formats import CUTS_KEY


@pytest.fixture(scope="module")
def lite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source with a hidden layer, and the TensorFlow Lite file of it."""
    folder = tmp_path_factory.mktemp("lite")
    source, out = gated_models.source(folder), folder / "out.tflite"
    proof = cudnn_convert.convert(source, out, format="tflite", outputs=gated_models.OUTPUT).verification
    assert proof is not None
    assert proof.ops is not None
    assert (proof.ops.verdict, proof.ops.gates) == ("equal op by op", 3)
    assert proof.ops.regions >= 8
    return source, out


def zero_hidden(model: Any) -> None:
    """Zero the second product's kernel: the converter has it transposed."""
    graph = model.subgraphs[0]
    names = [tensor.name.decode() for tensor in graph.tensors]
    products = [op for op in graph.operators if "MatMul" in names[op.outputs[0]]]
    tensor = graph.tensors[products[-1].inputs[1]]
    buffer = model.buffers[tensor.buffer]
    assert np.any(buffer.data)
    buffer.data = np.zeros_like(buffer.data)


def turn_greater(model: Any) -> None:
    """Let `greater` be `greater or equal`."""
    for code in model.operatorCodes:
        if code.builtinCode == schema.BuiltinOperator.GREATER:
            code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.GREATER_EQUAL


@pytest.mark.slow("cudnn_convert/verification/ops", "cudnn_convert/verification/pieces")
@pytest.mark.parametrize("change", [zero_hidden, turn_greater])
def test_a_wrong_part_of_a_lite_file_is_seen(
    change: Callable[[Any], None], lite: tuple[Path, Path], tmp_path: Path
) -> None:
    source, out = lite
    model = unpack_model(out.read_bytes())
    assert [entry for entry in model.metadata if entry.name.decode() == CUTS_KEY]
    change(model)
    other = tmp_path / "other.tflite"
    other.write_bytes(pack_model(model))
    with pytest.raises(VerificationError, match="op by op: differs at "):
        cudnn_convert.verify(source, other)


RIGHT: dict[str, Callable[[Any, Any], Any]] = {
    # The converter drops the second Abs, which reads no value below zero.
    "size_of_a_size": lambda x, _: tf.reduce_max(tf.abs(tf.abs(x)), 1),
    # No run shows whether the one op that it makes of a sum and a Relu has the value of the sum.
    "sum_above_zero": lambda x, _: tf.gather(tf.nn.relu(tf.tanh(x) * x + 99), [2, 1], axis=1),
    # Of a row's values that a tanh makes equal, rounding says which is the largest.
    "place_of_a_tanh": lambda _, image: tf.argmax(tf.tanh(tf.transpose(image, [0, 3, 1, 2])), 3),
}


@needs("tensorflow", 2, 20, why="a tanh of TensorFlow Lite 2.18 makes other values equal")
def test_a_right_lite_file_is_not_refused(tmp_path: Path) -> None:
    kernel = np.random.default_rng(1).uniform(-1, 1, (6, 6)).astype(np.float32)
    with drawing() as graph:
        x, image = placeholder("x", (None, 6)), placeholder("image", (None, 7, 6, 3))
        for name, compute in RIGHT.items():
            tf.identity(compute(x @ kernel, image), name)
    source = tmp_path / "source.pb"
    source.write_bytes(graph.as_graph_def().SerializeToString())
    outputs = [f"{name}:0" for name in RIGHT]
    report = cudnn_convert.convert(source, tmp_path / "out.tflite", format="tflite", outputs=outputs)
    assert report.verification is not None
    assert report.verification.ops is not None
    assert report.verification.ops.verdict == "equal op by op"
    assert not report.verification.ops.not_looked_at
