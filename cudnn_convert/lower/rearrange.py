"""From the variables of TensorFlow 1's CPU cells to what the loop of `recurrence` takes, in the graph.

The order of columns is taken from the op or the cell that reads the same variables, not from the row of
`layouts` that they were packed by: a wrong row is to show when the artifact is verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from cudnn_convert import layouts
from cudnn_convert.layouts import Layout
from cudnn_convert.model import Cell, Mode


def loop(cell: Cell, arrays: Sequence[Any], *, forget_bias: float) -> tuple[Any, ...]:
    """The tensors that `recurrence.weights` names, from those of `layouts.pack_cell`."""
    inputs = cell.kernel.shape[-1]
    if cell.mode is Mode.GRU:
        return _gru(inputs, *arrays)
    kernel, bias = arrays
    if forget_bias:
        bias += layouts.forget_row(cell, layouts.BLOCK_LSTM_V1, forget_bias)
    if cell.mode is Mode.LSTM:
        kernel, bias = (
            moved(array, cell.mode, layouts.BLOCK_LSTM_V1, layouts.LOOP) for array in (kernel, bias)
        )
    return kernel[:inputs], kernel[inputs:], bias


def _gru(inputs: int, kernel: Any, bias: Any, *candidate: Any) -> tuple[Any, ...]:
    """`candidate`: kernel and bias of the input's projection, then of the state's."""
    columns = (
        tf.concat([kernel[:inputs], candidate[0]], 1),
        tf.concat([kernel[inputs:], candidate[2]], 1),
        tf.concat([bias, candidate[1]], 0),
        tf.concat([tf.zeros_like(bias), candidate[3]], 0),
    )
    return tuple(moved(array, Mode.GRU, layouts.COMPATIBLE_GRU, layouts.LOOP) for array in columns)


def moved(array: Any, mode: Mode, source: Layout, target: Layout) -> Any:
    """Columns, the last axis, whose gates lie as in `source`, in the order of `target`."""
    order = layouts.moves(mode, source, target)
    if order == sorted(order):
        return array
    blocks = tf.split(array, len(order), -1)
    return tf.concat([blocks[place] for place in order], -1)
