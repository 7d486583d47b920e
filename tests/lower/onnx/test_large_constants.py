"""Constants that are set aside while tf2onnx runs: tables and kernels of dense layers."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support.keras_samples import keras_fixture

import cudnn_convert
from cudnn_convert.lower.onnx import large_constants


def test_constants_that_tf2onnx_does_not_see_are_initializers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(large_constants, "_LARGE", 64)
    set_aside, names = large_constants.set_aside, list[str]()

    def listing(graph: object) -> dict[str, onnx.TensorProto]:
        constants = set_aside(graph)
        names.extend(constants)
        return constants

    monkeypatch.setattr(large_constants, "set_aside", listing)
    out = tmp_path / "out.onnx"
    report = cudnn_convert.convert(keras_fixture("keras-2.2.4-text_classifier").path, out, format="onnx")
    assert report.verification is not None
    assert report.verification.ops is not None
    assert report.verification.ops.passed
    assert names == ["embedding/embeddings:0", "label/kernel:0"]
    graph = onnx.load(out).graph
    assert [value.name for value in graph.input] == [*report.inputs]
    assert len(graph.initializer) >= len(names)
