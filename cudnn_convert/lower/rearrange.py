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
    kernel, bias, *candidate = arrays
    if cell.mode is Mode.GRU:
        return _gru(kernel[:inputs], kernel[inputs:], bias, *candidate)
    if forget_bias:
        bias += layouts.forget_row(cell, layouts.BLOCK_LSTM_V1, forget_bias)
    if cell.mode is Mode.LSTM:
        kernel, bias = (
            moved(array, cell.mode, layouts.BLOCK_LSTM_V1, layouts.LOOP) for array in (kernel, bias)
        )
    return kernel[:inputs], kernel[inputs:], bias


def _gru(*arrays: Any) -> tuple[Any, ...]:
    """`arrays`: the gates' kernel, recurrent kernel and bias; the candidate's, input before state."""
    *gates, candidate, bias, recurrent_candidate, recurrent_bias = arrays
    order = (Mode.GRU, layouts.COMPATIBLE_GRU, layouts.LOOP)
    moved_gates = (moved(array, *order, gates=2) for array in gates)
    return (*moved_gates, candidate, recurrent_candidate, bias, recurrent_bias)


def moved(array: Any, mode: Mode, source: Layout, target: Layout, *, gates: int | None = None) -> Any:
    """Columns, the last axis, whose gates lie as in `source`, in the order of `target`.

    `gates`: how many there are columns of, the first of each layout; all without it.
    """
    order = layouts.moves(mode, source, target)[:gates]
    if order == sorted(order):
        return array
    blocks = tf.split(array, len(order), -1)
    return tf.concat([blocks[place] for place in order], -1)
