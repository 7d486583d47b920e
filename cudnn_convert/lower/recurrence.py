"""A cuDNN recurrence in TensorFlow ops that have CPU kernels in every build.

`fast` takes `BlockLSTM` for LSTMs of float and half, one kernel call for all steps. Everything else, and
`portable`, is a `while` loop over steps with the input's product hoisted out of it. Both carry the state
itself, so that a row of length 0 and a run of 0 steps give the initial state. Projected LSTMs take the block
in float only, with matrices of its own precision made from the stored ones (`projection`). `switched` takes
the weights as the loop has them and makes the block's of them at run time, where the steps are many.
`BlockLSTMV2` would do too, but TensorFlow gives it the gradient of `BlockLSTM`, whose gates lie elsewhere.
Source: tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTM, python/ops/rnn_grad.py; shapes are cuDNN's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import layouts
from cudnn_convert.layouts import Layout
from cudnn_convert.lower import projection, rearrange
from cudnn_convert.model import Array, Cell, Gate, Mode, Recurrence, Sizes

_BLOCK_DTYPES: Final = frozenset({"float32", "float16"})
#: From so many steps on, putting both kernels into one array costs less than the block saves.
_MANY_STEPS: Final = 4
#: The block reads both kernels in every step: beyond what a cache holds the loop is faster, which reads one.
_CACHED: Final = 2**20
#: The op's own defaults clip the cell state at 3 and add 1 to the forget gate.
BLOCK: Final = partial(tf.raw_ops.BlockLSTM, forget_bias=0.0, cell_clip=-1.0)
_ACTIVATIONS: Final[dict[Mode, Callable[[Any], Any]]] = {Mode.RNN_TANH: tf.tanh, Mode.RNN_RELU: tf.nn.relu}


def uses_block(recurrence: Recurrence, lowering: str) -> bool:
    """Whether the recurrence becomes BlockLSTM, which knows LSTMs of float and half only."""
    if lowering != "fast" or recurrence.sizes.mode is not Mode.LSTM:
        return False
    if recurrence.sizes.projection:
        accurate = all(projection.accurate(cell) for layer in recurrence.cells for cell in layer)
        return accurate and recurrence.dtype == np.float32
    return recurrence.dtype.name in _BLOCK_DTYPES


def weights(cell: Cell, *, block: bool) -> dict[str, Array]:
    """The arrays that one pseudo-layer's computation takes, by name, in the order it takes them."""
    projected = dict(zip(["projection"], layouts.projection_columns(cell), strict=False))
    if block:
        kernel = layouts.stacked_columns(projection.composed(cell), layouts.BLOCK_LSTM_V1)
        if (inverse := projection.inverse(cell)) is not None:
            projected["projection_inverse"] = inverse
        return {"kernel": kernel, "bias": layouts.summed_bias(cell, layouts.BLOCK_LSTM_V1), **projected}
    kernel, recurrent = layouts.columns(cell, layouts.LOOP)
    if cell.mode is Mode.GRU:
        bias, recurrent_bias = layouts.biases(cell, layouts.LOOP)
        return {
            "kernel": kernel,
            "recurrent_kernel": recurrent,
            "bias": bias,
            "recurrent_bias": recurrent_bias,
        }
    bias = layouts.summed_bias(cell, layouts.LOOP)
    return {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias, **projected}


def stack(
    recurrence: Recurrence, *, block: bool, block_op: Callable[..., Any] | None = None
) -> Callable[..., tuple[Any, Any, Any]]:
    """A function `(x, h0, c0, lengths or None, *weights) -> (y, h, c)` in the op's own axis order.

    `block_op` is `BLOCK` or an op of its arguments.
    """
    layer = partial(_block_layer, op=block_op or BLOCK) if block else _loop_layer
    each = len(weights(recurrence.cells[0][0], block=block))
    return stacked(recurrence.sizes, layer, each, time_major=recurrence.time_major)


def switched(
    sizes: Sizes, dtype: np.dtype[Any], layout: Layout, *, time_major: bool, each: int, lowering: str
) -> Callable[..., tuple[Any, Any, Any]]:
    """A function as `stack` gives it, of `each` arrays per pseudo-layer in the form of the loop.

    Their columns are the gates in the order of `layout`.
    """
    block = lowering == "fast" and sizes.mode is Mode.LSTM and dtype.name in _BLOCK_DTYPES
    widest = max(sizes.inputs(layer) for layer in range(sizes.layers)) + sizes.units
    block = block and not sizes.projection and widest * 4 * sizes.units * dtype.itemsize <= _CACHED
    layer = partial(_switched_layer if block else _loop_layer, layout=layout)
    return stacked(sizes, layer, each, time_major=time_major)


