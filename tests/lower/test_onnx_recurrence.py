"""A cuDNN node in a graph of tf2onnx, before any pass of its optimizer: what stands in its place."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import onnx
import pytest
from cases import BATCH, INPUTS, STEPS, UNITS, Case
from tf2onnx.graph import Graph

from cudnn_convert.lower.onnx import convert
from cudnn_convert.model import Cell, Mode, Recurrence
from cudnn_convert.weights.lazy import Layers

FLOAT, DOUBLE, INT32 = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT32


def replaced(
    case: Case,
    *,
    shape: Sequence[int] | None = (-1, -1, INPUTS),
    recurrences: Sequence[Recurrence] = (),
    number: int = 0,
    steps: int = -1,
) -> Graph:
    """A graph of placeholders and what the node became; `shape` is that of x, `steps` what y is known by."""
    graph = Graph([], opset=17)
    dtype = {"float32": FLOAT, "float64": DOUBLE}[case.dtype]
    depth = case.depth
    ends = [("x:0", dtype, shape), ("h:0", dtype, [depth, -1, UNITS])]
    ends += [("c:0", dtype, [depth, -1, UNITS] if case.mode is Mode.LSTM else [2, 7])]
    ends += [("params:0", dtype, [-1]), ("lengths:0", INT32, [-1])]
    for name, kind, known in ends:
        graph.make_node("Placeholder", [], outputs=[name], name=name[:-2], shapes=[known], dtypes=[kind])
    shapes = [[steps, -1, case.directions * UNITS], [depth, -1, UNITS], [depth, -1, UNITS], [-1], [-1]]
    node = graph.make_node(
        case.op,
        [name for name, *_ in ends[: 5 if case.op == "CudnnRNNV3" else 4]],
        attr={"seed2": number},
        outputs=[f"rnn:{k}" for k in range(5)], name="rnn", shapes=shapes, dtypes=[dtype] * 5,
        skip_conversion=False, infer_shape_dtype=False,
    )  # fmt: skip
    convert.replace(graph, node, recurrences or [case.recurrence()])
    return graph


def counts(graph: Graph) -> dict[str, int]:
    found = collections.Counter(node.type for node in graph.get_nodes())
    return {op: count for op, count in found.items() if op not in {"Placeholder", "Const"}}


@pytest.mark.parametrize("mode", [Mode.LSTM, Mode.GRU])
def test_time_major_floats_need_nothing_round_the_node(mode: Mode) -> None:
    case = Case(mode)
    assert counts(replaced(case, shape=(STEPS, BATCH, INPUTS))) == {
        mode.value.upper(): 1, "Squeeze": 1, "Identity": 3,
    }  # fmt: skip


@pytest.mark.parametrize("shape", [None, (-1, -1, INPUTS), (0, 2, INPUTS)])
def test_a_number_of_steps_that_is_not_known_is_looked_at(shape: Any) -> None:
    found = counts(replaced(Case(Mode.LSTM), shape=shape))
    assert found["Where"] == 2


def test_others_are_cast_and_turned_and_back() -> None:
    made = replaced(Case(Mode.LSTM, 1, 1, "CudnnRNNV3", time_major=False, dtype="float64"))
    found = counts(made)
    assert (found["Cast"], found["Transpose"]) == (6, 6)
    casts = [node.get_attr_int("to") for node in made.get_nodes() if node.type == "Cast"]
    assert casts == [FLOAT] * 3 + [DOUBLE] * 3
    turns = [node.get_attr_value("perm") for node in made.get_nodes() if node.type == "Transpose"]
    assert turns == [[1, 0, 2]] * 6


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs_keep_their_names_shapes_and_dtypes(dtype: str) -> None:
    case = Case(Mode.LSTM, 2, 2, dtype=dtype)
    made = replaced(case)
    kind = FLOAT if dtype == "float32" else DOUBLE
    shapes = [[-1, -1, 2 * UNITS], [4, -1, UNITS], [4, -1, UNITS]]
    for k, shape in enumerate(shapes):
        assert made.get_shape(f"rnn:{k}") == shape
        assert made.get_dtype(f"rnn:{k}") == kind
    assert made.get_node_by_output("rnn:3") is None
    assert made.get_node_by_name("rnn") is None


def test_a_shape_that_only_the_source_knows_is_kept() -> None:
    assert replaced(Case(Mode.LSTM), shape=None, steps=9).get_shape("rnn:0") == [9, -1, UNITS]


def test_what_is_no_lstm_hands_its_cell_state_on() -> None:
    made = replaced(Case(Mode.GRU))
    assert made.get_node_by_output("rnn:2").input == ["c:0"]
    assert made.get_shape("rnn:2") == [2, 7]


def tickets(graph: Graph) -> list[list[float]]:
    (node,) = [node for node in graph.get_nodes() if node.type == "GRU"]
    return [graph.get_node_by_output(name).get_tensor_value() for name in node.input[1:4]]


def test_recurrences_of_one_blob_read_the_first_one_s_weights() -> None:
    """As far as blob, sizes and dtype are one: a blob may be decoded in another way by another node."""
    case = Case(Mode.GRU)
    one = dataclasses.replace(case.recurrence(), shared="one")
    twin = dataclasses.replace(one, node="twin")
    other = dataclasses.replace(one, shared="other")
    wide = dataclasses.replace(one, dtype=Case(Mode.GRU, dtype="float64").recurrence().dtype)
    deep = dataclasses.replace(Case(Mode.GRU, layers=2).recurrence(), shared="one")
    every = [other, wide, deep, one, twin]
    for number, owner in ((0, 0), (3, 3), (4, 3)):
        made = replaced(case, recurrences=every, number=number)
        assert [one[:3] for one in tickets(made)] == [[owner, 0, slot] for slot in range(3)]


def test_weights_without_a_projection_are_not_looked_at() -> None:
    def unread(layer: int) -> tuple[Cell, ...]:
        raise AssertionError(layer)

    recurrence = dataclasses.replace(Case(Mode.GRU).recurrence(), cells=Layers(1, unread))
    assert [*convert.refusals([recurrence])] == []


def test_a_projection_of_dependent_rows_is_refused() -> None:
    right, wrong = (Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=2).recurrence(node) for node in "ab")
    cell = wrong.cells[1][1]
    row = cell.projection[:1]
    spoiled = dataclasses.replace(cell, projection=row.repeat(2, 0))
    cells = (wrong.cells[0], (wrong.cells[1][0], spoiled))
    (reason,) = convert.refusals([right, dataclasses.replace(wrong, cells=cells)])
    assert reason.startswith("b: expected a projection of independent rows")
