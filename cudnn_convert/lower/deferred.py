"""The arrays of a lowering that are made when they are written: one pseudo-layer is in memory at a time.

What a graph must know of them before, their names and shapes, is taken from cells of a few values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cudnn_convert.lower import recurrence as body
from cudnn_convert.model import Array, Cell, InMemory, Recurrence, Tensor

#: More than any array has gates in one axis: in a length of these cells, digits say what it is made of.
_BASE: Final = 16


class Making:
    """The arrays of a recurrence's pseudo-layers; each is handed out once, and then made again."""

    def __init__(self, recurrence: Recurrence, *, block: bool) -> None:
        self._recurrence, self._block = recurrence, block
        self._place: tuple[int, int] | None = None
        self._made: dict[str, Array] = {}

    def made(self, layer: int, way: int, name: str) -> Array:
        """One array; those beside it stay until another pseudo-layer is asked for."""
        if self._place != (layer, way) or name not in self._made:
            self._made, self._place = {}, (layer, way)
            self._made = body.weights(self._recurrence.cells[layer][way], block=self._block)
        return self._made.pop(name)

    def arrays(self, layer: int, way: int) -> Mapping[str, Tensor]:
        """Those of one pseudo-layer by name, in order, made now."""
        made = body.weights(self._recurrence.cells[layer][way], block=self._block)
        return {name: InMemory(value) for name, value in made.items()}

    def tensors(self, layer: int, way: int) -> Mapping[str, Tensor]:
        """Those of one pseudo-layer by name, in order, not made yet."""
        found = _shapes(self._recurrence, layer, block=self._block)
        return {
            name: Deferred(self, (layer, way, name), shape, dtype) for name, (shape, dtype) in found.items()
        }


@dataclass(frozen=True, slots=True)
class Deferred:
    """One array of a lowering as a tensor."""

    making: Making
    place: tuple[int, int, str]
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def read(self) -> Array:
        """The array, made of weights that are read now. Raises ReadError."""
        return self.making.made(*self.place)


def outlined(recurrence: Recurrence) -> Recurrence:
    """The recurrence with cells of a few values where no numbers matter to the graph that computes it."""
    if recurrence.sizes.projection:
        return recurrence  # how it is computed depends on the matrix
    return replace(recurrence, cells=((_outline(recurrence),),))


def _outline(recurrence: Recurrence) -> Cell:
    """Its numbers are digits: width 1, with a projection `_BASE` units, and `_BASE` times as many inputs."""
    gates, kind = len(recurrence.sizes.mode.gates), recurrence.dtype
    units = _BASE if recurrence.sizes.projection else 1
    return Cell(
        recurrence.sizes.mode,
        np.ones((gates, units, _BASE * units), kind),
        np.ones((gates, units, 1), kind),
        np.ones((gates, units), kind),
        np.ones((gates, units), kind),
        np.ones((1, units), kind) if recurrence.sizes.projection else None,
    )


def _shapes(
    recurrence: Recurrence, layer: int, *, block: bool
) -> dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]:
    """Of each array of a pseudo-layer: every length is a sum of inputs, units and widths."""
    sizes = recurrence.sizes
    least_first = [sizes.width, *([sizes.units] if sizes.projection else []), sizes.inputs(layer)]

    def length(found: int) -> int:
        total = 0
        for width in least_first:
            found, count = divmod(found, _BASE)
            total += count * width
        return total

    made = body.weights(_outline(recurrence), block=block)
    return {name: (tuple(map(length, value.shape)), value.dtype) for name, value in made.items()}
