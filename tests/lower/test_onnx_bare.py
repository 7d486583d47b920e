"""A recurrence that is a whole model, in every form that its signature can take, in ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from cases import Case, swapped

from cudnn_convert.errors import UsageError
from cudnn_convert.lower.onnx.finish import lower
from cudnn_convert.model import Array, Cell, Mode
from cudnn_convert.recurrences.graphless import Single
from cudnn_convert.weights.lazy import Layers

MODES = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)


def single(case: Case, *, batch_major: bool = False, states: bool = False) -> Single:
    return Single("encoder", case.recurrence("encoder/CudnnRNN"), batch_major, states)


def fed(one: Single, feeds: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """`(what the model takes, what the reference takes)`; states are zeros where none are taken."""
    zeros = {} if one.states else {key: np.zeros_like(feeds[key]) for key in ("h", "c")}
    feeds = {**feeds, **zeros}
    named = {"initial_h": "h", "initial_c": "c", "sequence_lengths": "lengths"}
    given = {key: feeds[named[key]] for key in one.inputs if key in named}
    return {"inputs": swapped(feeds["x"]) if one.batch_major else feeds["x"]} | given, feeds


def agrees(case: Case, one: Single, *, opset: int = 17) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = lower(one, opset=opset).whole().SerializeToString()
    run = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    assert [entry.name for entry in run.get_inputs()] == [*one.inputs]
    assert [entry.name for entry in run.get_outputs()] == [*one.outputs]
    bound = max(1e-5, float(np.finfo(case.dtype).eps))
    for steps, batch in ((7, 3), (1, 2), (4, 5)):
        given, feeds = fed(one, case.feeds(steps, batch))
        y, *rest = run.run(None, given)
        found = [swapped(y) if one.batch_major else y, *rest]
        for got, want in zip(found, case.expected(feeds), strict=True):
            assert got.dtype == case.dtype
            np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


@MODES
@pytest.mark.parametrize("directions", [1, 2])
def test_every_signature_of_every_mode(mode: Mode, directions: int) -> None:
    for op, batch_major, states in product(("CudnnRNN", "CudnnRNNV3"), (False, True), (False, True)):
        case = Case(mode, 2, directions, op)
        agrees(case, single(case, batch_major=batch_major, states=states))


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_taken_and_given(dtype: str) -> None:
    case = Case(Mode.LSTM, 2, 2, "CudnnRNNV3", dtype=dtype)
    agrees(case, single(case, batch_major=True, states=True))


@pytest.mark.parametrize("opset", [11, 12, 13, 18])
@MODES
def test_other_opsets(mode: Mode, opset: int) -> None:
    """The axes of Squeeze and Unsqueeze became an input with opset 13."""
    case = Case(mode, 1, 1, "CudnnRNNV3")
    agrees(case, single(case, states=True), opset=opset)


def test_another_opset_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--opset: expected 11 to 18, found 19$"):
        lower(single(Case(Mode.LSTM)), opset=19)


@MODES
def test_a_row_of_length_0_gives_the_initial_state(mode: Mode) -> None:
    """ONNX Runtime alone would give zeros."""
    case = Case(mode, 1, 1, "CudnnRNNV3")
    one = single(case, states=True)
    run = onnxruntime.InferenceSession(
        lower(one).whole().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    given, feeds = fed(one, case.feeds())
    given["sequence_lengths"] = np.zeros_like(given["sequence_lengths"])
    y, h, *_ = run.run(None, given)
    assert not y.any()
    np.testing.assert_array_equal(h, feeds["h"])


def test_a_run_of_no_steps_gives_the_initial_states() -> None:
    """ONNX Runtime alone would give zeros."""
    case = Case(Mode.LSTM, 2, 2)
    one = single(case, states=True)
    run = onnxruntime.InferenceSession(
        lower(one).whole().SerializeToString(), providers=["CPUExecutionProvider"]
    )
    given, feeds = fed(one, case.feeds(0, 2))
    y, h, c = run.run(None, given)
    assert y.shape == (0, 2, 2 * case.units)
    np.testing.assert_array_equal(h, feeds["h"])
    np.testing.assert_array_equal(c, feeds["c"])


def test_nothing_is_in_the_graph_that_does_nothing() -> None:
    case = Case(Mode.LSTM, 2, 1)
    plain, full = (lower(single(case, states=states)).whole().graph for states in (False, True))
    guard = {"Shape": 1, "Equal": 1, "Where": 2}  # against a run of no steps
    assert Counter(node.op_type for node in plain.node) == {"LSTM": 2, "Squeeze": 2, "Concat": 2, **guard}
    assert "Transpose" not in {node.op_type for node in full.node}
    widths = [
        [size.dim_param or size.dim_value for size in one.type.tensor_type.shape.dim] for one in full.input
    ]
    assert widths == [["time", "batch", case.inputs], *[[2, "batch", case.units]] * 2]


@MODES
def test_large_weights_are_read_when_they_are_written_and_not_before(mode: Mode) -> None:
    case, asked = Case(mode, 2, 2), []
    cells = case.recurrence().cells

    def decode(layer: int) -> tuple[Cell, ...]:
        asked.append(layer)
        return cells[layer]

    one = single(case)
    made = lower(replace(one, recurrence=replace(one.recurrence, cells=Layers(2, decode))))
    assert asked == []
    assert made.whole() == lower(one).whole()
    assert {*asked} == {0, 1}


def test_the_same_bytes_every_time() -> None:
    one: Any = single(Case(Mode.GRU, 2, 2), batch_major=True, states=True)
    assert lower(one).whole() == lower(one).whole()
