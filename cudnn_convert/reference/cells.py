"""Recurrent layers of Keras with masks, in float64 NumPy, from layer configs.

They are those around cuDNN's: SimpleRNN, LSTM, GRU, and RNN of one cell or of several, one on the other.
Sources: keras v2.2.4 layers/recurrent.py, backend/tensorflow_backend.py rnn; tensorflow v1.13.2
python/keras/layers/wrappers.py Bidirectional; tf_keras v2.21.0 src/layers/rnn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Config = Mapping[str, Any]
#: `(x, states) -> states`, the first of which is what the cell gives.
Step = Callable[[Array, Sequence[Array]], list[Array]]


@dataclass(frozen=True, slots=True)
class KerasLayer:
    """A layer, as class, config and weights.

    `weights` are in the order of Keras. `differences` are names of keras/config/differences.py, `wrapper` is
    the class of the layer that has this one inside.
    """

    kind: str
    config: Config
    weights: Sequence[Array]
    differences: frozenset[str] = frozenset()
    wrapper: str = ""

    def has(self, difference: str) -> bool:
        """Return True if the layer computes as the older Keras of a difference."""
        return difference in self.differences


#: The functions that a layer names.
ACTIVATIONS: Final[Mapping[str, Callable[[Array], Array]]] = MappingProxyType(
    {
        "linear": lambda x: x,
        "tanh": np.tanh,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "hard_sigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
        "relu": lambda x: np.maximum(x, 0),
        "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        "softplus": lambda x: np.logaddexp(x, 0),
        "softsign": lambda x: x / (1 + np.abs(x)),
    }
)


class UnknownError(Exception):
    """An error for a layer's setting unknown to the equations."""


def activation(config: Config, key: str = "activation") -> Callable[[Array], Array]:
    """Return the function named by a config.

    Raises UnknownError for others than those of `ACTIVATIONS`.
    """
    name = config.get(key) or "linear"
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise UnknownError(f"{key}={name}")
    return ACTIVATIONS[name]


def _simple(config: Config, weights: Sequence[Array]) -> Step:
    kernel, recurrent, *bias = weights
    act = activation(config)
    return lambda x, states: [act(x @ kernel + states[0] @ recurrent + sum(bias))]


def _lstm(config: Config, weights: Sequence[Array]) -> Step:
    kernel, recurrent, *bias = weights
    act, gate = activation(config), activation(config, "recurrent_activation")

    def step(x: Array, states: Sequence[Array]) -> list[Array]:
        h, c = states
        i, f, g, o = np.split(x @ kernel + h @ recurrent + sum(bias), 4, axis=-1)
        c = gate(f) * c + gate(i) * act(g)
        return [gate(o) * act(c), c]

    return step


def _gru(config: Config, weights: Sequence[Array]) -> Step:
    kernel, recurrent, *bias = weights
    act, gate = activation(config), activation(config, "recurrent_activation")
    is_reset_after = bool(config.get("reset_after", False))
    zeros = np.zeros((2, kernel.shape[-1]))
    bias_of_x, bias_of_h = (
        np.reshape(bias[0], (-1, kernel.shape[-1]))
        if is_reset_after and bias
        else ((bias[0], zeros[0]) if bias else zeros)
    )

    def step(x: Array, states: Sequence[Array]) -> list[Array]:
        (h,) = states
        z, r, g = np.split(x @ kernel + bias_of_x, 3, axis=-1)
        if is_reset_after:
            other_z, other_r, other_g = np.split(h @ recurrent + bias_of_h, 3, axis=-1)
            z, r = gate(z + other_z), gate(r + other_r)
            new = act(g + r * other_g)
        else:
            of_z, of_r, of_g = np.split(recurrent, 3, axis=-1)
            z, r = gate(z + h @ of_z), gate(r + h @ of_r)
            new = act(g + (r * h) @ of_g)
        return [z * h + (1 - z) * new]

    return step


#: The maker of a cell's step, and how many states it has.
_CELLS: Final[Mapping[str, tuple[Callable[[Config, Sequence[Array]], Step], int]]] = MappingProxyType(
    {"SimpleRNN": (_simple, 1), "LSTM": (_lstm, 2), "GRU": (_gru, 1)}
)


def _list_cells(kind: str, config: Config) -> list[tuple[str, Config]]:
    """List the cells of a layer, from the cell at the input on."""
    if kind in _CELLS:
        return [(kind, config)]
    if kind != "RNN":
        raise UnknownError(kind)
    cell = config["cell"]
    inner = cell["config"]
    if cell["class_name"] == "StackedRNNCells":
        return [each for entry in inner["cells"] for each in _list_cells("RNN", {"cell": entry})]
    return _list_cells(str(cell["class_name"]).removesuffix("Cell"), inner)


