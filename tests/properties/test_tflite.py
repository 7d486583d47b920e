"""Recurrences in a TensorFlow Lite file, run by its interpreter, against the float64 reference."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from properties.budget import examples
from properties.strategies import Run, runs

from cudnn_convert.lower.tflite import lower_tflite
from cudnn_convert.model import Mode, Signature
from cudnn_convert.targets import tflite as write_tflite


def in_the_interpreter(run: Run) -> list[Any]:
    graph, signature = run.graph()
    inputs = signature.inputs | {"c": "c:0"}  # only an LSTM reads it, but every graph has it
    signature = Signature(inputs, signature.outputs)
    ends = [*inputs.values(), *signature.outputs.values()]
    made = lower_tflite(graph, [run.recurrence()], {}, ends=ends).graph.definition
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        assert not write_tflite.write(made, signature, path, provenance="{}", built_in=True)
        runner = tf.lite.Interpreter(str(path)).get_signature_runner("serving_default")
        found = runner(**{key: run.given[key] for key in inputs})
    return [found[key] for key in signature.outputs]


@pytest.mark.every
@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.value)
@given(data=st.data())
@examples(8)
def test_a_model(mode: Mode, data: st.DataObject) -> None:
    run = data.draw(runs(mode, ["float32"], rows=1))
    run.judged(in_the_interpreter(run), 1e-5)
