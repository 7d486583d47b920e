"""What could go wrong with decoded weights, and with what a lowering is told of a recurrence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from cudnn_convert import targets
from cudnn_convert.model import Array, Cell, Gate, Mode, Recurrence

Change = Callable[[Cell], Cell]
EXCHANGED = {Mode.RNN_TANH: Mode.RNN_RELU, Mode.RNN_RELU: Mode.RNN_TANH}


def transposed(matrix: Array) -> Array:
    """The right shape, the wrong order: what forgetting, or making up, a transposition would do."""
    return matrix.swapaxes(-1, -2).reshape(matrix.shape)


def transposed_kernel(cell: Cell) -> Cell:
    return replace(cell, kernel=transposed(cell.kernel))


def transposed_recurrent_kernel(cell: Cell) -> Cell:
    return replace(cell, recurrent_kernel=transposed(cell.recurrent_kernel))


def without_bias(cell: Cell) -> Cell:
    return replace(cell, bias=np.zeros_like(cell.bias))


def without_recurrent_bias(cell: Cell) -> Cell:
    return replace(cell, recurrent_bias=np.zeros_like(cell.recurrent_bias))


def candidate_biases_swapped(cell: Cell) -> Cell:
    """In a GRU the reset gate sees one of them alone; everywhere else a swap of the two is no change."""
    here = np.array([gate is Gate.CANDIDATE for gate in cell.mode.gates])[:, None]
    bias, recurrent_bias = (
        np.where(here, one, other)
        for one, other in ((cell.recurrent_bias, cell.bias), (cell.bias, cell.recurrent_bias))
    )
    return replace(cell, bias=bias, recurrent_bias=recurrent_bias)


def forget_bias_shifted(cell: Cell) -> Cell:
    """As a cell that adds 1 of its own would have it."""
    shift = np.array([gate is Gate.FORGET for gate in cell.mode.gates], cell.bias.dtype)
    return replace(cell, bias=cell.bias + shift[:, None])


def gates_swapped(first: int, second: int, cell: Cell) -> Cell:
    order = [*range(len(cell.mode.gates))]
    order[first], order[second] = second, first
    parts = {name: getattr(cell, name) for name in ("kernel", "recurrent_kernel", "bias", "recurrent_bias")}
    return replace(cell, **{name: part[order] for name, part in parts.items()})


def pairs(mode: Mode) -> Iterator[tuple[int, int]]:
    """Every pair of places among the gates of a mode."""
    return combinations(range(len(mode.gates)), 2)


def of_weights(mode: Mode) -> dict[str, Change]:
    """What changes the cells of a mode, by name."""
    found: list[Change] = [
        *(transposed_kernel, transposed_recurrent_kernel, without_bias, without_recurrent_bias),
        *([candidate_biases_swapped] if mode is Mode.GRU else []),
        *([forget_bias_shifted] if mode is Mode.LSTM else []),
    ]
    swaps = {f"gates_{a}_{b}_swapped": partial(gates_swapped, a, b) for a, b in pairs(mode)}
    return {change.__name__: change for change in found} | swaps


def in_each_cell(change: Change) -> Callable[[Recurrence], Recurrence]:
    def changed(found: Recurrence) -> Recurrence:
        cells = tuple(tuple(change(cell) for cell in layer) for layer in found.cells)
        return replace(found, cells=cells)

    return changed


def directions_swapped(found: Recurrence) -> Recurrence:
    return replace(found, cells=tuple(layer[::-1] for layer in found.cells))


def activations_exchanged(found: Recurrence) -> Recurrence:
    """Tanh for relu, and relu for tanh."""
    other = EXCHANGED[found.sizes.mode]
    cells = in_each_cell(lambda cell: replace(cell, mode=other))(found).cells
    return replace(found, sizes=replace(found.sizes, mode=other), cells=cells)


def of_recurrences(mode: Mode) -> dict[str, Callable[[Recurrence], Recurrence]]:
    """What changes the recurrences of a mode, by name."""
    found = {name: in_each_cell(change) for name, change in of_weights(mode).items()}
    others = [directions_swapped, *([activations_exchanged] if mode in EXCHANGED else [])]
    return found | {change.__name__: change for change in others}


def lowers(monkeypatch: pytest.MonkeyPatch, change: Callable[[Recurrence], Recurrence]) -> None:
    """From now on what is lowered and written are changed recurrences; judged are those of the file."""
    write = targets.write_artifact

    def written(made: Any, *rest: Any, **named: Any) -> Any:
        return write(replace(made, recurrences=tuple(map(change, made.recurrences))), *rest, **named)

    monkeypatch.setattr(targets, "write_artifact", written)
