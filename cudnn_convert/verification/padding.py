"""Inputs in which a value stands for padding: ids of 0 before a masking embedding, rows of 0 before Masking.

Keras' cuDNN path accepts such an input only where each row is padded on the right and has at least one step
(keras v3.15.0 src/backend/tensorflow/rnn.py `_assert_valid_mask`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cudnn_convert.graph import fold
from cudnn_convert.graph.index import Index, split
from cudnn_convert.model import Array

_CARRIERS: Final = frozenset({"Identity", "Cast"})


def value(index: Index, name: str) -> Any:
    """The scalar that pads the input `name`, the one it is compared with for a mask; None where none is."""
    todo = [name]
    while todo:
        current = todo.pop()
        op, k = split(current)
        for reader in index.consumers(op, k):
            inputs = index.data_inputs(reader)
            if reader.op == "NotEqual" and current in inputs:
                other = inputs[1 - inputs.index(current)]
                if (found := fold.scalar(index, other)) is not None:
                    return found
            if reader.op in _CARRIERS:
                todo.append(f"{reader.name}:0")
    return None


def padded(
    rng: np.random.Generator, drawn: Array, padding: Any, roles: Sequence[str | None], *, rows: int | None
) -> Array:
    """`drawn` with each row of a random length: `padding` from there on and nowhere before, if there is any.

    `roles` calls each axis `time`, `batch` or None. `rows`: how many different ids there are.
    """
    if padding is None or drawn.ndim < 2:
        return drawn
    pad = np.asarray(padding, drawn.dtype)
    batch = roles.index("batch") if "batch" in roles else 0
    time = roles.index("time") if "time" in roles else next(axis for axis in (0, 1) if axis != batch)
    free = drawn == pad
    filled = np.where(free, (pad + 1) % rows if rows else pad + 1, drawn).astype(drawn.dtype)
    lengths = rng.integers(1, drawn.shape[time] + 1, drawn.shape[batch])
    along = [1] * drawn.ndim
    along[time] = -1
    across = [1] * drawn.ndim
    across[batch] = -1
    alive = np.arange(drawn.shape[time]).reshape(along) < lengths.reshape(across)
    return np.where(alive, filled, pad)
