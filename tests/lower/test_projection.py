"""What kernels without projections are given in the place of one."""

from __future__ import annotations

import numpy as np
import pytest

from cudnn_convert.model import Array, Cell, Mode
from cudnn_convert.weights import layouts

UNITS, WIDTH, INPUTS = 5, 3, 4


def cell(matrix: Array | None, dtype: str = "float32") -> Cell:
    rng, width = np.random.default_rng(2), UNITS if matrix is None else len(matrix)
    shapes = [(4, UNITS, INPUTS), (4, UNITS, width), (4, UNITS), (4, UNITS)]
    parts = [rng.uniform(-0.5, 0.5, shape).astype(dtype) for shape in shapes]
    return Cell(Mode.LSTM, *parts, projection=None if matrix is None else matrix.astype(dtype))


def matrix(width: int = WIDTH) -> Array:
    return np.random.default_rng(3).uniform(-1, 1, (width, UNITS))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_state_through_the_inverse_feeds_the_gates_what_it_did(dtype: str) -> None:
    projected = cell(matrix(), dtype)
    plain, inverse = layouts.fold_projection(projected), layouts.invert_projection(projected)
    assert inverse is not None
    assert (inverse.shape, inverse.dtype) == ((WIDTH, UNITS), np.float32)
    assert plain.projection is None
    assert plain.recurrent_kernel.dtype == np.float32
    state = np.random.default_rng(4).normal(size=(2, WIDTH))
    for gate in range(4):
        found = state @ inverse @ plain.recurrent_kernel[gate].T
        expected = state @ projected.recurrent_kernel[gate].T.astype(np.float64)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for part in ("kernel", "bias", "recurrent_bias"):
        np.testing.assert_array_equal(getattr(plain, part), getattr(projected, part).astype(np.float32))


def test_a_cell_without_a_projection_stays_as_it_is() -> None:
    plain = cell(None)
    assert layouts.fold_projection(plain) is plain
    assert layouts.invert_projection(plain) is None
    assert layouts.inverts_accurately(plain)
    assert layouts.can_invert_projection(plain)


@pytest.mark.parametrize(
    ("epsilon", "accurate", "solvable"), [(1.0, True, True), (1e-3, False, True), (0.0, False, False)]
)
def test_rows_that_depend_on_each_other(epsilon: float, accurate: bool, solvable: bool) -> None:
    rows = matrix(2)
    near = cell(np.stack([rows[0], rows[0] + epsilon * rows[1]]))
    assert layouts.inverts_accurately(near) == accurate
    assert layouts.can_invert_projection(near) == solvable
    assert (layouts.invert_projection(near) is not None) == solvable


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_projection_has_no_inverse(value: float) -> None:
    broken = matrix()
    broken[1, 2] = value
    assert layouts.invert_projection(cell(broken)) is None
