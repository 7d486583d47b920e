"""Lowers a recurrence's layers and directions to BlockLSTM or to loops.

All ops have CPU kernels in every build of TensorFlow. The lowering `fast` uses `BlockLSTM`, one kernel call
for all steps, for LSTMs of float and half: for any number of steps where a cache holds their matrices, else
for few steps, except where they are projected or stay in their file. Everything else is a loop over steps;
the lowering `portable` is a plain loop. All carry the state itself, so a row of length 0 and a run of 0 steps
return the initial state. `switch_at_runtime` takes the loop's weights, and converts them to the block's at
run time for many steps. Shapes are cuDNN's.

`BlockLSTMV2` would work too, but TensorFlow registers the gradient of `BlockLSTM` for it, which has another
gate order. Projected LSTMs use the block with matrices derived from the stored ones (`weights.layouts`), at
its precision.
Source: tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTM, python/ops/rnn_grad.py.

`Deferred` weights of a loop are made when they are written, so that one pseudo-layer is in memory at a time.

`loop` takes the variables of TensorFlow 1's CPU cells. Their column order comes from the op or cell that
reads the same variables, not from the row of `layouts` by which they were packed, so that verification
reveals a wrong row.
"""

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
    """A maker of a recurrence's arrays on demand, pseudo-layer by pseudo-layer."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._recurrence = recurrence
        self._place: tuple[int, int] | None = None
        self._made: dict[str, Array] = {}

    def take(self, layer: int, direction: int, name: str) -> Array:
        """Take an array out of the cache of a pseudo-layer.

        Asking again, or for another pseudo-layer, makes the arrays anew.
        """
        if self._place != (layer, direction) or name not in self._made:
            self._made, self._place = {}, (layer, direction)
            self._made = while_loop.weights(self._recurrence.cells[layer][direction])
        return self._made.pop(name)

    def tensors(self, layer: int, direction: int) -> Mapping[str, Tensor]:
        """Return the deferred tensors of a pseudo-layer by name, in order."""
        shapes = while_loop.shapes(self._recurrence.sizes, layer)
        kind = self._recurrence.dtype
        return {name: Deferred(self, (layer, direction, name), shape, kind) for name, shape in shapes.items()}


@dataclass(frozen=True, slots=True)
class Deferred:
    """An array of a lowering as a lazy tensor."""

    making: Making
    place: tuple[int, int, str]
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def read(self) -> Array:
        """Read the weights, and make the array. Raises ReadError."""
        return self.making.take(*self.place)


def loop(cell: Cell, arrays: Sequence[Any], *, forget_bias: float) -> tuple[Any, ...]:
    """Convert arrays of `layouts.pack_cell` to arrays of `while_loop.weights`, as tensors."""
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
    """Reorder a GRU's arrays.

    `arrays`: the gates' kernel, recurrent kernel and bias; the candidate's kernel and bias, recurrent kernel
    and bias.
    """
    kernel, recurrent, bias, candidate, candidate_bias, recurrent_candidate, recurrent_bias = arrays
    pairs = ((kernel, candidate), (recurrent, recurrent_candidate), (bias, candidate_bias))
    (kernel, candidate), (recurrent, recurrent_candidate), (bias, candidate_bias) = map(_in_order, pairs)
    return kernel, recurrent, bias, candidate, recurrent_candidate, candidate_bias, recurrent_bias


def _in_order(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the columns of both gates, and of the candidate, in the loop's order."""
    order = layouts.moves(Mode.GRU, layouts.COMPATIBLE_GRU, layouts.LOOP)
    if order == sorted(order):
        return pair
    blocks = [*tf.split(pair[0], 2, -1), pair[1]]
    *gates, candidate = (blocks[position] for position in order)
    return tf.concat(gates, -1), candidate


def permute_gates(array: Any, mode: Mode, source: layouts.Layout, target: layouts.Layout) -> Any:
    """Reorder the gates on the last axis from `source` to `target` order."""
    order = layouts.moves(mode, source, target)
    if order == sorted(order):
        return array
    blocks = tf.split(array, len(order), -1)
    return tf.concat([blocks[position] for position in order], -1)


#: The op's own defaults clip the cell state at 3 and add 1 to the forget gate.
BLOCK: Final = partial(tf.raw_ops.BlockLSTM, forget_bias=0.0, cell_clip=-1.0)


def block_weights(cell: Cell) -> dict[str, Array]:
    """Return the arrays for `block_layer` by name, in order."""
    kernel = layouts.stack_columns(layouts.fold_projection(cell), layouts.BLOCK_LSTM_V1)
    weights = {"kernel": kernel, "bias": layouts.sum_biases(cell, layouts.BLOCK_LSTM_V1)}
    weights |= zip(["projection"], layouts.projection_columns(cell), strict=False)
    if (inverse := layouts.invert_projection(cell)) is not None:
        weights["projection_inverse"] = inverse
    return weights


def count(cell: Cell) -> int:
    """Return the number of arrays in `block_weights`.

    No array is made.
    """
    inverse = layouts.invert_projection(cell) is not None
    return 2 + len(layouts.projection_columns(cell)) + inverse


def block_layer(
    mode: Mode, x: Any, state: State, lengths: Any, arrays: Sequence[Any], *, backward: bool, op: Any = None
) -> tuple[Any, Any, Any]:
    """Compute a pseudo-layer with BlockLSTM: `y [time, batch, width]`, final states.

    `op` is `BLOCK`, or takes the same arguments.
    """
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


