"""What the signature of a recurrence without a graph takes and gives: `inputs` to `outputs` and states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudnn_convert.graph.graphless import Alone
from cudnn_convert.model import Mode, Recurrence, Signature

#: A type and widths, the open ones by name: `time`, `batch`.
Spec = tuple[np.dtype[Any], tuple[int | str, ...]]


@dataclass(frozen=True, slots=True)
class Interface:
    """What the signatures are to look like. `layout` is `time`, `batch`, or None for the layer's own.

    `states`: take initial states `initial_h` (and `initial_c`), `[layers*directions, batch, units]`;
    `lengths`: take `sequence_lengths`, int32 `[batch]`.
    """

    layout: str | None = None
    states: bool = False
    lengths: bool = False

    def batch_major(self, one: Alone) -> bool:
        """Whether the axes of `inputs` and `outputs` are `[batch, time, ...]`."""
        return one.batch_major if self.layout is None else self.layout == "batch"

    def notes(self, one: Alone) -> Iterator[str]:
        """What was decided about one recurrence without being asked for."""
        if one.note:
            yield one.note
        if self.layout is None:
            major = "batch" if one.batch_major else "time"
            yield f"{one.name}: inputs and outputs are {major}-major, as its layer's; --layout chooses"


@dataclass(frozen=True, slots=True)
class Single:
    """A recurrence that is a signature of its own, with nothing around it; `recurrence` is time-major."""

    name: str
    recurrence: Recurrence
    batch_major: bool
    states: bool

    @property
    def inputs(self) -> Mapping[str, Spec]:
        """By key, in order."""
        dtype, sizes = self.recurrence.dtype, self.recurrence.sizes
        found: dict[str, Spec] = {"inputs": (dtype, (*self._axes, sizes.input_size))}
        if self.states:
            found |= {f"initial_{key}": spec for key, spec in self._states.items()}
        if self.recurrence.lengths:
            found["sequence_lengths"] = (np.dtype(np.int32), ("batch",))
        return found

    @property
    def outputs(self) -> Mapping[str, Spec]:
        """By key, in order."""
        dtype, sizes = self.recurrence.dtype, self.recurrence.sizes
        found: dict[str, Spec] = {"outputs": (dtype, (*self._axes, sizes.directions * sizes.width))}
        return found | {f"state_{key}": spec for key, spec in self._states.items()}

    @property
    def signature(self) -> Signature:
        """Keys to tensors, named as they would be in a graph."""
        named = ({key: f"{self.name}/{key}:0" for key in ends} for ends in (self.inputs, self.outputs))
        return Signature(*named)

    @property
    def _axes(self) -> tuple[str, str]:
        return ("batch", "time") if self.batch_major else ("time", "batch")

    @property
    def _states(self) -> dict[str, Spec]:
        sizes = self.recurrence.sizes
        keys = ("h", "c") if sizes.mode is Mode.LSTM else ("h",)
        depth = sizes.layers * sizes.directions
        shapes = ((depth, "batch", width) for width in (sizes.width, sizes.units))
        return {key: (self.recurrence.dtype, shape) for key, shape in zip(keys, shapes, strict=False)}
