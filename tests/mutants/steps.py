"""What could go wrong in the computation itself: which way it steps, where it starts and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from cudnn_convert.lower.tensorflow import layer_stack, while_loop
from cudnn_convert.lower.tensorflow.while_loop import times
from cudnn_convert.model import Gate, Mode

Layer = Callable[..., tuple[Any, Any, Any]]


def without_h(layer: Layer) -> Layer:
    """The initial hidden state is zero."""
    return lambda mode, x, state, *rest, **named: layer(
        mode, x, (tf.zeros_like(state[0]), *state[1:]), *rest, **named
    )


def without_c(layer: Layer) -> Layer:
    """The initial cell state is zero."""
    return lambda mode, x, state, *rest, **named: layer(
        mode, x, (*state[:1], *map(tf.zeros_like, state[1:])), *rest, **named
    )


def without_lengths(layer: Layer) -> Layer:
    """Every row is as long as the input."""
    return lambda mode, x, state, lengths, *rest, **named: layer(
        mode, x, state, tf.zeros_like(lengths) + tf.shape(x)[0], *rest, **named
    )


def whole_row_reversed(layer: Layer) -> Layer:
    """Backward from the end of the input, where the row's own end is meant; the same for full lengths."""

    def changed(mode: Mode, x: Any, *rest: Any, backward: bool, **named: Any) -> tuple[Any, Any, Any]:
        if not backward:
            return layer(mode, x, *rest, backward=False, **named)
        y, h, c = layer(mode, tf.reverse(x, [0]), *rest, backward=False, **named)
        return tf.reverse(y, [0]), h, c

    return changed


def backward_as_forward(layer: Layer) -> Layer:
    """Nothing is reversed."""
    return lambda *given, backward, **named: layer(*given, backward=False, **named)


def state_of_last_step(layer: Layer) -> Layer:
    """The final states of a row are those behind its padding."""

    def changed(
        mode: Mode, x: Any, state: Any, lengths: Any, arrays: Any, **named: Any
    ) -> tuple[Any, Any, Any]:
        y, _, _ = layer(mode, x, state, lengths, arrays, **named)
        return y, *layer(mode, x, state, None, arrays, **named)[1:]

    return changed


def padding_not_zeroed(layer: Layer) -> Layer:
    """The states are right, and the outputs go on behind a row's end."""

    def changed(
        mode: Mode, x: Any, state: Any, lengths: Any, arrays: Any, *, backward: bool, **named: Any
    ) -> tuple[Any, Any, Any]:
        y, h, c = layer(mode, x, state, lengths, arrays, backward=backward, **named)
        return y + tf.cast(y == 0, y.dtype) * h[None], h, c

    return changed


#: By name, of each layer in TensorFlow: whatever computes it, the walk over layers and directions is one.
CHANGES: dict[str, Callable[[Layer], Layer]] = {
    change.__name__: change
    for change in (
        *(without_h, without_c, without_lengths, whole_row_reversed, backward_as_forward),
        *(state_of_last_step, padding_not_zeroed),
    )
}


def computes(monkeypatch: pytest.MonkeyPatch, change: Callable[[Layer], Layer]) -> None:
    """From now on each layer is what `change` makes of it."""
    right = layer_stack.stack_layers

    def stacked(sizes: Any, layer: Layer, *rest: Any, **named: Any) -> Any:
        return right(sizes, change(layer), *rest, **named)

    monkeypatch.setattr(layer_stack, "stack_layers", stacked)


def resets_before_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GRU as first published: the reset gate multiplies the state, not its product with the matrix."""

    def before(x: Any, order: Any, *arrays: Any, **_: bool) -> Any:
        into, matrices = (_of_gates(order, *part) for part in _both(arrays))
        gates = (Gate.RESET, Gate.UPDATE, Gate.CANDIDATE)
        bias = {gate: one[1] + other[1] for gate, one, other in ((g, into[g], matrices[g]) for g in gates)}

        def step(rows: Any, state: Any, **_: Any) -> Any:
            h = state[0]
            r, z = (
                tf.sigmoid(row + h @ matrices[gate][0]) for gate, row in zip(gates, rows[:2], strict=False)
            )
            n = tf.tanh(rows[2] + (r * h) @ matrices[Gate.CANDIDATE][0])
            return ((1 - z) * n + z * h,)

        return [times(x, into[gate][0]) + bias[gate] for gate in gates], step

    for name in ("_gru", "_whole_gru"):
        monkeypatch.setattr(while_loop, name, before)


def _both(arrays: Any) -> Any:
    """Of the input and of the state `(matrix, bias)` with the columns of all gates, the candidate last."""
    if len(arrays) == 4:
        kernel, recurrent, bias, recurrent_bias = arrays
        return (kernel, bias), (recurrent, recurrent_bias)
    kernel, recurrent, bias, candidate, recurrent_candidate, candidate_bias, recurrent_bias = arrays
    none = tf.zeros_like(bias)
    return (
        (tf.concat([kernel, candidate], 1), tf.concat([bias, candidate_bias], 0)),
        (tf.concat([recurrent, recurrent_candidate], 1), tf.concat([none, recurrent_bias], 0)),
    )


def _of_gates(order: Any, matrix: Any, bias: Any) -> Any:
    return dict(zip(order, zip(tf.split(matrix, 3, 1), tf.split(bias, 3, 0), strict=True), strict=True))
