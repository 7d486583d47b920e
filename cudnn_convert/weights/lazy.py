"""Weights larger than memory, read part by part.

Layers and tensors are read on access. Small recurrences are decoded once and kept
(`exceeds_memory_budget`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from cudnn_convert import context
from cudnn_convert.model import Array, Cell, Recurrence, Sizes, Tensor
from cudnn_convert.weights.parameter_blob import length

#: Cells `[layer][direction]`, all there or made when they are asked for.
Cells: TypeAlias = Sequence[tuple[Cell, ...]]
#: A recurrence with more bytes of weights than this stays in its file.
LARGE: Final = 1 << 28
#: So many values are looked at at a time: they stay in a processor's cache.
_CHUNK: Final = 1 << 16


def exceeds_memory_budget(sizes: Sizes, dtype: np.dtype[Any]) -> bool:
    """Return True if a recurrence's weights are decoded layer by layer on each access."""
    return length(sizes) * dtype.itemsize > LARGE


class LazyLayers(Sequence[tuple[Cell, ...]]):
    """The cells of a recurrence, decoded on access; the last layer stays in memory.

    `decode` returns the cells of a layer. Raises what `decode` raises, and IndexError.
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
            layer = self._decode(number)
            if number not in self._seen:
                self._seen[number] = all(map(is_finite, layer))
            self._last = number, layer
        return self._last[1]

    @property
    def finite(self) -> bool:
        """True if all layers read so far have finite weights only."""
        return all(self._seen.values())

    def change_cells(self, change: Callable[[Cell], Cell]) -> LazyLayers:
        """Return the layers with `change` applied to each cell at decoding."""
        return LazyLayers(self._count, lambda number: tuple(map(change, self._decode(number))))


def map_cells(cells: Cells, change: Callable[[Cell], Cell]) -> LazyLayers:
    """Return the cells with `change` applied on access."""
    if isinstance(cells, LazyLayers):
        return cells.change_cells(change)
    return LazyLayers(len(cells), lambda number: tuple(map(change, cells[number])))


def is_finite(cell: Cell) -> bool:
    """Return True if all weights are finite."""
    parts = (cell.kernel, cell.recurrent_kernel, cell.bias, cell.recurrent_bias, cell.projection)
    return all(_is_finite(part) for part in parts if part is not None)


def _is_finite(part: Array) -> bool:
    if part.size <= _CHUNK:
        return bool(np.isfinite(part).all())
    rows = part.swapaxes(0, -1) if part.strides[0] < part.strides[-1] else part
    step = max(1, _CHUNK * len(rows) // rows.size)
    return all(bool(np.isfinite(rows[k : k + step]).all()) for k in range(0, len(rows), step))


class Read(Mapping[str, Array]):
    """Arrays by name, each read on access.

    Raises what `read` raises, KeyError.
    """

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
    """Map names to arrays, read on access."""
    return Read(tensors, lambda name: tensors[name].read())


def size(tensor: Tensor) -> int:
    """Return the size of a tensor in bytes, from shape and dtype.

    The tensor is not read.
    """
    return math.prod(tensor.shape) * tensor.dtype.itemsize


def report_lowered(recurrences: Sequence[Recurrence], number: int) -> None:
    """Report progress: the bytes of weights in the first `number` recurrences, now lowered."""
    sizes = [length(each.sizes) * each.dtype.itemsize for each in recurrences]
    context.report_progress("lowering", sum(sizes[:number]), sum(sizes))
