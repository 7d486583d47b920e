"""The model checks itself; the messages say where, expected and found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.model import BlobEvidence, Cell, Gate, InMemory, Mode, Recurrence, Sizes

#: kernel, recurrent_kernel, bias, recurrent_bias of a GRU with 2 units and 3 inputs.
SHAPES = ((3, 2, 3), (3, 2, 2), (3, 2), (3, 2))


def arrays(**other: tuple[int, ...]) -> list[np.ndarray]:
    names = ("kernel", "recurrent_kernel", "bias", "recurrent_bias")
    return [np.zeros(other.get(name, shape)) for name, shape in zip(names, SHAPES, strict=True)]


def test_a_fitting_cell_is_taken() -> None:
    assert Cell(Mode.GRU, *arrays()).kernel.shape == (3, 2, 3)


@pytest.mark.parametrize(
    ("part", "shape", "message"),
    [
        ("kernel", (4, 2, 3), "cell.kernel: expected shape (3, 2, 3), found (4, 2, 3)"),
        ("kernel", (3, 3, 2), "cell.kernel: expected shape (3, 2, 2), found (3, 3, 2)"),
        ("recurrent_kernel", (3, 1, 2), "cell.recurrent_kernel: expected shape (3, 2, 2), found (3, 1, 2)"),
        ("bias", (6,), "cell.bias: expected shape (3, 2), found (6,)"),
        ("recurrent_bias", (2, 2), "cell.recurrent_bias: expected shape (3, 2), found (2, 2)"),
    ],
)
def test_a_part_of_another_shape_is_refused(part: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidModelError) as refused:
        Cell(Mode.GRU, *arrays(**{part: shape}))
    assert str(refused.value) == message


def test_parts_of_two_dtypes_are_refused() -> None:
    kernel, *rest = arrays()
    with pytest.raises(InvalidModelError, match=r"^cell.recurrent_kernel: expected float32, found float64$"):
        Cell(Mode.GRU, kernel.astype(np.float32), *rest)


def test_the_gates_of_each_mode() -> None:
    assert Mode.LSTM.gates == (Gate.INPUT, Gate.FORGET, Gate.CELL, Gate.OUTPUT)
    assert Mode.GRU.gates == (Gate.RESET, Gate.UPDATE, Gate.CANDIDATE)
    assert Mode.RNN_TANH.gates == Mode.RNN_RELU.gates == (Gate.HIDDEN,)


def test_upper_layers_see_both_directions() -> None:
    sizes = Sizes(Mode.LSTM, 3, 2, 5, 7)
    assert [sizes.inputs(layer) for layer in range(3)] == [7, 10, 10]


def test_a_tensor_in_memory_is_the_array_itself() -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    held = InMemory(array)
    assert (held.shape, held.dtype) == ((2, 3), np.dtype(np.float16))
    assert held.read() is array


def projected(width: int, mode: Mode = Mode.LSTM, dtype: type = float) -> Cell:
    gates = len(mode.gates)
    shapes = ((gates, 2, 3), (gates, 2, 1), (gates, 2), (gates, 2))
    return Cell(mode, *(np.zeros(shape) for shape in shapes), projection=np.zeros((width, 2), dtype))


def test_a_projection_makes_the_hidden_state_narrower_than_the_units() -> None:
    assert projected(1).recurrent_kernel.shape == (4, 2, 1)
    sizes = Sizes(Mode.LSTM, 3, 2, 5, 7, projection=4)
    assert (sizes.width, [sizes.inputs(layer) for layer in range(3)]) == (4, [7, 8, 8])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"width": 2}, "cell.projection: expected shape (1, 2), found (2, 2)"),
        ({"width": 1, "dtype": np.float32}, "cell.projection: expected float64, found float32"),
        (
            {"width": 1, "mode": Mode.GRU},
            "cell.projection: expected none outside of an LSTM, found one in a gru",
        ),
    ],
)
def test_a_projection_that_does_not_fit_is_refused(given: dict, message: str) -> None:
    with pytest.raises(InvalidModelError) as refused:
        projected(**given)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("layers", "units", "inputs", "dtype", "message"),
    [
        (
            1,
            3,
            0,
            np.float32,
            "expected layers, units and an input size from 1 to 2147483647, found 1 and 3 and 0",
        ),
        (
            0,
            3,
            2,
            np.float32,
            "expected layers, units and an input size from 1 to 2147483647, found 0 and 3 and 2",
        ),
        (1, 3, 2**31, np.float32, "found 1 and 3 and 2147483648"),
        (1, 3, 2, np.int32, "expected weights of a float type, found int32"),
    ],
)
def test_a_recurrence_has_sizes_and_floats(
    layers: int, units: int, inputs: int, dtype: Any, message: str
) -> None:
    with pytest.raises(InvalidModelError, match=f"recurrence: .*{message}"):
        Recurrence(
            node="rnn",
            op="CudnnRNN",
            sizes=Sizes(Mode.LSTM, layers, 1, units, inputs),
            time_major=True,
            lengths=False,
            dtype=np.dtype(dtype),
            cells=(),
            evidence=BlobEvidence(np.zeros(0)),
            shared="",
        )
