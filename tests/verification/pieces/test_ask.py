"""A recurrence asked by itself: wrong weights differ, right ones do not, and hidden ones are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.cases import Case

from cudnn_convert.model import BlobEvidence, Mode, Recurrence
from cudnn_convert.reference import Gates
from cudnn_convert.verification.pieces.ask import PieceSettings, judge_piece, read_gates
from cudnn_convert.verification.pieces.piece_inputs import Answer, Piece, PieceInputs, Stack

F32 = np.dtype(np.float32)
TERMS = PieceSettings(F32, F32, seed=3)
LSTM = Case(Mode.LSTM, layers=2, directions=2, op="CudnnRNNV3")
Change = Callable[[list[Gates]], list[Gates]]


def answering(
    cells: list[Gates], directions: int, change: Callable[[Answer], Answer] = lambda given: given
) -> Any:
    """What computes `cells` in float64 and gives float32."""

    def ask(asked: PieceInputs) -> Answer:
        y, h, c = (value.astype(np.float32) for value in Stack(cells, directions).run(asked))
        return change((y, h, c))

    return ask


def report(
    recurrence: Recurrence,
    change: Change = lambda cells: cells,
    *,
    layers: tuple[int, ...] | None = None,
    answer: Callable[[Answer], Answer] = lambda given: given,
    **given: Any,
) -> Any:
    """The report on a piece that computes `recurrence` with changed cells."""
    layers = tuple(range(recurrence.sizes.layers)) if layers is None else layers
    cells = read_gates(recurrence, layers)
    own = change(cells)
    piece = Piece(
        recurrence.node, layers, "node", answering(own, recurrence.sizes.directions, answer), **given
    )
    return judge_piece(piece, recurrence, cells, TERMS)  # fmt: skip


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1)])
def test_a_right_piece_passes_and_its_inputs_would_have_shown_a_wrong_one(mode: Mode, layers: Any) -> None:
    found = report(replace(LSTM, mode=mode).recurrence(), layers=layers)
    assert found.passed
    assert found.asked
    assert found.needed < 0.1
    assert found.atol == pytest.approx(1e-5, rel=1)
    assert found.smallest > 100
    assert found.compared > 1000
    assert found.message == ""
    if len(layers) == 1:
        assert found.weakest >= 5
        assert found.unseen == ()


def one_weight(cells: list[Gates]) -> list[Gates]:
    """One recurrent weight of the last cell is off by a thousandth of its matrix's norm."""
    matrix = cells[-1].recurrent_kernel[0].copy()
    matrix[2, 3] += 1e-3 * np.linalg.norm(matrix)
    changed = (matrix, *cells[-1].recurrent_kernel[1:])
    return [*cells[:-1], replace(cells[-1], recurrent_kernel=changed)]


def two_gates(cells: list[Gates]) -> list[Gates]:
    *others, cell = cells
    kernel = (cell.kernel[1], cell.kernel[0], *cell.kernel[2:])
    return [*others, replace(cell, kernel=kernel)]


@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1)])
def test_a_single_weight_is_seen(layers: tuple[int, ...]) -> None:
    found = report(LSTM.recurrence(), one_weight, layers=layers)
    assert not found.passed
    assert found.message.startswith(f"layer {layers[-1]} backward: ")
    assert ": expected " in found.message


def test_exchanged_gates_are_seen_and_named() -> None:
    found = report(LSTM.recurrence(), two_gates, layers=(1,))
    assert not found.passed
    assert found.message.endswith(
        "; as with gates input and forget exchanged in the kernel in layer 1 backward"
    )


def test_what_only_later_steps_show_is_seen() -> None:
    """A recurrence that loses its cell state after sixteen steps."""

    def late(given: Answer) -> Answer:
        y = given[0].copy()
        y[16:] += 1e-3
        return y, given[1], given[2]

    found = report(LSTM.recurrence(), answer=late)
    assert not found.passed
    assert " of 42 steps: expected " in found.message


@pytest.mark.first("shape")
@pytest.mark.parametrize("missing", ["nan", "shape", "state"])
def test_an_answer_that_is_none_differs(missing: str) -> None:
    def broken(given: Answer) -> Answer:
        y, h, c = given
        if missing == "nan":
            return np.full_like(y, np.nan), h, c
        return (y, h[:1], c) if missing == "shape" else (y, h, None)

    found = report(LSTM.recurrence(), answer=broken)
    assert not found.passed
    assert found.needed == np.inf
    assert found.message


