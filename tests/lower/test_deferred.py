"""Arrays that are made when they are written: their shapes are known before, each layer is made once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import Case

from cudnn_convert.lower.tensorflow import while_loop
from cudnn_convert.lower.tensorflow.layer_stack import Making
from cudnn_convert.model import Cell, Mode
from cudnn_convert.weights.lazy import Layers

CASES = [
    *(Case(mode, 2, ways) for mode in Mode for ways in (1, 2)),
    Case(Mode.LSTM, 2, 2, "CudnnRNNV3", projection=3),
    Case(Mode.GRU, 2, 1, dtype="float64"),
    Case(Mode.LSTM, 1, 1, dtype="float16"),
    Case(Mode.RNN_RELU, 2, 1, input_mode="skip_input"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_shapes_are_those_of_the_arrays(case: Case) -> None:
    recurrence = case.recurrence()
    making = Making(recurrence)
    for layer, cells in enumerate(recurrence.cells):
        for way, cell in enumerate(cells):
            found, arrays = making.tensors(layer, way), while_loop.weights(cell)
            assert [*found] == [*arrays]  # which are handed over in that order
            for name, value in arrays.items():
                assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
                np.testing.assert_array_equal(found[name].read(), value)


def test_a_layer_is_decoded_once_where_its_arrays_are_read_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recurrence, asked = Case(Mode.GRU, 3, 2).recurrence(), []

    def decode(layer: int) -> tuple[Cell, ...]:
        asked.append(layer)
        return recurrence.cells[layer]

    made, weights = [], while_loop.weights
    monkeypatch.setattr(while_loop, "weights", lambda cell: made.append(cell) or weights(cell))
    making = Making(replace(recurrence, cells=Layers(3, decode)))
    tensors = [
        tensor for layer in range(3) for way in range(2) for tensor in making.tensors(layer, way).values()
    ]
    assert asked == []
    assert all(tensor.read().size for tensor in tensors)
    assert asked == [0, 1, 2]
    assert [*map(id, made)] == [id(cell) for layer in recurrence.cells for cell in layer]  # each pair once
    again = tensors[0]
    np.testing.assert_array_equal(again.read(), again.read())  # made anew, for nobody keeps it
