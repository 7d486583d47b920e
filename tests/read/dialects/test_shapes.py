"""Sizes of cells whose matrices have gates as rows, and the errors for tensors that misfit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudnn_convert.errors import ReadError
from cudnn_convert.model import InMemory
from cudnn_convert.read.dialects import shapes
from cudnn_convert.read.dialects.shapes import RowSizes

PATH = Path("weights.npz")


def drawn(*shape: int) -> InMemory:
    return InMemory(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("kernel", "recurrent", "projection", "parts", "expected"),
    [
        ((20, 3), (20, 5), None, 1, (4, 5, 5, 3, 0)),
        ((15, 3), (15, 5), None, 1, (3, 5, 5, 3, 0)),
        ((5, 3), (5, 5), None, 1, (1, 5, 5, 3, 0)),
        ((5, 3), (5, 5), None, 4, (4, 5, 5, 3, 0)),
        ((20, 3), (20, 2), (2, 5), 1, (4, 5, 2, 3, 2)),
        ((20, 3), (20, 5), (2,), 1, (4, 5, 5, 3, 5)),  # its key is refused later
        ((15, 3), (15, 2), (2, 5), 1, None),  # a projection of a GRU
        ((10, 3), (10, 5), None, 1, None),  # two gates
        ((21, 3), (21, 5), None, 1, None),
        ((10, 3), (10, 5), None, 2, None),  # four gates in two parts
        ((20, 0), (20, 5), None, 1, None),
        ((20, 3), (20, 0), (0, 5), 1, None),
        ((20, 3), (20, 5), (5, 0), 1, None),
        ((20, 3, 1), (20, 5), None, 1, None),
        ((20, 3), (20, 5, 1), None, 1, None),
        (None, (20, 5), None, 1, None),
        ((20, 3), None, None, 1, None),
    ],
)
def test_sizes(
    kernel: tuple[int, ...] | None,
    recurrent: tuple[int, ...] | None,
    projection: tuple[int, ...] | None,
    parts: int,
    expected: tuple[int, ...] | None,
) -> None:
    tensors = (None if shape is None else drawn(*shape) for shape in (kernel, recurrent, projection))
    sizes = shapes.measure_rows(*tensors, parts=parts)
    if expected is None:
        assert sizes is None
        return
    gates, units, width, inputs, projected = expected
    assert sizes == RowSizes(gates, units, width, inputs, projection is not None, np.dtype(np.float32))
    assert (sizes.projection, sizes.rows) == (projected, gates * units)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (None, r"a: expected shape \(4, 3\), found no such key; does the whole file belong to one model\?"),
        (drawn(4, 2), r"a: expected shape \(4, 3\), found shape \(4, 2\); does the whole file"),
        (
            InMemory(np.zeros((4, 3))),
            "a: expected float32, as the cell's other weights, found float64; save all weights in one type",
        ),
    ],
)
def test_what_misfits_is_refused(tensor: InMemory | None, message: str) -> None:
    with pytest.raises(ReadError, match=message):
        shapes.take(PATH, "a", tensor, (4, 3), np.dtype(np.float32))
    whole = drawn(4, 3)
    assert shapes.take(PATH, "a", whole, (4, 3), np.dtype(np.float32)) is whole
