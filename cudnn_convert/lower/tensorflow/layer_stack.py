"""Lowers a recurrence: its layers and directions, as BlockLSTM or as loops.

All ops have CPU kernels in every build of TensorFlow. The lowering `fast` takes `BlockLSTM`, one kernel call
for all steps, for LSTMs of float and half: for any number of steps where a cache holds their matrices, else
for few steps, except where they are projected or stay in their file. Everything else is a loop over steps,
and the lowering `portable` is a plain one. All carry the state itself, so that a row of length 0 and a run of
0 steps give the initial state. `switch_at_runtime` takes the weights as the loop has them, and makes the
block's of them at run time where the steps are many. Shapes are cuDNN's.

`BlockLSTMV2` would do too, but TensorFlow gives it the gradient of `BlockLSTM`, whose gates lie elsewhere.
Projected LSTMs take it with matrices made from the stored ones (`weights.layouts`), of its own precision.
Source: tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTM, python/ops/rnn_grad.py.

`Deferred` weights of a loop are made when they are written, so that one pseudo-layer is in memory at a time.

`loop` takes the variables of TensorFlow 1's CPU cells. It takes the order of their columns from the op or
cell that reads the same variables, not from the row of `layouts` that they were packed by: a wrong row is to
show when the artifact is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.lower.tensorflow import while_loop
from cudnn_convert.lower.tensorflow.while_loop import State, alive, at_end, backwards, times
from cudnn_convert.model import Array, Cell, Mode, Recurrence, Sizes, Tensor
from cudnn_convert.weights import layouts, lazy


class Making:
    """The arrays of a recurrence's pseudo-layers; each is handed out once, and then made again."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._recurrence = recurrence
        self._place: tuple[int, int] | None = None
        self._made: dict[str, Array] = {}

    def take(self, layer: int, direction: int, name: str) -> Array:
        """One array; those beside it stay until another pseudo-layer is asked for."""
        if self._place != (layer, direction) or name not in self._made:
            self._made, self._place = {}, (layer, direction)
            self._made = while_loop.weights(self._recurrence.cells[layer][direction])
        return self._made.pop(name)

    def tensors(self, layer: int, direction: int) -> Mapping[str, Tensor]:
        """Those of one pseudo-layer by name, in order, not made yet."""
        shapes = while_loop.shapes(self._recurrence.sizes, layer)
        kind = self._recurrence.dtype
        return {name: Deferred(self, (layer, direction, name), shape, kind) for name, shape in shapes.items()}


@dataclass(frozen=True, slots=True)
class Deferred:
    """One array of a lowering as a tensor."""

    making: Making
    place: tuple[int, int, str]
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def read(self) -> Array:
        """The array, made of weights that are read now. Raises ReadError."""
        return self.making.take(*self.place)


