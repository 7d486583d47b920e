"""What could go wrong in the computation itself: which way it steps, where it starts and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from cudnn_convert.lower import recurrence
from cudnn_convert.lower import steps as of_steps
from cudnn_convert.lower.sequences import times
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
    right = recurrence.stacked

    def stacked(sizes: Any, layer: Layer, *rest: Any, **named: Any) -> Any:
        return right(sizes, change(layer), *rest, **named)

    monkeypatch.setattr(recurrence, "stacked", stacked)


def resets_before_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GRU as first published: the reset gate multiplies the state, not its product with the matrix."""

    def before(x: Any, order: Any, *arrays: Any) -> Any:
        kernel, recurrent, bias, recurrent_bias = arrays
        in_order = [
            dict(zip(order, tf.split(part, 3, -1), strict=True))
            for part in (times(x, kernel) + bias + recurrent_bias, recurrent)
        ]
        (sums, matrices), gates = in_order, (Gate.RESET, Gate.UPDATE, Gate.CANDIDATE)

        def step(rows: Any, state: Any) -> Any:
            h, into = state[0], [matrices[gate] for gate in gates]
            r, z = (tf.sigmoid(row + h @ matrix) for row, matrix in zip(rows[:2], into[:2], strict=True))
            n = tf.tanh(rows[2] + (r * h) @ into[2])
            return ((1 - z) * n + z * h,)

        return [sums[gate] for gate in gates], step

    monkeypatch.setattr(of_steps, "_whole_gru", before)
