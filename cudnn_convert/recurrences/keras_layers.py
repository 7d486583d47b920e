"""Recurrences as layers of Keras 3: functional models of `LSTM`, `GRU` and `SimpleRNN`.

A model has an input `inputs` `[batch, time, input_size]`, with `states` also `initial_h` (and an LSTM's
`initial_c`) `[batch, layers*directions, units]`; its outputs are `outputs` `[batch, time, directions*units]`,
`state_h` and an LSTM's `state_c`, of the shape of the initial ones. Layer n is named `layer_<n>`; one of two
directions is a `Bidirectional`. Keras is batch-major throughout; lengths become the caller's mask.
Source: keras v3.15.0 src/layers/rnn/lstm.py, gru.py (`reset_after`), simple_rnn.py, bidirectional.py.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cudnn_convert.model import Cell, Mode, Sizes
from cudnn_convert.weights import layouts

_ACTIVATIONS: Final = {Mode.RNN_TANH: "tanh", Mode.RNN_RELU: "relu"}


def name_model(name: str) -> str:
    """The name of a recurrence's model and file: its scope, in letters and digits."""
    return re.sub(r"\W", "_", re.sub(r"/CudnnRNN(V[23])?(_\d+)?$", "", name)).strip("_") or "rnn"


def name_layer(number: int) -> str:
    """The name of a layer in its model."""
    return f"layer_{number}"


def explain_refusal(name: str, sizes: Sizes) -> str | None:
    """Why Keras has no layer for such a recurrence, or None."""
    if not sizes.projection:
        return None
    return (
        f"{name}: expected no projection, which layers of Keras 3 have not, found {sizes.projection} values"
    )


def build_model(
    name: str, sizes: Sizes, cells: Sequence[Sequence[Cell]], dtype: np.dtype[Any], *, states: bool = False
) -> Any:
    """The functional model of a recurrence; `cells` are `[layer][direction]`."""
    import keras

    kinds = "hc" if sizes.mode is Mode.LSTM else "h"
    depth, kind = sizes.layers * sizes.directions, dtype.name
    x = keras.Input([None, sizes.input_size], name="inputs", dtype=kind)
    inputs = {"inputs": x}
    if states:
        inputs |= {
            f"initial_{key}": keras.Input([depth, sizes.units], name=f"initial_{key}", dtype=kind)
            for key in kinds
        }
    ends: list[list[Any]] = []
    for number in range(sizes.layers):
        rows = range(number * sizes.directions, (number + 1) * sizes.directions)
        begin = [_take(inputs[f"initial_{key}"], row) for row in rows for key in kinds] if states else None
        x, *after = _layer(number, sizes, kind)(x, initial_state=begin)
        ends += [after[first : first + len(kinds)] for first in range(0, len(after), len(kinds))]
    outputs = [keras.layers.Identity(name="outputs", dtype=kind)(x)]
    for number, key in enumerate(kinds):
        joined = _join([end[number] for end in ends])
        outputs.append(keras.layers.Identity(name=f"state_{key}", dtype=kind)(joined))
    model = keras.Model([*inputs.values()], outputs, name=name_model(name))
    for number, layer in enumerate(cells):
        model.get_layer(name_layer(number)).set_weights(
            [value for cell in layer for value in layouts.pack_keras(cell).values()]
        )
    return model


def _take(states: Any, row: int) -> Any:
    """Row `row` of states `[batch, rows, units]`, by layers that every program with Keras knows."""
    import keras

    depth, units, dtype = states.shape[1], states.shape[2], states.dtype
    cropped = keras.layers.Cropping1D((row, depth - row - 1), dtype=dtype)(states) if depth > 1 else states
    return keras.layers.Reshape([units], dtype=dtype)(cropped)


def _join(states: Sequence[Any]) -> Any:
    """States `[batch, units]` as `[batch, rows, units]`."""
    import keras

    dtype = states[0].dtype
    rows = [keras.layers.Reshape([1, state.shape[1]], dtype=dtype)(state) for state in states]
    return keras.layers.Concatenate(axis=1, dtype=dtype)(rows) if len(rows) > 1 else rows[0]


def _layer(number: int, sizes: Sizes, dtype: str) -> Any:
    import keras

    named: dict[str, Any] = {"return_sequences": True, "return_state": True, "dtype": dtype}
    classes = {Mode.LSTM: keras.layers.LSTM, Mode.GRU: keras.layers.GRU}
    kind = classes.get(sizes.mode, keras.layers.SimpleRNN)
    if dtype.endswith("16"):  # JAX cannot draw an orthogonal matrix in half precision
        named |= {"recurrent_initializer": "glorot_uniform"}
    if sizes.mode is Mode.GRU:
        named |= {"reset_after": True}
    if sizes.mode in classes:
        named |= {"activation": "tanh", "recurrent_activation": "sigmoid"}
    else:
        named |= {"activation": _ACTIVATIONS[sizes.mode]}
    if sizes.directions == 1:
        return kind(sizes.units, name=name_layer(number), **named)
    return keras.layers.Bidirectional(kind(sizes.units, **named), name=name_layer(number), dtype=dtype)
