"""Flags of one format are refused with another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudnn_convert.errors import UsageError
from cudnn_convert.options import Options
from cudnn_convert.targets import flags


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"quantize": "int8", "max_error": 0.25, "data": Path("feeds.npz")},
            "--quantize: expected --format onnx or tflite, found savedmodel",
        ),
        ({"lowering": "fused", "format": "onnx"}, "--lowering fused: expected --format tflite, found onnx"),
        ({"lowering": "fused"}, "--lowering fused: expected --format tflite, found savedmodel"),
        ({"jit": True, "format": "onnx"}, "--jit: expected --format savedmodel or frozen, found onnx"),
        (
            {"cell": "lstm_block", "rename": ("a=b",)},
            "--cell, --rename: expected --format checkpoint, found savedmodel",
        ),
        ({"jit": True, "lowering": "portable"}, "--jit cannot be combined with --lowering portable"),
        (
            {"format": "npz", "outputs": ("y",), "set": ("x=1",)},
            "--outputs, --set: expected a format that keeps a graph, found npz",
        ),
        (
            {"format": "keras", "inputs": ("x",)},
            "--inputs: expected a format that keeps a graph, found keras",
        ),
    ],
)
def test_the_flags_and_what_they_need_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        flags.check_options(Options(**options))
    assert str(refused.value).startswith(message)


def test_layers_may_be_cut_at_outputs() -> None:
    """Only the source tells whether they are names of layers."""
    flags.check_options(Options(format="keras", outputs=("dense",)))
