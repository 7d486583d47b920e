"""A loop's weights that are made when they are written: those of one pseudo-layer are in memory at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cudnn_convert.lower import steps
from cudnn_convert.model import Array, Recurrence, Tensor


class Making:
    """The arrays of a recurrence's pseudo-layers; each is handed out once, and then made again."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._recurrence = recurrence
        self._place: tuple[int, int] | None = None
        self._made: dict[str, Array] = {}

    def made(self, layer: int, way: int, name: str) -> Array:
        """One array; those beside it stay until another pseudo-layer is asked for."""
        if self._place != (layer, way) or name not in self._made:
            self._made, self._place = {}, (layer, way)
            self._made = steps.weights(self._recurrence.cells[layer][way])
        return self._made.pop(name)

    def tensors(self, layer: int, way: int) -> Mapping[str, Tensor]:
        """Those of one pseudo-layer by name, in order, not made yet."""
        shapes = steps.shapes(self._recurrence.sizes, layer)
        kind = self._recurrence.dtype
        return {name: Deferred(self, (layer, way, name), shape, kind) for name, shape in shapes.items()}


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
