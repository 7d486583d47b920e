"""What optimizers remember of a model's weights: kept for training on with TensorFlow 1's CPU cells.

A slot has the key `<variable>/<suffix>` and the variable's shape; that of a parameter blob is split like the
blob. Its two biases became one variable, and the gradient of their sum is that of either of them: one half is
taken, not the sum. Scalars (`global_step`, `beta1_power`) belong to no variable.
Source: tensorflow v1.15.0 python/training/slot_creator.py `_create_slot_var`, python/training/optimizer.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cudnn_convert import layouts, opaque
from cudnn_convert.graph.index import Index, split
from cudnn_convert.graph.session import variable_ops
from cudnn_convert.graph.trace import parameters_only
from cudnn_convert.graph.variables import checkpoint_key
from cudnn_convert.lower.compatible import Cells
from cudnn_convert.model import InMemory, Model, Recurrence, Tensor

#: tensorflow v1.15.0 python/training/moving_averages.py: a copy of the weights, not an optimizer's memory.
_AVERAGES: Final = frozenset({"ExponentialMovingAverage"})


@dataclass(frozen=True, slots=True)
class Slots:
    """A source's slots: of the artifact's variables, of blobs, and of variables that the artifact has not."""

    plain: Mapping[str, Tensor]
    blobs: Mapping[str, Tensor]
    lost: tuple[str, ...]
    scalars: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.plain) + len(self.blobs) + len(self.lost)


def find(model: Model, graph: Any, recurrences: Sequence[Recurrence], outputs: Sequence[str]) -> Slots:
    """The slots of the variables of `graph`, which still has its cuDNN nodes; `outputs` are its tensors."""
    gone = parameters_only(Index(graph), [split(name)[0] for name in outputs])
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


def kept(slots: Slots, recurrences: Sequence[Recurrence], cells: Cells) -> dict[str, Tensor]:
    """Key -> tensor: the slots, those of blobs under the cells' variables, and the scalars."""
    by_blob = {recurrence.shared: recurrence for recurrence in recurrences}
    found = {**slots.plain, **slots.scalars}
    for key, tensor in slots.blobs.items():
        owner, _, suffix = key.rpartition("/")
        recurrence = by_blob[owner]
        layers = opaque.split(tensor.read(), recurrence.sizes, where=key)
        halved = [[layouts.one_bias(cell) for cell in layer] for layer in layers]
        for name, value in cells.tensors(recurrence, halved, adjusted=False).items():
            found[f"{name}/{suffix}"] = InMemory(value)
    return found
