"""Recurrences in an ONNX file, run by ONNX Runtime, against the float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from properties.budget import examples
from properties.strategies import Run, runs

from cudnn_convert.lower.onnx.convert import lower
from cudnn_convert.model import Mode

#: All are computed in float32. float64 and float16 are cast back, the latter with a rounding of its own;
#: bfloat16, which tf2onnx has not, comes back as float32.
BOUNDS = {"float32": 1e-5, "float64": 1e-5, "float16": 2.0**-10, "bfloat16": 1e-5}
_TYPES = {"tensor(double)": "float64", "tensor(float)": "float32", "tensor(float16)": "float16"}
#: ONNX Runtime 1.23.2, the last for Python 3.10, ends the process on a plain RNN of 0 steps; 1.31.1 does not.
OLD_RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 24)


def in_onnx_runtime(run: Run) -> list[Any]:
    graph, signature = run.graph()
    model = lower(graph, signature, [run.recurrence()]).whole()
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = run.given
    fed = {
        entry.name: given[entry.name].astype(_TYPES.get(entry.type, "int32"))
        for entry in session.get_inputs()
    }
    return list(session.run(None, fed))


def is_invertible(run: Run) -> bool:
    """Whether every h0 can be what a projection makes of some other state, without loss in float."""
    projections = [
        parts.Q.astype(np.float64) for layer in run.parts for parts in layer if parts.Q is not None
    ]
    return all(np.linalg.cond(projection) < 10 for projection in projections)


@pytest.mark.first("rnn_relu")
@pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
@given(data=st.data())
@examples(15)
def test_a_model(mode: Mode, data: st.DataObject) -> None:
    is_plain = mode in (Mode.RNN_TANH, Mode.RNN_RELU)
    # ONNX Runtime (1.31.1) ends the process on an LSTM or a GRU of 0 rows.
    least = {"rows": int(OLD_RUNTIME or not is_plain), "steps": int(OLD_RUNTIME and is_plain)}
    run = data.draw(runs(mode, list(BOUNDS), **least))
    assume(is_invertible(run))
    run.judged(in_onnx_runtime(run), BOUNDS[run.dtype])
