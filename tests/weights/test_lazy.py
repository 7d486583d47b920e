"""Layers and tensors that are read when they are asked for."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from support.graphs import BLOB

from cudnn_convert import context
from cudnn_convert.model import Array, BlobEvidence, Cell, InMemory, Mode, Recurrence, Sizes
from cudnn_convert.weights import lazy
from cudnn_convert.weights.lazy import LazyLayers

# Layers that are decoded when they are asked for: one at a time, and no more often than that.


def cell(value: float, inputs: int = 3) -> Cell:
    """A plain cell of two units, all of whose weights are `value`."""
    kernel, recurrent, bias = (np.full((1, 2, width), value, np.float32) for width in (inputs, 2, 1))
    return Cell(Mode.RNN_TANH, kernel, recurrent, bias[:, :, 0], bias[:, :, 0].copy())


class Decoder:
    """Decodes layers of one cell each; remembers which, and how many of them were alive at most."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.alive: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()
        self.most = 0

    def __call__(self, number: int) -> tuple[Cell, ...]:
        self.asked.append(number)
        made = cell(number + 0.5)
        self.alive[len(self.asked)] = made.kernel
        self.most = max(self.most, len(self.alive))
        return (made,)


def test_a_layer_is_decoded_when_it_is_asked_for_and_stays_until_the_next() -> None:
    decode = Decoder()
    found = LazyLayers(3, decode)
    assert len(found) == 3
    assert decode.asked == []
    assert [found[1][0].kernel[0, 0, 0], found[1][0].bias[0, 0], found[-1][0].bias[0, 0]] == [1.5, 1.5, 2.5]
    assert decode.asked == [1, 2]
    assert decode.most == 1
    for number in (3, -4):
        with pytest.raises(IndexError):
            found[number]
    assert [layer[0].bias[0, 0] for layer in found[1:]] == [1.5, 2.5]


def test_a_walk_over_layers_holds_two_at_most() -> None:
    decode = Decoder()
    assert [layer[0].bias[0, 1] for layer in LazyLayers(4, decode)] == [0.5, 1.5, 2.5, 3.5]
    assert decode.asked == [0, 1, 2, 3]
    assert decode.most <= 2


def test_changes_are_made_as_layers_are_decoded() -> None:
    decode = Decoder()
    found = lazy.map_cells(LazyLayers(2, decode), lambda one: cell(-one.bias[0, 0]))
    assert decode.asked == []
    assert [layer[0].kernel[0, 1, 2] for layer in found] == [-0.5, -1.5]
    there = lazy.map_cells(((cell(2),), (cell(3),)), lambda one: cell(-one.bias[0, 0]))
    assert [layer[0].kernel[0, 1, 2] for layer in there] == [-2, -3]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_known_once_its_layer_was_decoded(value: float) -> None:
    found = LazyLayers(2, lambda number: (cell(value if number else 1.0),))
    assert found.finite
    assert found[0]
    assert found.finite
    assert found[1]
    assert not found.finite


@pytest.mark.parametrize("place", [(0, 0, 0), (0, 1, 99_999), (0, 1, 65_536)])
def test_one_value_among_many_is_found(place: tuple[int, int, int]) -> None:
    good = cell(1.0, inputs=100_000)
    assert lazy.is_finite(good)
    good.kernel[place] = np.nan
    assert not lazy.is_finite(good)
    turned = Cell(good.mode, good.kernel.transpose(2, 0, 1).copy().transpose(1, 2, 0), *rest(good))
    assert not lazy.is_finite(turned)


def rest(one: Cell) -> tuple[Array, Array, Array]:
    return one.recurrent_kernel, one.bias, one.recurrent_bias


def test_large_is_what_has_more_bytes_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(Mode.RNN_TANH, 1, 1, 2, 3)  # 6 + 4 + 4 values
    monkeypatch.setattr(lazy, "LARGE", 56)
    assert not lazy.exceeds_memory_budget(sizes, np.dtype(np.float32))
    assert lazy.exceeds_memory_budget(sizes, np.dtype(np.float64))


def test_tensors_are_read_by_name() -> None:
    found = lazy.read({"a": InMemory(np.arange(3)), "b": InMemory(np.arange(2))})
    assert [*found] == ["a", "b"]
    assert len(found) == 2
    assert {key: [*value] for key, value in found.items()} == {"a": [0, 1, 2], "b": [0, 1]}
    assert "c" not in found
    with pytest.raises(KeyError):
        found["c"]
    unlimited = lazy.Read(["a"], lambda name: np.zeros(1))
    with pytest.raises(KeyError):
        unlimited["c"]


def test_what_is_lowered_is_reported_in_bytes() -> None:
    recurrences = [
        Recurrence("", "CudnnRNN", sizes, True, False, np.dtype(dtype), (), BlobEvidence(BLOB), "")
        for sizes, dtype in (
            (Sizes(Mode.RNN_TANH, 1, 1, 2, 3), "f4"),
            (Sizes(Mode.RNN_TANH, 1, 1, 1, 1), "f8"),
        )
    ]
    steps = list[tuple[str, int, int]]()
    with context.listen(lambda *step: steps.append(step)):
        lazy.report_lowered(recurrences, 1)
    assert steps == [("lowering", 56, 88)]  # 14 values, and 4 more
