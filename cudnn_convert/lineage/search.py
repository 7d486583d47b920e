"""Where a matrix or a bias lies in a set of tensors: by its values, so that no claim of ours is believed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.report import Place

#: How far a bias may be from one that something was added to and taken off again.
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Found:
    """A place, and the number of its first element in the tensor, which orders those of one tensor."""

    place: Place
    first: int


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which a part may be written: what `Place.axes` says of it, and its values.

    `close`: rounding may have changed them.
    """

    axes: str
    values: Array
    close: bool = False


def matrix_forms(matrix: Array) -> list[Form]:
    """The ways in which sources and targets write cuDNN's `[units, inputs]`."""
    forms = [Form("as it is", matrix), Form("transposed", matrix.T)]
    if matrix.shape[0] != matrix.shape[1]:
        forms.append(Form("reshaped", matrix.reshape(matrix.T.shape)))
    return forms


def find(tensors: Mapping[str, Array], forms: Sequence[Form], taken: set[tuple[str, int]]) -> Found | None:
    """The first place that has one of the forms and is not `taken`, which it then is.

    None where there is no such place, or where all values are alike: zeros lie in many places.
    """
    for form in forms:
        if np.all(form.values == form.values.flat[0]):
            continue
        for name, tensor in tensors.items():
            for start in _starts(tensor, form):
                if (name, start) not in taken:
                    taken.add((name, start))
                    return Found(Place(name, _part(tensor, start, form.values), form.axes), start)
    return None


def _starts(tensor: Array, form: Form) -> Iterator[int]:
    """The number of the first element of each block of `tensor` that has the values of the form.

    A tensor of rank 1 holds a matrix value after value, another as a block of its last two axes.
    """
    block = np.atleast_2d(form.values if tensor.ndim > 1 else form.values.reshape(-1)).astype(tensor.dtype)
    plane = tensor.reshape(-1, tensor.shape[-1])
    (rows, columns), width = block.shape, plane.shape[1]
    height = tensor.shape[-2] if tensor.ndim > 1 else 1
    if rows > height or columns > width:
        return
    at = np.unravel_index(int(np.argmax(np.abs(block.astype(np.float64)))), block.shape)
    for hit in np.flatnonzero(_equal(plane, block[at], close=form.close)):
        row, column = int(hit) // width - int(at[0]), int(hit) % width - int(at[1])
        inside = row >= 0 and column >= 0 and row % height + rows <= height and column + columns <= width
        if (
            inside
            and _equal(plane[row : row + rows, column : column + columns], block, close=form.close).all()
        ):
            yield row * width + column


def _equal(one: Array, other: Any, *, close: bool) -> Array:
    if not close:
        return np.asarray(one == other)
    return np.asarray(np.isclose(one.astype(np.float64), np.float64(other), rtol=_ROUNDING, atol=_ROUNDING))


def _part(tensor: Array, start: int, values: Array) -> str:
    """The block as Python slices it."""
    place = [int(k) for k in np.unravel_index(start, tensor.shape)]
    sizes = list(values.shape) if tensor.ndim > 1 else [math.prod(values.shape)]
    lengths = [None] * (tensor.ndim - len(sizes)) + sizes
    slices = [
        str(first) if length is None else ":" if length == width else f"{first}:{first + length}"
        for first, length, width in zip(place, lengths, tensor.shape, strict=True)
    ]
    return f"[{', '.join(slices)}]"


def whole(tensors: Mapping[str, Array], name: str, value: Array) -> str | None:
    """The tensor that has all of `value`, in any shape or transposed; one of its own name before others."""
    own = tensors.get(name)
    if own is not None and own.shape == value.shape and np.array_equal(own, value.astype(own.dtype)):
        return name
    if np.all(value == value.flat[0]):
        return None
    for found, tensor in tensors.items():
        if tensor.size == value.size:
            flat = tensor.reshape(-1)
            if any(np.array_equal(flat, one.reshape(-1).astype(flat.dtype)) for one in (value, value.T)):
                return found
    return None
