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
    kernel, recurrent, bias, candidate, candidate_bias, recurrent_candidate, recurrent_bias = arrays
    pairs = ((kernel, candidate), (recurrent, recurrent_candidate), (bias, candidate_bias))
    (kernel, candidate), (recurrent, recurrent_candidate), (bias, candidate_bias) = map(_in_order, pairs)
    return kernel, recurrent, bias, candidate, recurrent_candidate, candidate_bias, recurrent_bias


def _in_order(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Columns of both gates, and those of the candidate."""
    order = layouts.moves(Mode.GRU, layouts.COMPATIBLE_GRU, layouts.LOOP)
    if order == sorted(order):
        return pair
    blocks = [*tf.split(pair[0], 2, -1), pair[1]]
    *gates, candidate = (blocks[place] for place in order)
    return tf.concat(gates, -1), candidate


def moved(array: Any, mode: Mode, source: Layout, target: Layout) -> Any:
    """Columns, the last axis, whose gates lie as in `source`, in the order of `target`."""
    order = layouts.moves(mode, source, target)
    if order == sorted(order):
        return array
    blocks = tf.split(array, len(order), -1)
    return tf.concat([blocks[place] for place in order], -1)
