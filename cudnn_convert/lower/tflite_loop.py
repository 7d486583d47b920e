"""The portable loop in ops of TensorFlow Lite's own runtime.

There a TensorList becomes a tensor whose every update copies the whole of it, so that a loop of 1000 steps
does little else, and inside a loop or a branch of the model it does not convert at all. This loop writes into
a block of a few steps, and a loop around it the blocks into the whole, by an op that becomes
DYNAMIC_UPDATE_SLICE.
Source: tensorflow v2.21.0 compiler/mlir/lite/transforms/lower_static_tensor_list.cc,
lite/kernels/dynamic_update_slice.cc, lite/kernels/while.cc (what a loop only carries is not copied).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from cudnn_convert import layouts
from cudnn_convert.lower import recurrence as body
from cudnn_convert.lower import steps
from cudnn_convert.lower.sequences import times
from cudnn_convert.lower.steps import State, Steps
from cudnn_convert.lower.tensorflow import Form
from cudnn_convert.model import WAYS, Array, Cell, Mode, Recurrence, Sizes

#: Steps of a block: at each step so many rows are copied, and as often as a block ends all of them.
_STEPS: Final = 32
#: Where the arrays of a recurrence begin, behind its inputs, initial states and lengths.
_ARRAYS: Final = 4


def _weights(recurrence: Recurrence) -> dict[str, Array]:
    return {
        f"{recurrence.shared}/layer_{number}/{way}_{recurrence.dtype.name}/{name}": value
        for number, layer in enumerate(recurrence.cells)
        for way, cell in zip(WAYS, layer, strict=False)
        for name, value in _of_cell(cell).items()
    }


def _of_cell(cell: Cell) -> dict[str, Array]:
    """The arrays of one pseudo-layer by name, in the order that it takes them; peepholes come last."""
    peepholes = {} if cell.peepholes is None else {"peepholes": cell.peepholes}
    return steps.weights(cell) | peepholes


def _stack(recurrence: Recurrence) -> Callable[..., tuple[Any, Any, Any]]:
    """A function `(x, h0, c0, lengths or None, *weights) -> (y, h, c)` in the op's own axis order."""
    cell, sizes = recurrence.cells[0][0], recurrence.sizes
    each, steps_of = len(_of_cell(cell)), _peeping if cell.peepholes is not None else steps.of

    def compute(*given: Any) -> tuple[Any, Any, Any]:
        x, *states_and_lengths = given[:_ARRAYS]
        arrays = given[_ARRAYS:]
        names = [name for layer in names_of_loops(sizes) for name in layer]
        by_kernel = {arrays[p * each].ref(): name for p, name in enumerate(names)}
        layer = partial(_layer, names=by_kernel, cell=steps_of)
        stack = body.stacked(sizes, layer, each, time_major=recurrence.time_major)
        return stack(_apart(x), *states_and_lengths, *arrays)

    return compute


def _apart(x: Any) -> Any:
    """`x`, whose first row is written into it again.

    Where its size is known, the converter would make a sum or a factor before it part of the weights, and
    no tensor of the file would hold those. Source: tensorflow v2.21.0 FuseBinaryOpToFollowingAffineOp in
    compiler/mlir/lite/transforms/optimize.cc.
    """
    same = _written(x, x[:1], 0)
    same.set_shape(x.shape)
    return same


def names_of_loops(sizes: Sizes) -> list[list[str]]:
    """The loop of each layer and direction, below the name of the node, in the order of the stack."""
    return [[f"layer_{layer}_{way}" for way in WAYS[: sizes.directions]] for layer in range(sizes.layers)]


def _layer(
    mode: Mode,
    x: Any,
    state: Sequence[Any],
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    names: Mapping[Any, str],
    cell: Callable[..., Steps],
) -> tuple[Any, Any, Any]:
    sums, stepped = cell(mode, x, arrays, layouts.LOOP)
    time, batch, width = tf.shape(x)[0], tf.shape(x)[1], state[0].shape[1]
    empty = tf.zeros(tf.stack([_STEPS, batch, width]), x.dtype)
    blocks = tf.zeros(tf.stack([(time + _STEPS - 1) // _STEPS * _STEPS, batch, width]), x.dtype)

    def block(first: Any, held: Any, *old: Any) -> tuple[Any, ...]:
        def step(t: Any, steps: Any, *old: Any) -> tuple[Any, ...]:
            at = time - 1 - t if backward else t
            new = stepped([part[at] for part in sums], old)
            y = new[0]
            if lengths is not None:
                alive = tf.expand_dims(at < lengths, 1)
                new = tuple(tf.where(alive, one, other) for one, other in zip(new, old, strict=True))
                y = tf.where(alive, y, tf.zeros_like(y))
            return t + 1, _written(steps, y[None], t - first), *new

        _, steps, *new = _repeated(step, tf.minimum(first + _STEPS, time), (first, empty, *old))
        return first + _STEPS, _written(held, steps, first), *new

    _, y, *last = _repeated(block, time, (tf.constant(0), blocks, *state), name=names[arrays[0].ref()])
    y = tf.ensure_shape(y[:time], [None, None, width])
    return tf.reverse(y, [0]) if backward else y, last[0], last[-1]


def _repeated(
    step: Callable[..., tuple[Any, ...]], end: Any, start: tuple[Any, ...], *, name: str | None = None
) -> Any:
    """`step` while the first of its arguments is below `end`; of shapes the last axis alone is kept."""
    shapes = tuple(tf.TensorShape([None] * (len(part.shape) - 1) + part.shape[-1:]) for part in start)
    return tf.while_loop(lambda t, *_: t < end, step, start, shape_invariants=shapes, name=name)


def _written(held: Any, rows: Any, at: Any) -> Any:
    """`held [time, batch, width]` with `rows` from row `at` on."""
    return gen_xla_ops.xla_dynamic_update_slice(input=held, update=rows, indices=tf.stack([at, 0, 0]))


def _peeping(_: Mode, x: Any, arrays: Sequence[Any], __: layouts.Layout) -> Steps:
    """An LSTM with peepholes `[3, units]`; gates in the order of `layouts.LOOP`."""
    kernel, recurrent, bias, peepholes = arrays

    def step(rows: Sequence[Any], state: State) -> State:
        h, c = state
        i, f, o, memory = tf.split(rows[0] + h @ recurrent, 4, 1)
        c = tf.sigmoid(f + peepholes[1] * c) * c + tf.sigmoid(i + peepholes[0] * c) * tf.tanh(memory)
        return tf.sigmoid(o + peepholes[2] * c) * tf.tanh(c), c

    return [times(x, kernel, bias)], step


FORM: Final = Form(_weights, _stack)
