"""A recurrence of a graph, as far as the graph and the shapes of tensors tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudnn_convert.graph.index import CUDNN_OPS
from cudnn_convert.inspection.value import Found, Held
from cudnn_convert.model import CanonicalParameters, Mode, Sizes


@dataclass(frozen=True, slots=True)
class Seen:
    """A recurrence of a graph; a size is None where no static shape and no tensor tells it.

    `blob` is the variable or constant of its parameters, `matrices` what they are computed from; `keys` its
    set of canonical keys.
    """

    mode: Mode
    layers: int | None
    directions: int
    units: int | None
    input_size: int | None
    projection: int
    dtype: np.dtype[Any]
    time_major: bool
    lengths: bool
    dropout: float
    skip_input: bool = False
    blob: Held | None = None
    matrices: tuple[Held, ...] = ()
    keys: CanonicalParameters | None = None

    @property
    def sizes(self) -> Sizes | None:
        """All sizes, where all are known."""
        if self.layers is None or self.units is None or self.input_size is None:
            return None
        return Sizes(
            self.mode,
            self.layers,
            self.directions,
            self.units,
            self.input_size,
            self.skip_input,
            self.projection,
        )

    def found(self, node: Any) -> Found:
        """What the inspection shows of the node by itself."""
        axes = ("time", "batch", "input") if self.time_major else ("batch", "time", "input")
        return Found(
            name=node.name,
            op=node.op,
            function=None,
            needs_gpu=node.op in CUDNN_OPS,
            live=None,
            mode=self.mode.value,
            layers=self.layers,
            directions=self.directions,
            units=self.units,
            input_size=self.input_size,
            projection=self.projection,
            dtype=self.dtype.name,
            axes=("batch", "input") if node.op == "LSTMBlockCell" else axes,
            lengths=self.lengths,
            dropout=self.dropout,
            raw=(),
            canonical=(),
            copies="none",
            settings={"skip_input": True} if self.skip_input else {},
        )
