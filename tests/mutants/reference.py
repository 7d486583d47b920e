"""Mistakes in the float64 reference, the judge of every conversion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudnn_convert import reference
from cudnn_convert.model import Array, Cell, Gate, Mode, Sizes
from cudnn_convert.reference.steps import CellStep, sigmoid
from cudnn_convert.weights import parameter_blob


def drops_bias(monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """The input's biases, 0, or the state's, 1, are zero."""
    right = reference.steps_from_blob

    def changed(blob: Array, mode: str, *, layers: int, directions: int, units: int, **named: Any) -> Any:
        count = layers * directions * 2 * len(Mode(mode).gates) * units
        biases = blob[-count:].reshape(layers * directions, 2, -1) * (np.arange(2) != which)[:, None]
        blob = np.concatenate([blob[:-count], biases.ravel()])
        return right(blob, mode, layers=layers, directions=directions, units=units, **named)

    monkeypatch.setattr(reference, "steps_from_blob", changed)


def resets_before_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GRU as first published: the reset gate multiplies the state, not its product with the matrix."""

    def changed(
        blob: Array, mode: str, *, layers: int, directions: int, units: int, input_size: int, **named: Any
    ) -> list[CellStep]:
        sizes = Sizes(Mode(mode), layers, directions, units, input_size)
        cells = parameter_blob.split(np.asarray(blob, np.float64), sizes, where="reference")
        return [_reset_first(cell) for layer in cells for cell in layer]

    monkeypatch.setattr(reference, "steps_from_blob", changed)


def _reset_first(cell: Cell) -> CellStep:
    matrices, bias = cell.recurrent_kernel, cell.bias + cell.recurrent_bias
    r, z, n = (cell.mode.gates.index(gate) for gate in (Gate.RESET, Gate.UPDATE, Gate.CANDIDATE))

    def advance(products: Any, h: Array, c: Array) -> tuple[Array, Array]:
        reset, update = (sigmoid(products[k] + h @ matrices[k].T + bias[k]) for k in (r, z))
        candidate = np.tanh(products[n] + (reset * h) @ matrices[n].T + bias[n])
        return (1 - update) * candidate + update * h, c

    def read_gates() -> Any:
        raise NotImplementedError("a step that is wrong is run, and not looked into")

    return CellStep(lambda x: [x @ kernel.T for kernel in cell.kernel], advance, read_gates)


def runs_backward_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is reversed."""
    monkeypatch.setattr(reference, "reversed", lambda steps: steps, raising=False)