def loop(cell: Cell, arrays: Sequence[Any], *, forget_bias: float) -> tuple[Any, ...]:
    """The tensors that `layer_stack.layer_weights` names, from those of `layouts.pack_cell`."""
    inputs = cell.kernel.shape[-1]
    kernel, bias, *candidate = arrays
    if cell.mode is Mode.GRU:
        return _gru(kernel[:inputs], kernel[inputs:], bias, *candidate)
    if forget_bias:
        bias += layouts.forget_row(cell, layouts.BLOCK_LSTM_V1, forget_bias)
    if cell.mode is Mode.LSTM:
        kernel, bias = (
            permute_gates(array, cell.mode, layouts.BLOCK_LSTM_V1, layouts.LOOP) for array in (kernel, bias)
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
    *gates, candidate = (blocks[position] for position in order)
    return tf.concat(gates, -1), candidate


def permute_gates(array: Any, mode: Mode, source: layouts.Layout, target: layouts.Layout) -> Any:
    """Columns, the last axis, whose gates lie as in `source`, in the order of `target`."""
    order = layouts.moves(mode, source, target)
    if order == sorted(order):
        return array
    blocks = tf.split(array, len(order), -1)
    return tf.concat([blocks[position] for position in order], -1)


#: The op's own defaults clip the cell state at 3 and add 1 to the forget gate.
BLOCK: Final = partial(tf.raw_ops.BlockLSTM, forget_bias=0.0, cell_clip=-1.0)


def block_weights(cell: Cell) -> dict[str, Array]:
    """The arrays that `layer` takes, by name and in order."""
    kernel = layouts.stack_columns(layouts.fold_projection(cell), layouts.BLOCK_LSTM_V1)
    weights = {"kernel": kernel, "bias": layouts.sum_biases(cell, layouts.BLOCK_LSTM_V1)}
    weights |= zip(["projection"], layouts.projection_columns(cell), strict=False)
    if (inverse := layouts.invert_projection(cell)) is not None:
        weights["projection_inverse"] = inverse
    return weights


def count(cell: Cell) -> int:
    """How many arrays those are; none is made."""
    inverse = layouts.invert_projection(cell) is not None
    return 2 + len(layouts.projection_columns(cell)) + inverse


def block_layer(
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
#: proof (`verification/judges.py`) take each of them.
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
        return all(layouts.inverts_accurately(cell) for layer in recurrence.cells for cell in layer)
    return _is_cached(sizes, dtype) or not lazy.exceeds_memory_budget(sizes, dtype)


def layer_weights(cell: Cell, *, block: bool) -> dict[str, Array]:
    """The arrays that one pseudo-layer's computation takes, by name, in the order it takes them."""
    return block_weights(cell) if block else while_loop.weights(cell)


def stack(recurrence: Recurrence, lowering: str, *, forget_bias: float = 0.0) -> Stack:
    """What computes a recurrence from the `weights` of its cells; a block adds `forget_bias` to theirs."""
    sizes = recurrence.sizes
    if not uses_block(recurrence, lowering):
        walk = partial(while_loop.layer, together=_together(sizes, recurrence.dtype, lowering))
        return stack_layers(sizes, walk, len(while_loop.shapes(sizes, 0)), time_major=recurrence.time_major)
    cell = recurrence.cells[0][0]
    layer: Layer = partial(block_layer, op=partial(BLOCK, forget_bias=forget_bias))
    if not _is_cached(sizes, recurrence.dtype):
        added = layouts.forget_row(cell, layouts.BLOCK_LSTM_V1, forget_bias) if forget_bias else None
        layer = partial(_few_in_block, block=layer, added=added)
    return stack_layers(sizes, layer, count(cell), time_major=recurrence.time_major)


def switch_at_runtime(
    sizes: Sizes, dtype: np.dtype[Any], layout: layouts.Layout, *, time_major: bool, each: int, lowering: str
) -> Stack:
    """A stack of `each` arrays per pseudo-layer in the form of the loop, a GRU's with all gates' columns.

    Those are the gates in the order of `layout`.
    """
    fast = lowering == "fast"
    block = fast and sizes.mode is Mode.LSTM and dtype.name in _BLOCK_DTYPES
    block = block and not sizes.projection and _is_cached(sizes, dtype)
    together = _OTHERS if block else _together(sizes, dtype, lowering)
    walk = partial(while_loop.layer, layout=layout, together=together)
    layer = partial(_switch_layer, loop=walk, layout=layout) if block else walk
    return stack_layers(sizes, layer, each, time_major=time_major)


def _together(sizes: Sizes, dtype: np.dtype[Any], lowering: str) -> tuple[int, ...]:
    if lowering != "fast":
        return while_loop.PLAIN
    return _SMALL if _is_cached(sizes, dtype) else _OTHERS


def _is_cached(sizes: Sizes, dtype: np.dtype[Any]) -> bool:
    widest = max(sizes.inputs(layer) for layer in range(sizes.layers)) + sizes.units
    return widest * 4 * sizes.units * dtype.itemsize <= _CACHED


def stack_layers(sizes: Sizes, layer: Layer, each: int, *, time_major: bool) -> Stack:
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
            x = tf.concat([direction[0] for direction in ways], 2)
            states += [direction[1:] for direction in ways]
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
        return while_loop.layer(
            mode, x, state, lengths, taken, backward=backward, layout=layout, together=_OTHERS
        )

    most = _READ // (inputs * kernel.shape[1] * kernel.dtype.size)
    few = tf.shape(x)[0] <= min(_FEW_STEPS, max(1, most))
    y, h, c = tf.cond(few, lambda: block(mode, x, state, lengths, arrays, backward=backward), walk)
    return y, h, c


def _switch_layer(
    mode: Mode,
    x: Any,
    state: State,
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    loop: Layer,
    layout: layouts.Layout,
) -> tuple[Any, Any, Any]:
    """The block where the steps are many, else the loop, from the loop's arrays."""

    def block() -> tuple[Any, Any, Any]:
        target = layouts.BLOCK_LSTM_V1
        kernel, recurrent, bias = (permute_gates(array, mode, layout, target) for array in arrays)
        taken = [tf.concat([kernel, recurrent], 0), bias]
        return block_layer(mode, x, state, lengths, taken, backward=backward)

    few = tf.shape(x)[0] < _MANY_STEPS
    y, h, c = tf.cond(few, lambda: loop(mode, x, state, lengths, arrays, backward=backward), block)
    return y, h, c