def stacked(
    sizes: Sizes, layer: Callable[..., tuple[Any, ...]], each: int, *, time_major: bool
) -> Callable[..., tuple[Any, Any, Any]]:
    """A function as `stack` gives it; `layer` computes a pseudo-layer from its `each` arrays, time-major."""

    def compute(x: Any, h0: Any, c0: Any, lengths: Any, *arrays: Any) -> tuple[Any, Any, Any]:
        x, h0 = (t if time_major else tf.transpose(t, [1, 0, 2]) for t in (x, h0))
        # Only an LSTM has a cell state; other modes pass whatever they were given, even a scalar.
        c0 = tf.transpose(c0, [1, 0, 2]) if sizes.mode is Mode.LSTM and not time_major else c0
        states = []
        for first in range(0, sizes.layers * sizes.directions, sizes.directions):
            ways = []
            for p in range(first, first + sizes.directions):
                state = (h0[p], c0[p]) if sizes.mode is Mode.LSTM else (h0[p],)
                taken = arrays[p * each : (p + 1) * each]
                ways.append(layer(sizes.mode, x, state, lengths, taken, backward=p > first))
            x = tf.concat([way[0] for way in ways], 2)
            states += [way[1:] for way in ways]
        h = tf.stack([state[0] for state in states])
        c = tf.stack([state[1] for state in states]) if sizes.mode is Mode.LSTM else tf.identity(c0)
        if time_major:
            return x, h, c
        swapped = tf.transpose(c, [1, 0, 2]) if sizes.mode is Mode.LSTM else c
        return tf.transpose(x, [1, 0, 2]), tf.transpose(h, [1, 0, 2]), swapped

    return compute


def _reversed(x: Any, lengths: Any) -> Any:
    """Time reversed inside each row's valid part."""
    return tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(x, lengths, 0, 1)


def _alive(x: Any, lengths: Any) -> Any:
    """`[time, batch, 1]`: whether a step lies inside its row's length."""
    return tf.transpose(tf.sequence_mask(lengths, tf.shape(x)[0]))[:, :, None]


def _at_end(first: Any, steps: Any, lengths: Any) -> Any:
    """The state at each row's own end: `first` at length 0, else the step before the length."""
    if lengths is None:
        return tf.concat([first[None], steps[-1:]], 0)[-1]
    rows = tf.range(tf.shape(first)[0])
    return tf.gather_nd(tf.concat([first[None], steps], 0), tf.stack([lengths, rows], 1))


def _times(x: Any, matrix: Any) -> Any:
    """`x [time, batch, inputs] @ matrix [inputs, outputs]` in one product."""
    rows = tf.reshape(x, [-1, matrix.shape[0]]) @ matrix
    return tf.reshape(rows, [tf.shape(x)[0], tf.shape(x)[1], matrix.shape[1]])


