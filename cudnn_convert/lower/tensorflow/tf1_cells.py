"""Weights as variables of TensorFlow 1's CPU cells, with optimizer slots.

The artifact computes on these variables directly. Each pseudo-layer has the variables of a hand-written CPU
network of `MultiRNNCell` or `stack_bidirectional_dynamic_rnn`, under `<scope><stem><cell>/`: a plain
`tf.train.Saver` of such a network restores them. `<scope>` is that of the source's canonical keys, else that
of its blob. An LSTM of float or half uses `BlockLSTM`, whose kernel and bias have the same order; for others
the graph splits the variables.
Source: tensorflow v1.15.0 python/ops/rnn.py, contrib/rnn/python/ops/rnn.py (scopes),
contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (CudnnCompatible* cells), core/ops/rnn_ops.cc BlockLSTM.

Slots, an optimizer's state for each weight, are kept so that training can continue with these cells. A slot
has the key `<variable>/<suffix>` and the variable's shape; that of a parameter blob is split like the blob.
The blob's two biases became one variable, and the gradient of their sum equals that of each: one half is
taken, not the sum. Scalars (`global_step`, `beta1_power`) belong to no variable.
Source: tensorflow v1.15.0 python/training/slot_creator.py `_create_slot_var`, python/training/optimizer.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from cudnn_convert.errors import UnsupportedModelError
from cudnn_convert.graph.graph import Graph
from cudnn_convert.graph.index import split
from cudnn_convert.graph.session import checkpoint_key, variable_ops
from cudnn_convert.lower.tensorflow import layer_stack, lower
from cudnn_convert.model import Array, Cell, InMemory, Mode, Model, Recurrence, Tensor
from cudnn_convert.recurrences import parameter_source, weight_copies
from cudnn_convert.weights import layouts, parameter_blob

_BOTH_WAYS: Final = "stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/"
#: The scopes of a layer's cells, by the number of directions.
_STEMS: Final = {1: ("rnn/multi_rnn_cell/cell_{layer}/",), 2: (f"{_BOTH_WAYS}fw/", f"{_BOTH_WAYS}bw/")}


@dataclass(frozen=True, slots=True)
class _Kind:
    """A cell of TensorFlow 1.

    `scope` and `layout` are those of its variables; `forget_bias` is what it adds to the forget gate.
    """

    scope: str
    layout: layouts.Layout
    forget_bias: float = 0.0


def _kind(mode: Mode, cell: str) -> _Kind:
    """Return the cell of a mode, for an LSTM as named by `--cell`."""
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
    """The CPU cells of a plan; `prefixes` has the scope for each `Recurrence.shared`."""

    prefixes: Mapping[str, str]
    cell: str
    lowering: str

    @property
    def form(self) -> lower.WeightForm:
        """The cells as a `WeightForm` of `lower.tensorflow.lower.lower`."""
        return lower.WeightForm(lambda recurrence: self.tensors(recurrence, recurrence.cells), self.compute)

    def tensors(
        self, recurrence: Recurrence, cells: Sequence[Sequence[Cell]], *, adjusted: bool = True
    ) -> dict[str, Array]:
        """Return the variables of a recurrence by key, in the order of `compute`.

        `cells` are `[layer][direction]`. `adjusted`: subtract the forget bias that the cell adds, as for
        weights but not for slots.
        """
        kind = _kind(recurrence.sizes.mode, self.cell)
        added = kind.forget_bias if adjusted else 0.0
        return {
            f"{stem}{key}": value
            for stem, cell in zip(self.stems(recurrence), chain.from_iterable(cells), strict=True)
            for key, value in layouts.pack_cell(cell, kind.layout, forget_bias=added).items()
        }

    def stems(self, recurrence: Recurrence) -> Iterator[str]:
        """Yield the scope of each pseudo-layer's variables, with trailing slash, layer by layer."""
        sizes, prefix = recurrence.sizes, self.prefixes[recurrence.shared]
        cell = _kind(sizes.mode, self.cell).scope
        for layer in range(sizes.layers):
            for stem in _STEMS[sizes.directions]:
                yield f"{prefix}{stem.format(layer=layer)}{cell}/"

    def compute(self, recurrence: Recurrence) -> Callable[..., tuple[Any, Any, Any]]:
        """Return the function of `layer_stack.stack`, for the arrays of `tensors`."""
        kind = _kind(recurrence.sizes.mode, self.cell)
        if layer_stack.uses_block(recurrence, self.lowering):
            return layer_stack.stack(recurrence, self.lowering, forget_bias=kind.forget_bias)
        loop = layer_stack.stack(recurrence, self.lowering)
        cells = list(chain.from_iterable(recurrence.cells))

        def compute(x: Any, h: Any, c: Any, lengths: Any, *arrays: Any) -> tuple[Any, Any, Any]:
            each = len(arrays) // len(cells)
            taken = [arrays[start : start + each] for start in range(0, len(arrays), each)]
            groups = [
                layer_stack.loop(cell, group, forget_bias=kind.forget_bias)
                for cell, group in zip(cells, taken, strict=True)
            ]
            return loop(x, h, c, lengths, *(array for group in groups for array in group))

        return compute


