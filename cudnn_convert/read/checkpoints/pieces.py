"""Tensors put together from the slices that a file stores, all of one or a part.

Source: tensorflow v2.21.0 core/util/tensor_bundle/tensor_bundle.cc GetSliceValue; core/util/
tensor_slice_set.cc (what is stored does not overlap); core/framework/tensor_slice.cc and core/kernels/
save_restore_tensor.cc (the words of a slice).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from cudnn_convert.model import Array
from cudnn_convert.read.checkpoints import dtypes
from cudnn_convert.read.checkpoints.entries import Extents


class Piece(Protocol):
    """A slice that is stored as such; the whole tensor, mostly."""

    @property
    def extents(self) -> Extents: ...
    def check(self) -> None:
        """Raises ValueError where the file cannot hold it, OSError. Reads nothing of it."""
        ...

    def read(self) -> Array:
        """A new array of its own shape. Raises ValueError, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of a checkpoint: its `dtype` by its number in types.proto, and the slices that hold it.

    An array that somebody still has is handed out again, so that nothing is read twice and nothing kept.
    """

    shape: tuple[int, ...]
    dtype: int
    pieces: tuple[Piece, ...]
    _alive: WeakValueDictionary[Extents, Array] = field(
        default_factory=WeakValueDictionary, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        """Raises ValueError where two slices share an element: which is meant?"""
        held: Any = np.array([piece.extents for piece in self.pieces], np.int64)
        held = held.reshape(len(self.pieces), len(self.shape), 2)
        starts, ends = held[..., 0], held.sum(-1)
        for place in range(len(self.pieces) - 1):
            after = slice(place + 1, None)
            if np.any(np.all((starts[after] < ends[place]) & (starts[place] < ends[after]), axis=1)):
                raise ValueError("slices that overlap")

    def read(self, wanted: Extents) -> Array:
        """An array of what is wanted of it, not to be written to. Raises ValueError, OSError."""
        array = self._alive.get(wanted)
        if array is None:
            array = self._assembled(wanted)
            array.flags.writeable = False
            self._alive[wanted] = array
        return array

    def _assembled(self, wanted: Extents) -> Array:
        for piece in self.pieces:
            if piece.extents == wanted:
                return piece.read()
        shared = [(piece, common(piece.extents, wanted)) for piece in self.pieces]
        parts = [(piece, found) for piece, found in shared if math.prod(shape(found))]
        if sum(math.prod(shape(found)) for _, found in parts) != math.prod(shape(wanted)):
            raise ValueError(f"slices that hold less or more than {list(wanted)}")
        for piece, _ in parts:
            piece.check()
        array = np.empty(shape(wanted), dtypes.of(self.dtype))
        for piece, found in parts:
            array[_within(found, wanted)] = piece.read()[_within(found, piece.extents)]
        return array


def whole(shape: Sequence[int]) -> Extents:
    """All of a tensor."""
    return tuple((0, size) for size in shape)


def shape(extents: Extents) -> tuple[int, ...]:
    """The shape of a slice."""
    return tuple(length for _, length in extents)


def common(*slices: Extents) -> Extents:
    """What slices of a tensor share, its lengths 0 where they share nothing."""
    axes = zip(*slices, strict=True)
    shared = [(max(start for start, _ in axis), min(sum(extent) for extent in axis)) for axis in axes]
    return tuple((start, max(0, end - start)) for start, end in shared)


def parsed(words: str) -> tuple[tuple[int, ...], Extents]:
    """A tensor's shape and a slice of it, as `11 4 0,6:-` says both. Raises ValueError for anything else."""
    *sizes, extents = words.split(" ")
    full = tuple(map(int, sizes))
    found = tuple(
        (0, size) if extent == "-" else _extent(extent)
        for size, extent in zip(full, extents.split(":"), strict=True)
    )
    if any(
        start < 0 or length < 0 or start + length > size
        for (start, length), size in zip(found, full, strict=True)
    ):
        raise ValueError(f"the slice {words}")
    return full, found


def _extent(words: str) -> tuple[int, int]:
    start, length = map(int, words.split(","))
    return start, length


def _within(found: Extents, outer: Extents) -> tuple[slice, ...]:
    """Where `found` lies in an array of `outer`."""
    return tuple(
        slice(start - begin, start - begin + length)
        for (start, length), (begin, _) in zip(found, outer, strict=True)
    )
