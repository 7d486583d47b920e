"""Fused LSTM ops of a TensorFlow Lite file: their names, and cell states without a bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case

from cudnn_convert.artifacts.tflite import unpack_model
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.lower import tflite
from cudnn_convert.model import Array, Mode, Signature
from cudnn_convert.targets import fused_ops
from cudnn_convert.targets import tflite as write_tflite

v1 = tf.compat.v1
#: float32 sums of tens of products, over 30 steps of states up to 25.
TOLERANCE = 1e-4


class Growing(Case):
    """A case whose gates are open, so that cell states grow at each step."""

    @property
    def blob(self) -> Array:
        return 4 * np.abs(super().blob)


def write(case: Case, steps: int, path: Path) -> tflite.LiteGraph:
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", [steps, 1, case.inputs], "x")
        zero = tf.zeros([case.depth, 1, case.units])
        tf.identity(case.op_call(x, zero, zero).output, "y")
    signature, definition = Signature({"x": "x:0"}, {"y": "y:0"}), graph.as_graph_def()
    ends = [*signature.tensors]
    lowered = tflite.lower_tflite(definition, [case.recurrence()], {}, ends=ends, fused=True)
    write_tflite.write(lowered.graph, signature, path, provenance="{}", built_in=True, fused=lowered.fused)
    return lowered


def test_outputs_are_named_by_layer_and_direction(tmp_path: Path) -> None:
    case, file = Case(Mode.LSTM, 2, 2), tmp_path / "m.tflite"
    lowered = write(case, 3, file)
    model, expected = unpack_model(file.read_bytes()), iter(lowered.fused.items())
    assert [piece["piece"] for piece in lowered.pieces] == [
        f"rnn/layer_{layer}_{direction}" for layer in (0, 1) for direction in ("forward", "backward")
    ]
    found = {
        graph.tensors[op.outputs[0]].name.decode(): fused_ops.read_weights(
            model, graph, op, fused_ops.RECURRENT_KERNELS
        )
        for graph, op in fused_ops.list_fused_ops(model)
    }
    assert found.keys() == lowered.fused.keys()
    for name, cell in expected:
        np.testing.assert_array_equal(found[name], cell.recurrent_kernel)


def test_a_cell_without_an_op_is_refused(tmp_path: Path) -> None:
    case, file = Case(Mode.LSTM), tmp_path / "m.tflite"
    lowered = write(case, 3, file)
    (cell,) = lowered.fused.values()
    with pytest.raises(UnsupportedModelError, match="other: expected a fused op, found none"):
        fused_ops.name_fused_ops(unpack_model(file.read_bytes()), lowered.fused | {"other": cell})


def test_cell_states_have_no_bound(tmp_path: Path) -> None:
    """The converter clips them at 10."""
    case, file = Growing(Mode.LSTM), tmp_path / "m.tflite"
    write(case, 30, file)
    x = np.random.default_rng(5).uniform(0.5, 1, (30, 1, case.inputs)).astype(np.float32)
    zero = np.zeros([1, 1, case.units])
    y, _, c = case.expected({"x": x, "h": zero, "c": zero})
    assert np.abs(c).max() > 20
    interpreter = tf.lite.Interpreter(str(file))
    interpreter.allocate_tensors()
    (taken,), (given,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(taken["index"], x)
    interpreter.invoke()
    ((_, op),) = fused_ops.list_fused_ops(unpack_model(file.read_bytes()))
    np.testing.assert_allclose(interpreter.get_tensor(int(op.inputs[fused_ops.CELL])), c[0], TOLERANCE)
    np.testing.assert_allclose(interpreter.get_tensor(given["index"]), y, TOLERANCE, TOLERANCE)