#: A function `(x, h0, c0, lengths or None, *weights) -> (y, h, c)` with the cuDNN op's axes.
Stack = Callable[..., tuple[Any, Any, Any]]
#: `(mode, x, state, lengths or None, arrays, *, backward) -> (y, h, c)` of one pseudo-layer, time-major.
Layer = Callable[..., tuple[Any, Any, Any]]
#: The lowering whose functions XLA compiles: the plain loop, since XLA has no BlockLSTM.
COMPILED: Final = "jit"
_BLOCK_DTYPES: Final = frozenset({"float32", "float16"})
#: From this number of steps, concatenating both kernels costs less than the block saves.
_MANY_STEPS: Final = 4
#: The block reads both kernels in every step, the loop one. For kernels larger than a cache the loop is
#: faster once the extra reads exceed `_READ` bytes, or the steps `_FEW_STEPS`. A proof tries one step more.
_CACHED: Final = 2**20
_READ: Final = 24 * 2**20
_FEW_STEPS: Final = 16
#: Steps an iteration of successive loops, for cached matrices and for others, whose iterations cost more
#: anyway. Larger numbers make the graph larger and little faster. The feeds of a proof
#: (`verification/effort.py`) use each of them.
_SMALL: Final = (16, 4, 1)
_OTHERS: Final = (10, 1)
#: The batch from which others have a plain loop. TensorFlow shares the products of a function's steps among
#: threads, which wait for each other longer than a product takes: 32 rows, 256 inputs and 512 columns take 60
#: microseconds with one thread, 148 with two (measured). The feeds of a proof have fewer rows.
_MANY: Final = 4


def uses_block(recurrence: Recurrence, lowering: str) -> bool:
    """Return True if BlockLSTM computes the recurrence, for all numbers of steps or for few.

    It supports LSTMs of float and half only. If so, the weights are `block_weights`.
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
    """Return the arrays for the computation of a pseudo-layer by name, in order."""
    return block_weights(cell) if block else while_loop.weights(cell)


def stack(recurrence: Recurrence, lowering: str, *, forget_bias: float = 0.0) -> Stack:
    """Return the function computing a recurrence from `layer_weights`.

    `forget_bias`: what a block adds to the stored forget bias.
    """
    sizes = recurrence.sizes
    if not uses_block(recurrence, lowering):
        walk = _loop_layer(sizes, recurrence.dtype, lowering)
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
    """Return the function of a recurrence with weights in the loop's form.

    `each` is the number of arrays of a pseudo-layer. Gates are in the order of `layout`; a GRU's arrays
    have the columns of all gates.
    """
    fast = lowering == "fast"
    block = fast and sizes.mode is Mode.LSTM and dtype.name in _BLOCK_DTYPES
    block = block and not sizes.projection and _is_cached(sizes, dtype)
    few = partial(while_loop.layer, together=_OTHERS)
    walk = partial(few if block else _loop_layer(sizes, dtype, lowering), layout=layout)
    layer = partial(_switch_layer, loop=walk, layout=layout) if block else walk
    return stack_layers(sizes, layer, each, time_major=time_major)


#: The loop of recurrences whose matrices no cache holds.
_other_loop: Final[Layer] = partial(while_loop.layer, together=_OTHERS, many=_MANY)


def _loop_layer(sizes: Sizes, dtype: np.dtype[Any], lowering: str) -> Layer:
    if lowering != "fast":
        return while_loop.layer
    return partial(while_loop.layer, together=_SMALL) if _is_cached(sizes, dtype) else _other_loop


def _is_cached(sizes: Sizes, dtype: np.dtype[Any]) -> bool:
    widest = max(sizes.inputs(layer) for layer in range(sizes.layers)) + sizes.units
    return widest * 4 * sizes.units * dtype.itemsize <= _CACHED


def stack_layers(
    sizes: Sizes, layer: Layer, each: int, *, time_major: bool, between: Callable[[Any], Any] | None = None
) -> Stack:
    """Return the function of a recurrence with pseudo-layers computed by `layer`.

    `layer` is time-major and takes `each` arrays. `between` is applied to what one layer gives to the next,
    `[time, batch, directions*width]`: the dropout of training.
    """

    def compute(x: Any, h0: Any, c0: Any, lengths: Any, *arrays: Any) -> tuple[Any, Any, Any]:
        x, h0 = (t if time_major else tf.transpose(t, [1, 0, 2]) for t in (x, h0))
        # Only an LSTM has a cell state; other modes return c0 unchanged, even a scalar.
        c0 = tf.transpose(c0, [1, 0, 2]) if sizes.mode is Mode.LSTM and not time_major else c0
        states = []
        for first in range(0, sizes.layers * sizes.directions, sizes.directions):
            ways = []
            x = between(x) if between and first else x
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
    """Use the block for few steps, else the loop, with the block's arrays.

    The loop, which never has a single step, slices the rows of the block's kernel. `added`: what the block
    adds to its bias.
    """
    kernel, bias = arrays
    inputs = x.shape[2]

    def walk() -> tuple[Any, Any, Any]:
        whole = bias if added is None else bias + added
        taken, layout = [kernel[:inputs], kernel[inputs:], whole], layouts.BLOCK_LSTM_V1
        return _other_loop(mode, x, state, lengths, taken, backward=backward, layout=layout, single=False)

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
    """Use the block for many steps, else the loop, with the loop's arrays."""

    def block() -> tuple[Any, Any, Any]:
        target = layouts.BLOCK_LSTM_V1
        kernel, recurrent, bias = (permute_gates(array, mode, layout, target) for array in arrays)
        taken = [tf.concat([kernel, recurrent], 0), bias]
        return block_layer(mode, x, state, lengths, taken, backward=backward)

    few = tf.shape(x)[0] < _MANY_STEPS
    y, h, c = tf.cond(few, lambda: loop(mode, x, state, lengths, arrays, backward=backward), block)
    return y, h, c
