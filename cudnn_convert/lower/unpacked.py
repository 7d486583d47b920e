"""A parameter blob taken apart at run time: for a blob that a program may still change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cudnn_convert import layouts, opaque
from cudnn_convert.layouts import LOOP
from cudnn_convert.model import Array, Cell, Convention, Mode, Sizes


def arrays(blob: Any, sizes: Sizes, convention: Convention) -> Iterator[Any]:
    """The tensors of each pseudo-layer in turn, in the form of the loop (`recurrence.weights`).

    Where each lies is asked of `opaque` and `layouts`, by the places of the blob's elements.
    """
    places = np.arange(opaque.length(sizes))
    for number, layer in enumerate(opaque.split(places, sizes, where="params")):
        for cell in layer:
            found = layouts.conventional(cell, convention, canonical=False)
            skipped = number == 0 and sizes.skip_input
            yield from _cell(blob, found, skipped=skipped)


def count(sizes: Sizes) -> int:
    """How many tensors a pseudo-layer has."""
    return 3 + (sizes.mode is Mode.GRU) + bool(sizes.projection)


def _cell(blob: Any, cell: Cell, *, skipped: bool) -> Iterator[Any]:
    kernel, recurrent = layouts.columns(cell, LOOP)
    yield tf.constant(kernel, blob.dtype) if skipped else _matrix(blob, kernel, cell)
    yield _matrix(blob, recurrent, cell)
    bias, recurrent_bias = (_row(blob, places, cell) for places in layouts.biases(cell, LOOP))
    yield from [bias, recurrent_bias] if cell.mode is Mode.GRU else [bias + recurrent_bias]
    for projection in layouts.projection_columns(cell):
        yield _block(blob, projection)


def _matrix(blob: Any, places: Array, cell: Cell) -> Any:
    """`[inputs, gates*units]`: the blob has each gate's part as rows."""
    parts = np.split(places, len(cell.mode.gates), axis=1)
    return tf.concat([_block(blob, part) for part in parts], 1)


def _block(blob: Any, places: Array) -> Any:
    """A matrix that the blob has transposed, `[columns, rows]`, value after value."""
    rows, columns = places.shape
    first = int(places[0, 0])
    return tf.transpose(tf.reshape(blob[first : first + places.size], [columns, rows]))


def _row(blob: Any, places: Array, cell: Cell) -> Any:
    parts = np.split(places, len(cell.mode.gates))
    return tf.concat([blob[int(part[0]) : int(part[0]) + part.size] for part in parts], 0)
