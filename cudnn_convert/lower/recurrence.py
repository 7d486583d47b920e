"""A cuDNN recurrence in TensorFlow ops that have CPU kernels in every build.

`fast` takes `BlockLSTM` for LSTMs of float and half (`block`): for any number of steps where a cache holds
their matrices, else for few, except where they are projected or stay in their file. Everything else is a loop
over steps (`loop`), and `portable` a plain one. All carry the state itself, so that a row of length 0 and a
run of 0 steps give the initial state. `switched` takes the weights as the loop has them and makes the block's
of them at run time, where the steps are many. Shapes are cuDNN's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert import layouts
from cudnn_convert.layers import are_large
from cudnn_convert.layouts import Layout
from cudnn_convert.lower import block as in_block
from cudnn_convert.lower import loop, projection, rearrange, steps
from cudnn_convert.lower.steps import State
from cudnn_convert.model import Array, Cell, Mode, Recurrence, Sizes

#: A function `(x, h0, c0, lengths or None, *weights) -> (y, h, c)` in the op's own axis order.
Stack = Callable[..., tuple[Any, Any, Any]]
#: `(mode, x, state, lengths or None, arrays, *, backward) -> (y, h, c)` of one pseudo-layer, time-major.
Layer = Callable[..., tuple[Any, Any, Any]]
#: The lowering whose functions XLA compiles: the plain loop, for it knows no block.
COMPILED: Final = "jit"
_BLOCK_DTYPES: Final = frozenset({"float32", "float16"})
#: From so many steps on, putting both kernels into one array costs less than the block saves.
_MANY_STEPS: Final = 4
#: The block reads both kernels in every step: beyond what a cache holds the loop, which reads one, is faster
#: once all readings of the other come to so many bytes, or the steps to so many. A proof tries one step more.
_CACHED: Final = 2**20
_READ: Final = 24 * 2**20
_FEW_STEPS: Final = 16
#: Steps of an iteration, of one loop after another: where a cache holds the matrices, and elsewhere, where
#: what an iteration costs by itself is little. More make the graph larger and little faster. The feeds of a
#: proof (`verification/way.py`) take each of them.
_SMALL: Final = (16, 4, 1)
_OTHERS: Final = (10, 1)


def uses_block(recurrence: Recurrence, lowering: str) -> bool:
    """Whether BlockLSTM, which knows LSTMs of float and half only, computes it, or few steps of it.

    Its weights are then the block's.
    """
    sizes, dtype = recurrence.sizes, recurrence.dtype
    if lowering != "fast" or sizes.mode is not Mode.LSTM or dtype.name not in _BLOCK_DTYPES:
        return False
    if sizes.projection:
        if not _is_cached(sizes, dtype) or dtype != np.float32:
            return False
        return all(projection.accurate(cell) for layer in recurrence.cells for cell in layer)
    return _is_cached(sizes, dtype) or not are_large(sizes, dtype)


def weights(cell: Cell, *, block: bool) -> dict[str, Array]:
    """The arrays that one pseudo-layer's computation takes, by name, in the order it takes them."""
    return in_block.weights(cell) if block else steps.weights(cell)


def stack(recurrence: Recurrence, lowering: str, *, forget_bias: float = 0.0) -> Stack:
    """What computes a recurrence from the `weights` of its cells; a block adds `forget_bias` to theirs."""
    sizes = recurrence.sizes
    if not uses_block(recurrence, lowering):
        walk = partial(loop.layer, together=_together(sizes, recurrence.dtype, lowering))
        return stacked(sizes, walk, len(steps.shapes(sizes, 0)), time_major=recurrence.time_major)
    cell = recurrence.cells[0][0]
    layer: Layer = partial(in_block.layer, op=partial(in_block.BLOCK, forget_bias=forget_bias))
    if not _is_cached(sizes, recurrence.dtype):
        added = layouts.forget_row(cell, layouts.BLOCK_LSTM_V1, forget_bias) if forget_bias else None
        layer = partial(_few_in_block, block=layer, added=added)
    return stacked(sizes, layer, in_block.count(cell), time_major=recurrence.time_major)


def switched(
    sizes: Sizes, dtype: np.dtype[Any], layout: Layout, *, time_major: bool, each: int, lowering: str
) -> Stack:
    """A stack of `each` arrays per pseudo-layer in the form of the loop, a GRU's with all gates' columns.

    Those are the gates in the order of `layout`.
    """
    fast = lowering == "fast"
    block = fast and sizes.mode is Mode.LSTM and dtype.name in _BLOCK_DTYPES
    block = block and not sizes.projection and _is_cached(sizes, dtype)
    together = _OTHERS if block else _together(sizes, dtype, lowering)
    walk = partial(loop.layer, layout=layout, together=together)
    layer = partial(_switched_layer, loop=walk, layout=layout) if block else walk
    return stacked(sizes, layer, each, time_major=time_major)


def _together(sizes: Sizes, dtype: np.dtype[Any], lowering: str) -> tuple[int, ...]:
    if lowering != "fast":
        return loop.PLAIN
    return _SMALL if _is_cached(sizes, dtype) else _OTHERS


def _is_cached(sizes: Sizes, dtype: np.dtype[Any]) -> bool:
    widest = max(sizes.inputs(layer) for layer in range(sizes.layers)) + sizes.units
    return widest * 4 * sizes.units * dtype.itemsize <= _CACHED


def stacked(sizes: Sizes, layer: Layer, each: int, *, time_major: bool) -> Stack:
    """A stack of `each` arrays per pseudo-layer, which `layer` computes from them, time-major."""

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


def _few_in_block(
    mode: Mode,
    x: Any,
    state: State,
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    block: Layer,
    added: Array | None,
) -> tuple[Any, Any, Any]:
    """The block where the steps are few, else the loop, from the block's arrays: rows of its kernel are where
    they are. `added`: what the block adds to its bias.
    """
    kernel, bias = arrays
    inputs = x.shape[2]

    def walk() -> tuple[Any, Any, Any]:
        whole = bias if added is None else bias + added
        taken, layout = [kernel[:inputs], kernel[inputs:], whole], layouts.BLOCK_LSTM_V1
        return loop.layer(mode, x, state, lengths, taken, backward=backward, layout=layout, together=_OTHERS)

    most = _READ // (inputs * kernel.shape[1] * kernel.dtype.size)
    few = tf.shape(x)[0] <= min(_FEW_STEPS, max(1, most))
    y, h, c = tf.cond(few, lambda: block(mode, x, state, lengths, arrays, backward=backward), walk)
    return y, h, c


def _switched_layer(
    mode: Mode,
    x: Any,
    state: State,
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    loop: Layer,
    layout: Layout,
) -> tuple[Any, Any, Any]:
    """The block where the steps are many, else the loop, from the loop's arrays."""

    def block() -> tuple[Any, Any, Any]:
        target = layouts.BLOCK_LSTM_V1
        kernel, recurrent, bias = (rearrange.moved(array, mode, layout, target) for array in arrays)
        taken = [tf.concat([kernel, recurrent], 0), bias]
        return in_block.layer(mode, x, state, lengths, taken, backward=backward)

    few = tf.shape(x)[0] < _MANY_STEPS
    y, h, c = tf.cond(few, lambda: loop(mode, x, state, lengths, arrays, backward=backward), block)
    return y, h, c