def test_a_piece_that_stops_on_some_sizes_differs() -> None:
    def stop(answer: Answer) -> Answer:
        if len(answer[0]) > 3:
            raise RuntimeError("no kernel for 42 steps")
        return answer

    found = report(LSTM.recurrence(), answer=stop)
    assert (found.asked, found.passed) == (True, False)
    assert found.message == "it stops on 42 steps of 3 rows: no kernel for 42 steps"


def test_tiny_recurrent_weights_become_visible_by_large_states() -> None:
    """Zeroing recurrent kernels of 1e-4 moves answers to normal inputs by less than they round."""
    case = Case(Mode.LSTM)
    blob = case.blob.copy()
    inputs = 4 * case.units * case.inputs
    blob[inputs : inputs + 4 * case.units**2] *= 2e-4
    recurrence = replace(case.recurrence(), evidence=BlobEvidence(blob))
    found = report(recurrence)
    assert found.passed
    assert found.smallest > 100

    def zero(cells: list[Gates]) -> list[Gates]:
        return [replace(one, recurrent_kernel=tuple(0 * m for m in one.recurrent_kernel)) for one in cells]

    gone = report(recurrence, zero)
    assert not gone.passed


@pytest.mark.parametrize("largest", [40, 300, 3000])
@pytest.mark.parametrize("change", [None, one_weight, two_gates])
def test_runtimes_whose_activations_do_not_saturate_pass_and_wrong_weights_do_not(
    largest: float, change: Change | None
) -> None:
    """ONNX Runtime gives 1.5e-8 for the sigmoid of -100, which recurrent weights of 3000 multiply."""
    case = Case(Mode.GRU, units=6)
    blob, inputs = case.blob.copy(), 3 * case.units * case.inputs
    blob[inputs : inputs + 3 * case.units**2] = largest * np.random.default_rng(5).standard_normal(108)
    recurrence = replace(case.recurrence(), evidence=BlobEvidence(blob))
    cells = read_gates(recurrence, (0,))
    ask = onnx_runtime(cells[0] if change is None else change(cells)[0])
    found = judge_piece(Piece("rnn", (0,), "node", ask, lengths=False), recurrence, cells, TERMS)
    assert found.passed == (change is None), found.message
    assert found.atol == pytest.approx(1e-5)


def onnx_runtime(cell: Gates) -> Callable[[PieceInputs], Answer]:
    """What runs a GRU in ONNX Runtime, whose gates are update, reset, candidate."""
    order, names = (1, 0, 2), ("x", "W", "R", "B", "", "h")
    assert cell.kernel is not None
    biases = [group[k] for group in (cell.bias, cell.recurrent_bias) for k in order]
    weights = {
        "W": np.concatenate([cell.kernel[k] for k in order])[None],
        "R": np.concatenate([cell.recurrent_kernel[k] for k in order])[None],
        "B": np.concatenate(biases)[None],
    }
    node = helper.make_node("GRU", names, ["y", "h_end"], hidden_size=cell.units, linear_before_reset=1)
    ends = [
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, [None] * n) for k, n in group.items()]
        for group in ({"x": 3, "h": 3}, {"y": 4, "h_end": 3})
    ]
    held = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph([node], "gru", *ends, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])

    def ask(asked: PieceInputs) -> Answer:
        y, h = session.run(None, {"x": np.float32(asked.x), "h": np.float32(asked.h)})
        return y[:, 0], h, None

    return ask


def test_weights_that_nothing_shows_are_named() -> None:
    """A GRU whose update gate keeps the old state whatever its candidate is."""
    case = Case(Mode.GRU)
    recurrence = case.recurrence()
    cells = read_gates(recurrence, (0,))
    shut = replace(cells[0], bias=(cells[0].bias[0], cells[0].bias[1] + 60, cells[0].bias[2]))
    piece = Piece("rnn", (0,), "node", answering([shut], 1))
    found = judge_piece(piece, recurrence, [shut], TERMS)
    assert found.passed
    assert found.smallest < 1e-3
    assert any(line.startswith("layer 0 forward: kernel zero: ") for line in found.unseen)
    assert any(
        "kernel of gate candidate: 20 of 20 weights show less than 10 " in line for line in found.unseen
    )


def test_a_projection_may_stand_around_a_piece() -> None:
    case = Case(Mode.LSTM, projection=3)
    composed = report(
        case.recurrence(), lambda cells: [one.compose_projection() for one in cells], projected=False
    )
    assert composed.passed
    assert composed.compared > 1000
    wrong = report(
        case.recurrence(),
        lambda cells: two_gates([one.compose_projection() for one in cells]),
        projected=False,
    )
    assert not wrong.passed
