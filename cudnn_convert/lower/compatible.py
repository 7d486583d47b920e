"""Weights kept as the variables of TensorFlow 1's CPU cells, and computed on as they are.

Each pseudo-layer has the variables that a hand-written CPU network of `MultiRNNCell` or
`stack_bidirectional_dynamic_rnn` has, under `<scope><stem><cell>/`: a plain `tf.train.Saver` of such a
network restores them. `<scope>` is that of the source's canonical keys, else that of its blob. An LSTM of
float or half goes through `BlockLSTM`, which takes a kernel and a bias in that very order; everything else
has them taken apart in the graph.
Source: tensorflow v1.15.0 python/ops/rnn.py, contrib/rnn/python/ops/rnn.py (scopes),
contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (CudnnCompatible* cells), core/ops/rnn_ops.cc BlockLSTM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from cudnn_convert import layouts
from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.pairing import by_scope
from cudnn_convert.layouts import Layout
from cudnn_convert.lower import rearrange
from cudnn_convert.lower import recurrence as body
from cudnn_convert.lower.tensorflow import Form
from cudnn_convert.model import Array, Cell, Mode, Model, Recurrence

_STEMS: Final = MappingProxyType(
    {
        1: ("rnn/multi_rnn_cell/cell_{layer}/",),
        2: (
            "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/fw/",
            "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/bw/",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A cell of TensorFlow 1: its variables' scope and order, and what it adds to the forget gate."""

    scope: str
    layout: Layout
    forget_bias: float = 0.0


def _kind(mode: Mode, cell: str) -> _Kind:
    """The cell of a mode; `cell`, the value of `--cell`, chooses an LSTM's."""
    if mode is Mode.GRU:
        return _Kind("cudnn_compatible_gru_cell", layouts.CONTRIB)
    if mode is not Mode.LSTM:
        return _Kind("basic_rnn_cell", layouts.CONTRIB)
    return {
        "compatible": _Kind("cudnn_compatible_lstm_cell", layouts.CONTRIB),
        "lstm_block": _Kind("lstm_cell", layouts.LSTM_CELL, 1.0),
        "basic_lstm": _Kind("basic_lstm_cell", layouts.BASIC_LSTM_CELL, 1.0),
    }[cell]


@dataclass(frozen=True, slots=True)
class Cells:
    """The CPU cells of a plan: `prefixes` is the scope of each blob's, by `Recurrence.shared`."""

    prefixes: Mapping[str, str]
    cell: str
    lowering: str

    @property
    def form(self) -> Form:
        """These cells as a form of `lower.tensorflow.lower`."""
        return Form(lambda found: self.tensors(found, found.cells), self.compute)

    def tensors(
        self, recurrence: Recurrence, cells: Sequence[Sequence[Cell]], *, adjusted: bool = True
    ) -> dict[str, Array]:
        """Key -> array for cells `[layer][direction]` of the recurrence's sizes, as `compute` takes them.

        `adjusted`: without the forget bias that the cell adds itself, as weights are and slots are not.
        """
        kind = _kind(recurrence.sizes.mode, self.cell)
        added = kind.forget_bias if adjusted else 0.0
        return {
            f"{stem}{key}": value
            for stem, cell in zip(self.stems(recurrence), _each(cells), strict=True)
            for key, value in layouts.pack_cell(cell, kind.layout, forget_bias=added).items()
        }

    def stems(self, recurrence: Recurrence) -> Iterator[str]:
        """The scope of each pseudo-layer's variables, with its slash, layer by layer."""
        sizes, prefix = recurrence.sizes, self.prefixes[recurrence.shared]
        cell = _kind(sizes.mode, self.cell).scope
        for layer in range(sizes.layers):
            for stem in _STEMS[sizes.directions]:
                yield f"{prefix}{stem.format(layer=layer)}{cell}/"

    def compute(self, recurrence: Recurrence) -> Callable[..., tuple[Any, Any, Any]]:
        """As `recurrence.stack`, on the arrays of `tensors`."""
        kind = _kind(recurrence.sizes.mode, self.cell)
        if body.uses_block(recurrence, self.lowering):
            return body.stack(recurrence, self.lowering, forget_bias=kind.forget_bias)
        loop = body.stack(recurrence, self.lowering)
        cells = list(_each(recurrence.cells))

        def compute(x: Any, h: Any, c: Any, lengths: Any, *arrays: Any) -> tuple[Any, Any, Any]:
            each = len(arrays) // len(cells)
            taken = [arrays[start : start + each] for start in range(0, len(arrays), each)]
            groups = [
                rearrange.loop(cell, group, forget_bias=kind.forget_bias)
                for cell, group in zip(cells, taken, strict=True)
            ]
            return loop(x, h, c, lengths, *(array for group in groups for array in group))

        return compute


def cells(model: Model, graph: Any, recurrences: Sequence[Recurrence], *, cell: str, lowering: str) -> Cells:
    """The CPU cells of a plan with its `graph`; `cell` and `lowering` are the flags of those names.

    Raises UnsupportedModelError where a cell of TensorFlow 1 cannot hold the weights.
    """
    made = Cells(_prefixes(model, recurrences, cell), cell, lowering)
    taken = {node.name for node in graph.node}
    clashes = [
        f"{key}: --format checkpoint: expected a free name for a cell's variable, found an op of the graph"
        for recurrence in recurrences
        for key in made.tensors(recurrence, recurrence.cells)
        if key in taken
    ]
    if clashes:
        raise UnsupportedModelError(model.path, clashes)
    return made


def _prefixes(model: Model, recurrences: Sequence[Recurrence], cell: str) -> dict[str, str]:
    """The scope of each blob; the blob's own name where two of one scope would have the same keys."""
    found: dict[str, tuple[str, str, int]] = {}
    for recurrence in recurrences:
        sizes, name = recurrence.sizes, recurrence.shared
        canonical = by_scope(model, name, sizes.mode, sizes.directions)
        around = name.rpartition("/")[0]
        prefix = f"{around}/" if around else ""
        # Only contrib's keys begin with a variable scope.
        if canonical is not None and canonical.dialect == "contrib":
            prefix = canonical.scope
        found[name] = (prefix, _kind(sizes.mode, cell).scope, sizes.directions)
    places = [*found.values()]
    return {name: place[0] if places.count(place) == 1 else f"{name}/" for name, place in found.items()}


def _each(layers: Sequence[Sequence[Cell]]) -> Iterator[Cell]:
    return (cell for layer in layers for cell in layer)
