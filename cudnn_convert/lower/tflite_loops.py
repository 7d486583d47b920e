"""Loops of TensorFlow Lite ops for recurrences, in blocks of steps.

In TensorFlow Lite a TensorList becomes a tensor that each update copies whole, so a loop of 1000 steps mostly
copies, and inside a loop or a branch of the model it does not convert. Here an inner loop writes into a block
of a few steps, and an outer loop writes the blocks into the whole, by an op that becomes
DYNAMIC_UPDATE_SLICE.

Source: tensorflow v2.21.0 compiler/mlir/lite/transforms/lower_static_tensor_list.cc,
lite/kernels/dynamic_update_slice.cc, lite/kernels/while.cc (what a loop only carries is not copied).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, Final

import tensorflow as tf

from cudnn_convert.lower.tensorflow import layer_stack, lower, while_loop
from cudnn_convert.lower.tensorflow.while_loop import CellSteps, State
from cudnn_convert.model import WAYS, Array, Cell, Mode, Recurrence, Sizes
from cudnn_convert.private import tf_private
from cudnn_convert.weights import layouts

#: Steps of a block: each step copies this many rows, the end of each block all rows.
_STEPS: Final = 32


def list_names(sizes: Sizes) -> list[str]:
    """List the names of layers and directions below the node's name, in stack order."""
    places = product(range(sizes.layers), WAYS[: sizes.directions])
    return [f"layer_{layer}_{direction}" for layer, direction in places]


def read_cell(cell: Cell) -> dict[str, Array]:
    """Return the arrays of a pseudo-layer by name, in order; peepholes come last."""
    peepholes = {} if cell.peepholes is None else {"peepholes": cell.peepholes}
    return while_loop.weights(cell) | peepholes


def name_weights(
    recurrence: Recurrence, read: Callable[[Cell], Mapping[str, Array]] = read_cell
) -> dict[str, Array]:
    """Return the arrays of a recurrence by the names of variables.

    `read` gives those of a pseudo-layer by name, in order.
    """
    return {
        f"{recurrence.shared}/layer_{number}/{direction}_{recurrence.dtype.name}/{name}": value
        for number, layer in enumerate(recurrence.cells)
        for direction, cell in zip(WAYS, layer, strict=False)
        for name, value in read(cell).items()
    }


def choose_cells(recurrence: Recurrence) -> Callable[..., CellSteps]:
    """Return the function `(mode, x, arrays, layout) -> steps` of the recurrence's pseudo-layers."""
    return _peeping if recurrence.cells[0][0].peepholes is not None else _cell_steps


def _stack(recurrence: Recurrence) -> Callable[..., tuple[Any, Any, Any]]:
    """Return a function `(x, h0, c0, lengths or None, *weights) -> (y, h, c)`.

    The axes are those of the cuDNN op.
    """
    cell, sizes = recurrence.cells[0][0], recurrence.sizes
    each, steps_of = len(read_cell(cell)), choose_cells(recurrence)

    def compute(*given: Any) -> tuple[Any, Any, Any]:  # the name is in names of the file's tensors
        x, h, c, lengths, *arrays = given
        by_kernel = {arrays[p * each].ref(): name for p, name in enumerate(list_names(sizes))}
        layer = partial(_layer, names=by_kernel, cell=steps_of)
        stack = layer_stack.stack_layers(sizes, layer, each, time_major=recurrence.time_major)
        return stack(_apart(x), h, c, lengths, *arrays)

    return compute


def _apart(x: Any) -> Any:
    """Write the first row of `x` into `x` again, to block a fusion.

    Where the size of `x` is known, the converter would fold a sum or a factor before it into the weights, and
    no tensor of the file would hold those. Source: tensorflow v2.21.0 FuseBinaryOpToFollowingAffineOp in
    compiler/mlir/lite/transforms/optimize.cc.
    """
    same = _write_rows(x, x[:1], 0)
    same.set_shape(x.shape)
    return same


