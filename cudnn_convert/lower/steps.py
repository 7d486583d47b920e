"""One step of each cell in TensorFlow ops, and what of it can be computed for all steps beforehand."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

import tensorflow as tf

from cudnn_convert import layouts
from cudnn_convert.layouts import Layout
from cudnn_convert.lower.sequences import affine, times
from cudnn_convert.model import Array, Cell, Gate, Mode, Sizes

#: The hidden state `[batch, width]`, which is a step's output too, and an LSTM's cell state.
State = tuple[Any, ...]
#: `(rows of each sum, old state) -> new state`.
Step = Callable[[Sequence[Any], State], State]
_ACTIVATIONS: Final[dict[Mode, Callable[[Any], Any]]] = {Mode.RNN_TANH: tf.tanh, Mode.RNN_RELU: tf.nn.relu}
#: A GRU's kernel, recurrent kernel, bias and recurrent bias, each with the columns of all gates.
_WHOLE: Final = 4

#: The input's part of each sum, `[time, batch, columns]`, and what takes one row of each.
Steps = tuple[Sequence[Any], Step]


def weights(cell: Cell) -> dict[str, Array]:
    """The arrays that `of` takes, by name and in order.

    A GRU's candidate has matrices of its own: to take the columns of a product apart is to copy them.
    """
    kernel, recurrent = layouts.columns(cell, layouts.LOOP)
    if cell.mode is not Mode.GRU:
        projected = zip(["projection"], layouts.projection_columns(cell), strict=False)
        bias = layouts.summed_bias(cell, layouts.LOOP)
        return {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias, **dict(projected)}
    bias, recurrent_bias = layouts.biases(cell, layouts.LOOP)
    count = 2 * recurrent.shape[1] // 3
    gates, candidate = slice(count), slice(count, None)
    return {
        "gates_kernel": kernel[:, gates],
        "gates_recurrent_kernel": recurrent[:, gates],
        "gates_bias": bias[gates] + recurrent_bias[gates],
        "candidate_kernel": kernel[:, candidate],
        "candidate_recurrent_kernel": recurrent[:, candidate],
        "candidate_bias": bias[candidate],
        "candidate_recurrent_bias": recurrent_bias[candidate],
    }


def shapes(sizes: Sizes, layer: int) -> dict[str, tuple[int, ...]]:
    """Those of the `weights` of a layer's cells, for which none has to be there."""
    inputs, units, width = sizes.inputs(layer), sizes.units, sizes.width
    if sizes.mode is not Mode.GRU:
        columns = len(sizes.mode.gates) * units
        projected = {"projection": (units, width)} if sizes.projection else {}
        return {
            "kernel": (inputs, columns),
            "recurrent_kernel": (width, columns),
            "bias": (columns,),
            **projected,
        }
    return {
        "gates_kernel": (inputs, 2 * units),
        "gates_recurrent_kernel": (units, 2 * units),
        "gates_bias": (2 * units,),
        "candidate_kernel": (inputs, units),
        "candidate_recurrent_kernel": (units, units),
        "candidate_bias": (units,),
        "candidate_recurrent_bias": (units,),
    }


def of(mode: Mode, x: Any, arrays: Sequence[Any], layout: Layout) -> Steps:
    """The steps of a pseudo-layer; gates in the order of `layout`, a GRU's candidate last."""
    order = layout.gates[mode]
    if mode is Mode.GRU:
        return (_whole_gru if len(arrays) == _WHOLE else _gru)(x, order, *arrays)
    kernel, recurrent, bias, *projection = arrays
    step = partial(_lstm, order) if mode is Mode.LSTM else partial(_rnn, _ACTIVATIONS[mode])
    return [times(x, kernel, bias)], partial(step, recurrent, *projection)


def _rnn(activation: Callable[[Any], Any], recurrent: Any, rows: Sequence[Any], state: State) -> State:
    return (activation(rows[0] + state[0] @ recurrent),)


def _lstm(order: Sequence[Gate], recurrent: Any, *rest: Any) -> State:
    """`rest`: the projection if there is one, the rows, the state."""
    *projection, (sums,), (h, c) = rest
    gates = _activated(sums + h @ recurrent, order)
    c = gates[Gate.FORGET] * c + gates[Gate.INPUT] * gates[Gate.CELL]
    h = gates[Gate.OUTPUT] * tf.tanh(c)
    return h @ projection[0] if projection else h, c


def _gru(x: Any, order: Sequence[Gate], *arrays: Any) -> Steps:
    kernel, recurrent, bias, *candidate = arrays
    candidate_kernel, candidate_recurrent, candidate_bias, recurrent_bias = candidate

    def step(rows: Sequence[Any], state: State) -> State:
        h = state[0]
        gates = rows[0] + h @ recurrent
        return _gated(order, gates, rows[1], affine(h, candidate_recurrent, recurrent_bias), h)

    return [times(x, kernel, bias), times(x, candidate_kernel, candidate_bias)], step


def _whole_gru(x: Any, order: Sequence[Gate], *arrays: Any) -> Steps:
    kernel, recurrent, bias, recurrent_bias = arrays
    sizes = [2 * recurrent.shape[0], recurrent.shape[0]]

    def step(rows: Sequence[Any], state: State) -> State:
        h = state[0]
        gates, candidate = tf.split(affine(h, recurrent, recurrent_bias), sizes, 1)
        return _gated(order, rows[0] + gates, rows[1], candidate, h)

    return tf.split(times(x, kernel, bias), sizes, 2), step


def _gated(order: Sequence[Gate], gates: Any, candidate: Any, candidate_h: Any, h: Any) -> State:
    gate = dict(zip(order, tf.split(tf.sigmoid(gates), 2, 1), strict=False))
    n = tf.tanh(candidate + gate[Gate.RESET] * candidate_h)
    return (n + gate[Gate.UPDATE] * (h - n),)


def _activated(sums: Any, order: Sequence[Gate]) -> dict[Gate, Any]:
    """An LSTM's gates; those with a sigmoid that stand side by side go through one."""
    units = sums.shape[1] // len(order)
    runs = [list(run) for _, run in groupby(order, key=partial(operator.is_, Gate.CELL))]
    found: dict[Gate, Any] = {}
    for run, part in zip(runs, tf.split(sums, [len(run) * units for run in runs], 1), strict=True):
        active = tf.tanh(part) if run == [Gate.CELL] else tf.sigmoid(part)
        found |= zip(run, tf.split(active, len(run), 1) if len(run) > 1 else [active], strict=True)
    return found
