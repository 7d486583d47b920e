"""Lowers a projected LSTM to kernels that know no projection.

Such a kernel carries v = o*tanh(c) where cuDNN carries h = Q v, Q `[width, units]` being the projection. With
R Q in the place of R its gates are cuDNN's, and a product with Q behind it gives h. In the place of an
initial h0 it takes a v0 with Q v0 = h0: the pseudo-inverse gives one where the rows of Q are independent.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cudnn_convert.model import Array, Cell

#: How far Q v0 may miss an h0 of size 1 where there is another way: some thirty roundings of float32, which
#: all such kernels run in.
_ACCURATE: Final = 2e-6
#: The same where there is none: what lies between is for the proof of the whole model to judge.
_SOLVABLE: Final = 1e-3


def compose(cell: Cell) -> Cell:
    """A cell without projection whose gates are those of `cell`, in float32; `cell` itself if it has none."""
    if cell.projection is None:
        return cell
    recurrent = cell.recurrent_kernel.astype(np.float64) @ cell.projection.astype(np.float64)
    parts = (cell.kernel, recurrent, cell.bias, cell.recurrent_bias)
    return Cell(cell.mode, *(part.astype(np.float32) for part in parts))


def inverse(cell: Cell) -> Array | None:
    """What takes h0 to v0, `h0 [batch, width] @ inverse [width, units]`, in float32.

    None where there is no projection, or where its rows depend on each other as far as float32 can tell.
    """
    return _inverse(cell, _SOLVABLE)


def solvable(cell: Cell) -> bool:
    """Whether a kernel that knows no projection can compute `cell` at all."""
    return cell.projection is None or _inverse(cell, _SOLVABLE) is not None


def accurate(cell: Cell) -> bool:
    """Whether such a kernel computes `cell` as well as one that knows it."""
    return cell.projection is None or _inverse(cell, _ACCURATE) is not None


def _inverse(cell: Cell, bound: float) -> Array | None:
    if cell.projection is None or not np.isfinite(cell.projection).all():
        return None
    projection = cell.projection.astype(np.float64)
    found = np.linalg.pinv(projection).astype(np.float32)
    miss = projection @ found.astype(np.float64) - np.eye(len(projection))
    return found.T.copy() if np.abs(miss).max() <= bound else None