def _layer(
    mode: Mode,
    x: Any,
    state: Sequence[Any],
    lengths: Any,
    arrays: Sequence[Any],
    *,
    backward: bool,
    names: Mapping[Any, str],
    cell: Callable[..., CellSteps],
) -> tuple[Any, Any, Any]:
    sums, stepped = cell(mode, x, arrays, layouts.LOOP)
    time, batch, width = tf.shape(x)[0], tf.shape(x)[1], state[0].shape[1]
    empty = tf.zeros(tf.stack([_STEPS, batch, width]), x.dtype)
    blocks = tf.zeros(tf.stack([(time + _STEPS - 1) // _STEPS * _STEPS, batch, width]), x.dtype)

    def block(first: Any, items: Any, *old: Any) -> tuple[Any, ...]:
        def step(t: Any, steps: Any, *old: Any) -> tuple[Any, ...]:
            at = time - 1 - t if backward else t
            new = stepped([part[at] for part in sums], old)
            y = new[0]
            if lengths is not None:
                alive = tf.expand_dims(at < lengths, 1)
                new = tuple(tf.where(alive, value, other) for value, other in zip(new, old, strict=True))
                y = tf.where(alive, y, tf.zeros_like(y))
            return t + 1, _write_rows(steps, y[None], t - first), *new

        _, steps, *new = _repeat(step, tf.minimum(first + _STEPS, time), (first, empty, *old))
        return first + _STEPS, _write_rows(items, steps, first), *new

    _, y, *last = _repeat(block, time, (tf.constant(0), blocks, *state), name=names[arrays[0].ref()])
    y = tf.ensure_shape(y[:time], [None, None, width])
    return tf.reverse(y, [0]) if backward else y, last[0], last[-1]


def _repeat(
    step: Callable[..., tuple[Any, ...]], end: Any, start: tuple[Any, ...], *, name: str | None = None
) -> Any:
    """Repeat `step` while the first argument is below `end`.

    Of shapes only the last axis is invariant.
    """
    shapes = tuple(tf.TensorShape([None] * (len(part.shape) - 1) + part.shape[-1:]) for part in start)
    return tf.while_loop(lambda t, *_: t < end, step, start, shape_invariants=shapes, name=name)


def _write_rows(items: Any, rows: Any, at: Any) -> Any:
    """Return `items [time, batch, width]` with `rows` written at row `at`."""
    return tf_private.dynamic_update_slice(items, rows, tf.stack([at, 0, 0]))


def _cell_steps(mode: Mode, x: Any, arrays: Sequence[Any], layout: layouts.Layout) -> CellSteps:
    return while_loop.cell_steps(mode, x, arrays, layout, times=_times)


def _times(x: Any, matrix: Any, bias: Any = None) -> Any:
    """Compute `while_loop.times` free of RESHAPE: FULLY_CONNECTED takes an input of any rank.

    Behind a RESHAPE, the products of a GRU's gates and of its candidate used the input of an earlier call in
    some interpreters of TensorFlow 2.21.0 with XNNPACK, none without it
    (`tests/end_to_end/test_tflite.py`).
    """
    return while_loop.affine(x, matrix, bias, tf.matmul)


def _peeping(_: Mode, x: Any, arrays: Sequence[Any], __: layouts.Layout) -> CellSteps:
    """Return the steps of an LSTM with peepholes `[3, units]`, gates ordered as `layouts.LOOP`."""
    kernel, recurrent, bias, peepholes = arrays

    def step(rows: Sequence[Any], state: State) -> State:
        h, c = state
        i, f, o, memory = tf.split(rows[0] + h @ recurrent, 4, 1)
        c = tf.sigmoid(f + peepholes[1] * c) * c + tf.sigmoid(i + peepholes[0] * c) * tf.tanh(memory)
        return tf.sigmoid(o + peepholes[2] * c) * tf.tanh(c), c

    return [_times(x, kernel, bias)], step


#: The form of recurrences that are loops, for graphs of any sizes.
FORM: Final = lower.WeightForm(name_weights, _stack)