def _block_layer(
    mode: Mode,
    x: Any,
    state: tuple[Any, ...],
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    op: Callable[..., Any],
) -> tuple[Any, Any, Any]:
    (kernel, bias, *projected), (h0, c0) = arrays, state
    x = _reversed(x, lengths) if backward else x
    unused = tf.zeros([kernel.shape[1] // 4], x.dtype)  # peepholes
    steps = tf.cast(tf.shape(x)[0], tf.int64)
    start = h0 @ projected[1] if projected else h0
    _, cs, _, _, _, _, y = op(
        seq_len_max=steps, x=x, cs_prev=c0, h_prev=start, w=kernel, wci=unused, wcf=unused, wco=unused, b=bias
    )
    y = _times(y, projected[0]) if projected else y
    h, c = _at_end(h0, y, lengths), _at_end(c0, cs, lengths)
    y = y if lengths is None else tf.where(_alive(x, lengths), y, tf.zeros_like(y))
    return _reversed(y, lengths) if backward else y, h, c


def _switched_layer(
    mode: Mode,
    x: Any,
    state: tuple[Any, ...],
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    layout: Layout,
) -> tuple[Any, Any, Any]:
    """The block where the steps are many, else the loop, from the same arrays."""

    def block() -> tuple[Any, Any, Any]:
        target = layouts.BLOCK_LSTM_V1
        kernel, recurrent, bias = (rearrange.moved(array, mode, layout, target) for array in arrays)
        taken = [tf.concat([kernel, recurrent], 0), bias]
        return _block_layer(mode, x, state, lengths, taken, backward=backward, op=BLOCK)

    def loop() -> tuple[Any, Any, Any]:
        return _loop_layer(mode, x, state, lengths, arrays, backward=backward, layout=layout)

    y, h, c = tf.cond(tf.shape(x)[0] < _MANY_STEPS, loop, block)
    return y, h, c


def _loop_layer(
    mode: Mode,
    x: Any,
    state: tuple[Any, ...],
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    layout: Layout = layouts.LOOP,
) -> tuple[Any, Any, Any]:
    kernel, recurrent, bias, *rest = arrays
    time, batch, width = tf.shape(x)[0], tf.shape(x)[1], recurrent.shape[0]
    inputs = _times(x, kernel) + bias
    shape = tf.stack([batch, width])  # given at run time, or 0 steps would have no shape to stack to
    outputs = tf.raw_ops.TensorListReserve(element_shape=shape, num_elements=time, element_dtype=x.dtype)
    alive = None if lengths is None else _alive(x, lengths)

    def step(t: Any, held: Any, *old: Any) -> tuple[Any, ...]:
        at = time - 1 - t if backward else t
        new = cell(mode, inputs[at], old, (recurrent, *rest), layout)
        y = new[0]
        if alive is not None:
            now = alive[at]
            new = tuple(tf.where(now, one, other) for one, other in zip(new, old, strict=True))
            y = tf.where(now, y, tf.zeros_like(y))
        return t + 1, tf.raw_ops.TensorListSetItem(input_handle=held, index=at, item=y), *new

    start = (tf.constant(0), outputs, *state)
    widths = (width, kernel.shape[1] // 4)  # only an LSTM has the second
    known = [tf.TensorShape([])] * 2 + [tf.TensorShape([None, widths[k]]) for k in range(len(state))]
    _, held, *final = tf.while_loop(lambda t, *_: t < time, step, start, shape_invariants=tuple(known))
    y = tf.raw_ops.TensorListStack(input_handle=held, element_shape=shape, element_dtype=x.dtype)
    return tf.ensure_shape(y, [None, None, width]), final[0], final[-1]


def cell(mode: Mode, x: Any, old: tuple[Any, ...], weights: Sequence[Any], layout: Layout) -> tuple[Any, ...]:
    """One step; gates in the order of `layout`. `x` already holds the input's product and its bias.

    `weights` are the recurrent kernel and a GRU's recurrent bias, or an LSTM's projection if it has one.
    """
    recurrent, *rest = weights
    h = old[0]
    if mode is Mode.LSTM:
        gates = _activated(x + h @ recurrent, layout.gates[mode])
        c = gates[Gate.FORGET] * old[1] + gates[Gate.INPUT] * gates[Gate.CELL]
        h = gates[Gate.OUTPUT] * tf.tanh(c)
        return h @ rest[0] if rest else h, c
    if mode is Mode.GRU:
        *order, _ = layout.gates[mode]  # the candidate is the last in every layout
        sizes = [2 * h.shape[1], h.shape[1]]
        sums, candidate = tf.split(x, sizes, 1)
        sums_h, candidate_h = tf.split(h @ recurrent + rest[0], sizes, 1)
        gates = dict(zip(order, tf.split(tf.sigmoid(sums + sums_h), 2, 1), strict=True))
        n = tf.tanh(candidate + gates[Gate.RESET] * candidate_h)
        return ((1 - gates[Gate.UPDATE]) * n + gates[Gate.UPDATE] * h,)
    return (_ACTIVATIONS[mode](x + h @ recurrent),)


def _activated(sums: Any, order: Sequence[Gate]) -> dict[Gate, Any]:
    """An LSTM's gates; those with a sigmoid that stand side by side go through one."""
    units = sums.shape[1] // len(order)
    runs = [list(run) for _, run in groupby(order, key=partial(operator.is_, Gate.CELL))]
    found: dict[Gate, Any] = {}
    for run, part in zip(runs, tf.split(sums, [len(run) * units for run in runs], 1), strict=True):
        active = tf.tanh(part) if run == [Gate.CELL] else tf.sigmoid(part)
        found |= zip(run, tf.split(active, len(run), 1) if len(run) > 1 else [active], strict=True)
    return found
