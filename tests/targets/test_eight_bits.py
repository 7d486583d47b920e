"""Fused LSTMs in 8 bits, run by TensorFlow Lite's interpreter. The float64 reference judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.cases import Case
from support.tiers import tier

from cudnn_convert.artifacts.tflite import unpack_model
from cudnn_convert.lower import tflite
from cudnn_convert.model import Array, Mode, Signature
from cudnn_convert.targets import eight_bits, fused_ops
from cudnn_convert.targets import tflite as write_tflite

v1 = tf.compat.v1
STEPS, EXAMPLES = 9, 24


class Loud(Case):
    """A case of weights several times as large, which reach beyond the last step's range."""

    @property
    def blob(self) -> Array:
        return 4 * super().blob


def write(case: Case, rows: Array, path: Path) -> None:
    """Write the file of a case, calibrated on `rows` [examples, time, 1, width]."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder("float32", rows.shape[1:], "x")
        state = tf.zeros([case.depth, 1, case.units])
        tf.identity(case.op_call(x, state, state).output, "y")
    signature = Signature({"x": "x:0"}, {"y": "y:0"})
    lowered = tflite.lower_tflite(
        graph.as_graph_def(), [case.recurrence()], {}, ends=[*signature.tensors], fused=True
    )
    examples = [{"x": row} for row in rows]
    write_tflite.write(
        lowered.graph, signature, path, provenance="{}", built_in=True, fused=lowered.fused, examples=examples
    )


def measure_error(case: Case, rows: Array, path: Path) -> float:
    """Return the largest difference from the reference, each example after a reset."""
    interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    (taken,), (given,) = interpreter.get_input_details(), interpreter.get_output_details()
    errors = []
    for row in rows:
        interpreter.reset_all_variables()
        interpreter.set_tensor(taken["index"], row)
        interpreter.invoke()
        zero = np.zeros([case.depth, 1, case.units])
        expected = case.expected({"x": row, "h": zero, "c": zero})[0]
        errors.append(np.abs(interpreter.get_tensor(given["index"]) - expected).max())
    return float(max(errors))


def list_cells(path: Path) -> list[float]:
    """List the largest cell state that each fused op can hold."""
    model = unpack_model(path.read_bytes())
    return [
        float(2**15 * graph.tensors[op.inputs[19]].quantization.scale[0])
        for graph, op in fused_ops.list_fused_ops(model)
    ]


@pytest.mark.parametrize(
    ("layers", "directions"),
    [pytest.param(*row, marks=tier(first=row == (2, 2))) for row in [(1, 2), (1, 1), (2, 2), (3, 1)]],
)
def test_both_directions_and_all_steps_keep_their_scales(
    tmp_path: Path, layers: int, directions: int
) -> None:
    """With the converter's own scales the errors are 0.13 of (1, 2), 0.69 of (2, 2) and 0.11 of (3, 1)."""
    case = Loud(Mode.LSTM, layers, directions)
    rows = np.random.default_rng(7).normal(size=(24, 9, 1, case.inputs)).astype(np.float32)
    write(case, rows, tmp_path / "m.tflite")
    assert measure_error(case, rows, tmp_path / "m.tflite") < 0.06


def test_cell_states_that_grow_beyond_10_and_fall_again(tmp_path: Path) -> None:
    """25 steps of one input, then its negative: the last cell states are below 8."""
    case, random = Loud(Mode.LSTM), np.random.default_rng(7)
    row = random.uniform(1, 3, (24, 1, 1, case.inputs)) * random.choice([-1, 1], (24, 1, 1, case.inputs))
    rows = np.repeat(row, 40, 1).astype(np.float32)
    rows[:, 25:] *= -1
    write(case, rows, tmp_path / "m.tflite")
    assert list_cells(tmp_path / "m.tflite") == [32]


def test_the_largest_cell_state_is_that_of_any_step() -> None:
    """The final cell states of each beginning of a sequence are those of each step."""
    case, random = Loud(Mode.LSTM), np.random.default_rng(3)
    x = random.normal(size=(STEPS, 5, case.inputs)).astype(np.float32)
    x[-3:] = 0  # gates half open, so that the largest state is of an earlier step
    zero = np.zeros([1, 5, case.units])
    cells = [case.expected({"x": x[:steps], "h": zero, "c": zero})[2] for steps in range(1, STEPS + 1)]
    expected = np.abs(cells).max()
    assert np.abs(cells[-1]).max() < 0.95 * expected
    (cell,) = case.recurrence().cells[0]
    parts = (cell.kernel, cell.recurrent_kernel, cell.bias + cell.recurrent_bias)
    np.testing.assert_allclose(eight_bits._find_largest_cell(x, *parts), expected, 1e-5)
