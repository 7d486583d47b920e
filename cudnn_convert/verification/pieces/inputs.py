"""Inputs for a recurrence that is asked by itself, such that its answer depends on every weight.

Normal inputs saturate some models and cannot see others: what counts is the sum that a gate gets. So inputs
are scaled to the matrices, each row of which then adds about a standard deviation of 1, and initial states
too, which may become large where recurrent weights are tiny. At one step all that is computed shows: how
much is measured by answers of wrong weights, and more rows are drawn until the weakest weight shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.reference import Gates

#: Rows of a batch, drawn until the inputs are good; half and bfloat16 stop at the first.
ROWS: Final = (32, 128, 512)
#: Sums of these standard deviations, tried in turn where some weight stays hidden.
SCALES: Final = (1.0, 2.0, 0.3)
#: No initial state is larger: its own rounding would hide what is added to it.
_LARGEST: Final = 1e4


@dataclass(frozen=True, slots=True)
class Asked:
    """`x [time, batch, inputs]`, `h [layers*directions, batch, width]`, `c [..., units]`, `lengths [batch]`.

    Floats are of float64 and hold values of the type that the artifact takes.
    """

    x: Array
    h: Array
    c: Array
    lengths: Array

    def rows(self, start: int, stop: int) -> Asked:
        """Some rows of the batch."""
        part = slice(start, stop)
        return Asked(self.x[:, part], self.h[:, part], self.c[:, part], self.lengths[part])


def draw_inputs(
    rng: np.random.Generator,
    cells: Sequence[Gates],
    *,
    directions: int,
    steps: int,
    batch: int,
    dtype: np.dtype[Any],
    scale: float = 1.0,
    tied: bool = False,
) -> Asked:
    """Inputs for `cells`, those of all layers and directions, of `steps` steps; lengths of 1 to that.

    `dtype` is the type that the artifact takes. The last row is of full length. `tied`: both states are one.
    """
    x = rng.standard_normal((steps, batch, cells[0].inputs))
    x *= scale / max(_norm(cell.kernel) for cell in cells[:directions])
    h = rng.standard_normal((len(cells), batch, cells[0].width))
    for place, cell in enumerate(cells):
        wide = min(scale / _norm(cell.recurrent_kernel), _LARGEST)
        h[place] *= wide
        # A large state hides in a GRU what is added to it: every other row keeps it small.
        h[place, 1::2] *= min(1.0, 1.0 / wide)
    c = h if tied else rng.standard_normal((len(cells), batch, cells[0].units))
    lengths = steps - np.arange(batch)[::-1] % steps
    x, h, c = (value.astype(dtype).astype(np.float64) for value in (x, h, c))
    return Asked(x, h, c, lengths.astype(np.int32))


def _norm(matrices: Sequence[Array] | None) -> float:
    """The mean norm of a row of some matrices; 1 where all are 0."""
    if matrices is None:
        return 1.0
    norms = [np.sqrt((np.asarray(matrix, np.float64) ** 2).sum(axis=-1)).mean() for matrix in matrices]
    return float(np.mean(norms)) or 1.0
