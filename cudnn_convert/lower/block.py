"""A pseudo-layer of an LSTM as `BlockLSTM`, one kernel call for all steps.

`BlockLSTMV2` would do too, but TensorFlow gives it the gradient of `BlockLSTM`, whose gates lie elsewhere.
Projected LSTMs take it with matrices made from the stored ones (`projection`), of its own precision.
Source: tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTM, python/ops/rnn_grad.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import tensorflow as tf

from cudnn_convert import layouts
from cudnn_convert.lower import projection
from cudnn_convert.lower.sequences import alive, at_end, backwards, times
from cudnn_convert.lower.steps import State
from cudnn_convert.model import Array, Cell, Mode

#: The op's own defaults clip the cell state at 3 and add 1 to the forget gate.
BLOCK: Final = partial(tf.raw_ops.BlockLSTM, forget_bias=0.0, cell_clip=-1.0)


def weights(cell: Cell) -> dict[str, Array]:
    """The arrays that `layer` takes, by name and in order."""
    kernel = layouts.stacked_columns(projection.composed(cell), layouts.BLOCK_LSTM_V1)
    found = {"kernel": kernel, "bias": layouts.summed_bias(cell, layouts.BLOCK_LSTM_V1)}
    found |= zip(["projection"], layouts.projection_columns(cell), strict=False)
    if (inverse := projection.inverse(cell)) is not None:
        found["projection_inverse"] = inverse
    return found


def count(cell: Cell) -> int:
    """How many arrays those are; none is made."""
    inverse = projection.inverse(cell) is not None
    return 2 + len(layouts.projection_columns(cell)) + inverse


def layer(
    mode: Mode, x: Any, state: State, lengths: Any, arrays: Sequence[Any], *, backward: bool, op: Any = None
) -> tuple[Any, Any, Any]:
    """`y [time, batch, width]` and the final states; `op` is `BLOCK`, or takes the same arguments."""
    (kernel, bias, *projected), (h0, c0) = arrays, state
    x = backwards(x, lengths) if backward else x
    unused = tf.zeros([kernel.shape[1] // 4], x.dtype)  # peepholes
    steps = tf.cast(tf.shape(x)[0], tf.int64)
    start = h0 @ projected[1] if projected else h0
    _, cs, _, _, _, _, y = (op or BLOCK)(
        seq_len_max=steps, x=x, cs_prev=c0, h_prev=start, w=kernel, wci=unused, wcf=unused, wco=unused, b=bias
    )
    y = times(y, projected[0]) if projected else y
    h, c = at_end(h0, y, lengths), at_end(c0, cs, lengths)
    y = y if lengths is None else tf.where(alive(x, lengths), y, tf.zeros_like(y))
    return backwards(y, lengths) if backward else y, h, c