class _StackedCells:
    """Cells in a stack, with a flat list of states.

    The states are cell by cell, or from the last cell on with `is_reversed`.
    """

    def __init__(self, cells: Sequence[tuple[str, Config]], weights: Sequence[Array], *, is_reversed: bool):
        self._steps: list[Step] = []
        left = [np.asarray(weight, np.float64) for weight in weights]
        for kind, config in cells:
            make, own = _CELLS[kind][0], 3 if config.get("use_bias", True) else 2
            self._steps.append(make(config, left[:own]))
            left = left[own:]
        if left:
            raise UnknownError("weights")
        order = range(len(cells))[:: -1 if is_reversed else 1]
        #: How many states each cell has, in the order of the states.
        self._counts = {number: _CELLS[cells[number][0]][1] for number in order}
        self.widths = [int(cells[k][1]["units"]) for k, count in self._counts.items() for _ in range(count)]

    def __call__(self, x: Array, states: Sequence[Array]) -> tuple[Array, list[Array]]:
        """Return the last cell's output, and the new states."""
        left = iter(states)
        own = {number: [*islice(left, count)] for number, count in self._counts.items()}
        for number, step in enumerate(self._steps):
            own[number] = step(x, own[number])
            x = own[number][0]
        return x, [state for states in own.values() for state in states]


def recur(layer: KerasLayer, inputs: Sequence[Array], masks: Sequence[Array | None]) -> list[Array]:
    """Compute a layer: the outputs, and the states if returned by the layer.

    `inputs` are `x [batch, time, features]` and perhaps initial states `[batch, units]`. The first of
    `masks`, `[batch, time]` or None, is false at the steps that are left out. Raises UnknownError for a
    setting without an equation.
    """
    config, mask = layer.config, masks[0]
    if config.get("stateful") or config.get("time_major") or config.get("num_constants"):
        raise UnknownError("stateful, time_major or constants")
    cell = config.get("cell", {}).get("config", {}) if layer.kind == "RNN" else {}
    is_reversed = layer.has("stacked_states_reversed")
    if cell.get("reverse_state_order") and not is_reversed:
        raise UnknownError("reverse_state_order")
    advance = _StackedCells(_list_cells(layer.kind, config), layer.weights, is_reversed=is_reversed)
    x = np.asarray(inputs[0], np.float64)
    if x.ndim != 3:
        raise UnknownError("rank")
    states = [np.asarray(state, np.float64) for state in inputs[1:]]
    states = states or [np.zeros((len(x), width)) for width in advance.widths]
    alive = np.ones(x.shape[:2], bool) if mask is None else np.reshape(mask, x.shape[:2]).astype(bool)
    is_zero, is_unrolled = _gives_zeros(layer), bool(config.get("unroll"))
    repeats_state = mask is not None and layer.has("first_state_at_masked_steps") and not is_unrolled
    outputs: list[Array] = []
    before: Array | None = None
    for t in range(x.shape[1])[:: -1 if config.get("go_backwards") else 1]:
        kept = alive[:, t, None]
        output, new = advance(x[:, t], states)
        if before is None:
            before = np.zeros_like(output)
        other = (
            states[0] if repeats_state else np.zeros_like(output) if is_zero and not is_unrolled else before
        )
        before = np.where(kept, output, other)
        states = [np.where(kept, after, earlier) for after, earlier in zip(new, states, strict=True)]
        outputs.append(before)
    if not outputs:
        raise UnknownError("no steps")
    if is_zero and is_unrolled:
        # tf_keras v2.21.0 src/backend.py rnn: backwards the outputs are reversed, and their mask is not.
        outputs = [np.where(alive[:, t, None], output, 0) for t, output in enumerate(outputs)]
    y = np.stack(outputs, axis=1) if config.get("return_sequences") else outputs[-1]
    return [y, *(states if config.get("return_state") else [])]


def _gives_zeros(layer: KerasLayer) -> bool:
    """Return True if masked steps give zeros instead of the previous output."""
    if layer.differences & {"last_output_at_masked_steps", "first_state_at_masked_steps"}:
        return False
    if layer.wrapper != "Bidirectional":
        return bool(layer.config.get("zero_output_for_mask"))
    return bool(layer.config.get("return_sequences")) or layer.has("last_output_of_padding")
