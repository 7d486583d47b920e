"""Weights too large to be in memory all at once: layers and tensors that are read when they are asked for.

What is small is read and decoded once, and stays: `are_large` tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from cudnn_convert import opaque
from cudnn_convert.model import Array, Cell, Sizes, Tensor

#: Cells `[layer][direction]`, all there or made when they are asked for.
Cells: TypeAlias = Sequence[tuple[Cell, ...]]
#: A recurrence with more bytes of weights than this stays in its file.
LARGE: Final = 1 << 28
#: So many values are looked at at a time: they stay in a processor's cache.
_CHUNK: Final = 1 << 16


def are_large(sizes: Sizes, dtype: np.dtype[Any]) -> bool:
    """Whether the weights of a recurrence are decoded layer by layer, again wherever they are needed."""
    return opaque.length(sizes) * dtype.itemsize > LARGE


class Layers(Sequence[tuple[Cell, ...]]):
    """The cells of a recurrence; `decode` gives those of a layer, of which the last one stays in memory.

    Raises what `decode` raises, and IndexError.
    """

    def __init__(self, count: int, decode: Callable[[int], tuple[Cell, ...]]) -> None:
        self._count, self._decode = count, decode
        self._last: tuple[int, tuple[Cell, ...]] | None = None
        self._seen: dict[int, bool] = {}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return tuple(self[k] for k in range(*number.indices(self._count)))
        if not -self._count <= number < self._count:
            raise IndexError(number)
        number %= self._count
        if self._last is None or self._last[0] != number:
            self._last = None  # before the next one takes its own memory
            found = self._decode(number)
            if number not in self._seen:
                self._seen[number] = all(map(is_finite, found))
            self._last = number, found
        return self._last[1]

    @property
    def finite(self) -> bool:
        """Whether the layers that were asked for so far hold numbers alone."""
        return all(self._seen.values())

    def changed(self, change: Callable[[Cell], Cell]) -> Layers:
        """These layers with each cell changed as it is decoded."""
        return Layers(self._count, lambda number: tuple(map(change, self._decode(number))))


def changed(cells: Cells, change: Callable[[Cell], Cell]) -> Layers:
    """Any cells, each changed when it is asked for."""
    if isinstance(cells, Layers):
        return cells.changed(change)
    return Layers(len(cells), lambda number: tuple(map(change, cells[number])))


def is_finite(cell: Cell) -> bool:
    """Whether all weights are numbers."""
    parts = (cell.kernel, cell.recurrent_kernel, cell.bias, cell.recurrent_bias, cell.projection)
    return all(_is_finite(part) for part in parts if part is not None)


def _is_finite(part: Array) -> bool:
    if part.size <= _CHUNK:
        return bool(np.isfinite(part).all())
    rows = part.swapaxes(0, -1) if part.strides[0] < part.strides[-1] else part
    step = max(1, _CHUNK * len(rows) // rows.size)
    return all(bool(np.isfinite(rows[k : k + step]).all()) for k in range(0, len(rows), step))


class Read(Mapping[str, Array]):
    """Arrays by name, each of which `read` gives when it is asked for. Raises what that raises, KeyError."""

    def __init__(self, names: Iterable[str], read: Callable[[str], Array]) -> None:
        self._names, self._read = dict.fromkeys(names), read

    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def read(tensors: Mapping[str, Tensor]) -> Read:
    """Tensors as arrays."""
    return Read(tensors, lambda name: tensors[name].read())


def size(tensor: Tensor) -> int:
    """The bytes of a tensor, which is not read."""
    return math.prod(tensor.shape) * tensor.dtype.itemsize
