"""Sizes of cells by shapes of tensors, and the errors for misfits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cudnn_convert.errors import ReadError
from cudnn_convert.model import Mode, Tensor

#: The modes of a number of gates; names and shapes leave open which.
MODES: Final[Mapping[int, tuple[Mode, ...]]] = MappingProxyType(
    {4: (Mode.LSTM,), 3: (Mode.GRU,), 1: (Mode.RNN_TANH, Mode.RNN_RELU)}
)
#: The rank of a kernel.
MATRIX: Final = 2
WHOLE: Final = "does the whole file belong to one model?"


@dataclass(frozen=True, slots=True)
class RowSizes:
    """The sizes of a cell with matrices of rows of gates.

    `width` is that of the state: the projection's, or the number of units.
    """

    gates: int
    units: int
    width: int
    inputs: int
    has_projection: bool
    dtype: np.dtype[Any]

    @property
    def rows(self) -> int:
        """The number of rows of all gates."""
        return self.gates * self.units

    @property
    def projection(self) -> int:
        """The width of the projection, or 0."""
        return self.width if self.has_projection else 0


def measure_rows(
    kernel: Tensor | None, recurrent: Tensor | None, projection: Tensor | None, *, parts: int = 1
) -> RowSizes | None:
    """Return the sizes of a cell by its matrices, None for a different module.

    `kernel` and `recurrent` are one of `parts` equal groups of rows.
    """
    if kernel is None or recurrent is None or not len(kernel.shape) == len(recurrent.shape) == MATRIX:
        return None
    inputs, (rows, width) = kernel.shape[1], recurrent.shape
    # A misfit projection is refused later, by its name.
    units = width if projection is None or len(projection.shape) != MATRIX else projection.shape[1]
    gates, rest = divmod(rows * parts, units) if units else (0, 0)
    if rest or gates not in MODES or parts not in (1, gates) or not (inputs and width):
        return None
    if projection is not None and gates != len(Mode.LSTM.gates):
        return None
    return RowSizes(gates, units, width, inputs, projection is not None, kernel.dtype)


def take(path: Path, key: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    """Return the tensor of a key. Raises ReadError for a missing or unfit tensor."""
    if tensor is None or tensor.shape != shape:
        actual = "no such key" if tensor is None else f"shape {tensor.shape}"
        raise ReadError(path, key, expected=f"shape {shape}", found=actual, advice=WHOLE)
    if refusal := check_type(path, key, tensor, dtype):
        raise refusal
    return tensor


def check_type(path: Path, key: str, tensor: Tensor, dtype: np.dtype[Any]) -> ReadError | None:
    """Return the error for a tensor of a different type than `dtype`."""
    if tensor.dtype == dtype:
        return None
    expected, advice = f"{dtype}, as the cell's other weights", "save all weights in one type"
    return ReadError(path, key, expected=expected, found=f"{tensor.dtype}", advice=advice)
