"""The contents of `tf.contrib.rnn`: cells, fused cells, stacks of bidirectional layers.

Of the cells that contrib alone had, those of cuDNN's layers are here. The core's cells come from tf_keras,
whatever Keras TensorFlow uses.
Source: tensorflow v1.15.0 contrib/rnn/__init__.py, contrib/rnn/python/ops/rnn.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from cudnn_convert.compat.cells import (
    FusedRNNCell,
    FusedRNNCellAdaptor,
    LSTMBlockCell,
    LSTMBlockFusedCell,
    TimeReversedFusedRNN,
)
from cudnn_convert.private import keras_private

_core, _ = keras_private.legacy_namespaces()
RNNCell, LayerRNNCell = _core.RNNCell, keras_private.legacy_cells().LayerRNNCell
BasicRNNCell, BasicLSTMCell = _core.BasicRNNCell, _core.BasicLSTMCell
GRUCell, LSTMCell = _core.GRUCell, _core.LSTMCell
LSTMStateTuple, MultiRNNCell = _core.LSTMStateTuple, _core.MultiRNNCell
DropoutWrapper, ResidualWrapper = _core.DropoutWrapper, _core.ResidualWrapper
DeviceWrapper = _core.DeviceWrapper
static_rnn = tf.compat.v1.nn.static_rnn
static_state_saving_rnn = tf.compat.v1.nn.static_state_saving_rnn
static_bidirectional_rnn = tf.compat.v1.nn.static_bidirectional_rnn

__all__ = [
    "BasicLSTMCell",
    "BasicRNNCell",
    "DeviceWrapper",
    "DropoutWrapper",
    "FusedRNNCell",
    "FusedRNNCellAdaptor",
    "GRUCell",
    "LSTMBlockCell",
    "LSTMBlockFusedCell",
    "LSTMCell",
    "LSTMStateTuple",
    "LayerRNNCell",
    "MultiRNNCell",
    "RNNCell",
    "ResidualWrapper",
    "TimeReversedFusedRNN",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
    "static_bidirectional_rnn",
    "static_rnn",
    "static_state_saving_rnn",
]

#: `(forward cell, backward cell, inputs, forward state, backward state, scope of the layer)`
#: -> `(outputs, forward state, backward state)`.
_Bidirectional = Callable[..., tuple[Any, Any, Any]]


def stack_bidirectional_dynamic_rnn(
    cells_fw: list[Any],
    cells_bw: list[Any],
    inputs: Any,
    initial_states_fw: list[Any] | None = None,
    initial_states_bw: list[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Stack bidirectional layers, a forward and a backward cell each.

    inputs `[batch, time, inputs]`, or `[time, batch, inputs]` if `time_major`; outputs alike, of both
    directions side by side; then the final states of each direction. Variables are in the scope
    `stack_bidirectional_rnn/cell_<layer>/bidirectional_rnn/<fw|bw>`. Raises ValueError for cells or states
    that are no lists of equal length.
    """

    def layer(forward: Any, backward: Any, x: Any, first: Any, last: Any, _: Any) -> tuple[Any, Any, Any]:
        outputs, states = tf.compat.v1.nn.bidirectional_dynamic_rnn(
            forward, backward, x,
            initial_state_fw=first, initial_state_bw=last, dtype=dtype, sequence_length=sequence_length,
            parallel_iterations=parallel_iterations, swap_memory=swap_memory, time_major=time_major,
        )  # fmt: skip
        return tf.concat(outputs, 2), *states

    return _stack(cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope, layer)


def stack_bidirectional_rnn(
    cells_fw: list[Any],
    cells_bw: list[Any],
    inputs: list[Any],
    initial_states_fw: list[Any] | None = None,
    initial_states_bw: list[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Stack bidirectional layers over a list of steps `[batch, inputs]`, unrolled.

    Otherwise as `stack_bidirectional_dynamic_rnn`.
    """

    def layer(forward: Any, backward: Any, x: Any, first: Any, last: Any, at: Any) -> tuple[Any, Any, Any]:
        results: tuple[Any, Any, Any] = static_bidirectional_rnn(
            forward, backward, x,
            initial_state_fw=first, initial_state_bw=last, dtype=dtype, sequence_length=sequence_length,
            scope=at,
        )  # fmt: skip
        return results

    return _stack(cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, scope, layer)


def _stack(
    forward: list[Any],
    backward: list[Any],
    x: Any,
    states_fw: list[Any] | None,
    states_bw: list[Any] | None,
    scope: Any,
    layer: _Bidirectional,
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    _check_cells(forward, backward)
    for name, states in (("initial_states_fw", states_fw), ("initial_states_bw", states_bw)):
        if states is not None and (not isinstance(states, list) or len(states) != len(forward)):
            raise ValueError(f"{name} must be a list of state tensors (one per layer).")
    first = states_fw or [None] * len(forward)
    last = states_bw or [None] * len(forward)
    ends = []
    with tf.compat.v1.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, cells in enumerate(zip(forward, backward, strict=True)):
            with tf.compat.v1.variable_scope(f"cell_{number}") as at:
                x, *end = layer(*cells, x, first[number], last[number], at)
            ends.append(end)
    return x, *(tuple(states) for states in zip(*ends, strict=True))


def _check_cells(forward: Sequence[Any], backward: Sequence[Any]) -> None:
    for name, cells in (("fw", forward), ("bw", backward)):
        if not cells:
            raise ValueError(f"Must specify at least one {name} cell for BidirectionalRNN.")
        if not isinstance(cells, list):
            raise ValueError(f"cells_{name} must be a list of RNNCells (one per layer).")
    if len(forward) != len(backward):
        raise ValueError("Forward and Backward cells must have the same depth.")