def cells(model: Model, graph: Any, recurrences: Sequence[Recurrence], *, cell: str, lowering: str) -> Cells:
    """Return the CPU cells of a plan with a `graph`; `cell` and `lowering` are flags.

    Raises UnsupportedModelError where the name of a variable is taken.
    """
    result = Cells(_prefixes(model, recurrences, cell), cell, lowering)
    taken = {node.name for node in graph.node}
    clashes = [
        f"{key}: --format checkpoint: expected a free name for a cell's variable, found an op of the graph"
        for recurrence in recurrences
        for key in result.tensors(recurrence, recurrence.cells)
        if key in taken
    ]
    if clashes:
        raise UnsupportedModelError(model.path, clashes)
    return result


def _prefixes(model: Model, recurrences: Sequence[Recurrence], cell: str) -> dict[str, str]:
    """Return the scope for each blob: the blob's own, or the name on a clash."""
    prefixes: dict[str, tuple[str, str, int]] = {}
    for recurrence in recurrences:
        sizes, name = recurrence.sizes, recurrence.shared
        canonical = weight_copies.match_by_scope(
            model, name, sizes.mode, sizes.directions, projection=sizes.projection
        )
        around = name.rpartition("/")[0]
        prefix = f"{around}/" if around else ""
        # Only contrib's keys begin with a variable scope.
        if canonical is not None and canonical.dialect == "contrib":
            prefix = canonical.scope
        prefixes[name] = (prefix, _kind(sizes.mode, cell).scope, sizes.directions)
    places = [*prefixes.values()]
    return {
        name: described_prefix[0] if places.count(described_prefix) == 1 else f"{name}/"
        for name, described_prefix in prefixes.items()
    }


#: tensorflow v1.15.0 python/training/moving_averages.py: a copy of the weights, not an optimizer's memory.
_AVERAGES: Final = frozenset({"ExponentialMovingAverage"})


@dataclass(frozen=True, slots=True)
class Slots:
    """A source's slots: of kept variables, of blobs, of lost variables, and scalars."""

    plain: Mapping[str, Tensor]
    blobs: Mapping[str, Tensor]
    lost: tuple[str, ...]
    scalars: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.plain) + len(self.blobs) + len(self.lost)


def find(model: Model, graph: Graph, recurrences: Sequence[Recurrence], outputs: Sequence[str]) -> Slots:
    """Find the slots of the variables of `graph`, with cuDNN nodes still present.

    `outputs` are its output tensors.
    """
    gone = parameter_source.parameters_only(graph.index, [split(name)[0] for name in outputs])
    blobs = {recurrence.shared for recurrence in recurrences}
    owners = {checkpoint_key(node): node.name in gone for node in variable_ops(graph)}
    plain, split_up, lost, scalars = {}, {}, [], {}
    for key, tensor in model.variables.items():
        owner, _, suffix = key.rpartition("/")
        if key in owners:
            continue
        if tensor.shape == ():
            scalars[key] = tensor
        elif owner in owners and suffix not in _AVERAGES and _same_shape(model, owner, tensor):
            if owner in blobs:
                split_up[key] = tensor
            elif owners[owner]:
                lost.append(key)
            else:
                plain[key] = tensor
    return Slots(plain, split_up, tuple(lost), scalars)


def _same_shape(model: Model, owner: str, tensor: Tensor) -> bool:
    return owner in model.variables and model.variables[owner].shape == tensor.shape


def keep_slots(slots: Slots, recurrences: Sequence[Recurrence], cells: Cells) -> dict[str, Tensor]:
    """Return the slots and scalars by key, with blobs' slots split for cells' variables."""
    by_blob = {recurrence.shared: recurrence for recurrence in recurrences}
    slots_by_name = {**slots.plain, **slots.scalars}
    for key, tensor in slots.blobs.items():
        owner, _, suffix = key.rpartition("/")
        recurrence = by_blob[owner]
        layers = parameter_blob.split(tensor.read(), recurrence.sizes, where=key)
        halved = [[layouts.one_bias(cell) for cell in layer] for layer in layers]
        for name, value in cells.tensors(recurrence, halved, adjusted=False).items():
            slots_by_name[f"{name}/{suffix}"] = InMemory(value)
    return slots_by_name
