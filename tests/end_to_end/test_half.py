"""Weights written as half, or read in 8 bits: networks keep their answers; a wrong one is still seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from onnx import numpy_helper
from support.command_line import command
from support.samples import ROOT, fixture
from support.tiers import tier

import cudnn_convert

MODELS = {
    "crf_tagger": "model.ckpt",
    "gru_speech": "model.ckpt",
    "ocr_crnn": "model.ckpt",
    "char_lm": "model.h5",
}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=tier(first=name == "gru_speech")) for name in MODELS]
)
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A source, and its ONNX file with weights of half."""
    source = ROOT / "models" / request.param / MODELS[request.param]
    out = tmp_path_factory.mktemp(request.param) / "half.onnx"
    assert command(source, out, "--format", "onnx", "--weights-dtype", "float16", "--quiet").code == 0
    return source, out


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/verification/ops")
def test_the_file_is_half_as_large(converted: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = converted
    cudnn_convert.convert(source, tmp_path / "single.onnx", format="onnx", verify=False)
    single = onnx.load(str(tmp_path / "single.onnx"))
    sizes = [tensor.ByteSize() for tensor in single.graph.initializer]
    saved = (tmp_path / "single.onnx").stat().st_size - out.stat().st_size
    assert 0.4 * sum(sizes) < saved < 0.5 * sum(sizes)


@pytest.mark.slow("cudnn_convert/lower/onnx", "cudnn_convert/verification/ops")
def test_the_proof_is_that_of_half(converted: tuple[Path, Path]) -> None:
    """`verify` knows from the file itself that its weights are rounded; no tolerance has to be given."""
    found = cudnn_convert.verify(*converted)
    floats = [output for output in found.outputs if output.atol]
    assert found.passed
    assert {output.reason.partition(",")[0] for output in floats} == {"float16"}
    assert all(output.atol >= 2.0**-10 for output in floats)
    assert any(output.worst > 1e-5 for output in floats)  # more than single precision alone would err


def test_a_transposed_recurrent_kernel_is_seen(converted: tuple[Path, Path], tmp_path: Path) -> None:
    source, out = converted
    model = onnx.load(str(out))
    stored = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Cast"}
    recurrent = next(node for node in model.graph.node if node.op_type in ("LSTM", "GRU"))
    tensor = next(one for one in model.graph.initializer if one.name == stored[recurrent.input[2]])
    values = numpy_helper.to_array(tensor)
    units = values.shape[2]
    turned = values.reshape(values.shape[0], -1, units, units).swapaxes(2, 3).reshape(values.shape)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(turned), tensor.name))
    onnx.save(model, str(tmp_path / "turned.onnx"))
    assert command("verify", source, tmp_path / "turned.onnx", "--quiet").code == 3


def test_other_formats_have_no_such_weights(tmp_path: Path) -> None:
    source = ROOT / "models" / "gru_speech" / "model.ckpt"
    ended = command(source, tmp_path / "out", "--weights-dtype", "float16")
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == "cudnn-convert: --weights-dtype: expected --format onnx, found savedmodel\n"


def test_the_answers_are_floats_of_single(converted: tuple[Path, Path]) -> None:
    session = onnxruntime.InferenceSession(str(converted[1]), providers=["CPUExecutionProvider"])
    kinds = {value.type for value in (*session.get_inputs(), *session.get_outputs())}
    assert "tensor(float16)" not in kinds


@pytest.mark.slow("cudnn_convert/graph/passes", "cudnn_convert/verification/ops")
@pytest.mark.parametrize("form", ["onnx", pytest.param("tflite", marks=tier(first=False))])
def test_weights_that_the_source_has_in_8_bits(tmp_path: Path, form: str) -> None:
    """Each matrix of a frozen graph as `quantize_weights` of TensorFlow 1 stores it, the recurrence's too."""
    source = fixture("1.15.5-frozen_binary")
    graph = tf.compat.v1.GraphDef.FromString(source.prefix.read_bytes())
    nodes = []
    for node in graph.node:
        value = tf.make_ndarray(node.attr["value"].tensor) if node.op == "Const" else np.array(0)
        nodes += _quantize(node, value) if value.dtype == np.float32 and value.size >= 16 else [node]
    changed = tf.compat.v1.GraphDef(node=nodes, versions=graph.versions)
    assert sum(node.op == "Dequantize" for node in nodes) == 2
    (tmp_path / "small.pb").write_bytes(changed.SerializeToString())
    report = cudnn_convert.convert(tmp_path / "small.pb", tmp_path / "out", format=form)
    assert report.verification is not None
    assert report.verification.passed
    (weights,) = cudnn_convert.load(tmp_path / "small.pb").recurrences
    (exact,) = cudnn_convert.load(source.prefix).recurrences
    for name, value in exact.weights.items():
        off = np.abs(weights.weights[name] - value)
        # Half a step of [-0.5, 0.5] for each: TensorFlow rounds the lower end to whole steps.
        assert 0 < off.max() <= 1.01 / 255


def _quantize(node: Any, value: np.ndarray) -> list[Any]:
    low, high = value.min(), value.max()
    steps = np.round((value - low) * (255 / (high - low))).astype(np.uint8)
    with tf.Graph().as_default() as graph:
        stored = tf.constant(steps.view(tf.quint8.as_numpy_dtype), name=f"{node.name}_quantized")
        tf.raw_ops.Dequantize(input=stored, min_range=low, max_range=high, mode="MIN_FIRST", name=node.name)
    return [*graph.as_graph_def().node]
