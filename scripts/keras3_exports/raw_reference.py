"""cuDNN's recurrences in float64, from the flat parameter blob, by cuDNN's own description of both.

Blob: for every layer and direction the input matrices gate by gate, then the recurrent ones, each
`[units, in]` row by row; then for every layer and direction the input biases, then the recurrent ones.
Gates: LSTM i, f, g, o; GRU r, z, n. Shares nothing with the package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes that say how a blob is cut. `directions` is 1 or 2."""

    mode: str
    units: int
    input_size: int
    layers: int
    directions: int

    def inputs(self, layer: int) -> int:
        return self.input_size if layer == 0 else self.units * self.directions

    def size(self) -> int:
        rows = GATES[self.mode] * self.units * self.directions
        return sum(rows * (self.inputs(layer) + self.units + 2) for layer in range(self.layers))

    def parameters(self, blob: np.ndarray) -> list[tuple[Any, ...]]:
        """Per layer and direction `W [gates, units, in]`, `R [gates, units, units]`, `bW` and `bR`."""
        gates = GATES[self.mode]
        places = [layer for layer in range(self.layers) for _ in range(self.directions)]
        take = cut(blob.astype(np.float64))
        matrices = [
            (take(gates, self.units, self.inputs(layer)), take(gates, self.units, self.units))
            for layer in places
        ]
        biases = [(take(gates, self.units), take(gates, self.units)) for _ in places]
        return [(*pair, *both) for pair, both in zip(matrices, biases, strict=True)]


def cut(blob: np.ndarray) -> Any:
    """A function that takes the next piece, of a shape."""
    place = 0

    def take(*shape: int) -> np.ndarray:
        nonlocal place
        start, place = place, place + int(np.prod(shape))
        return blob[start:place].reshape(shape)

    return take


def evaluate(
    shape: Shape, blob: np.ndarray, x: np.ndarray, start: np.ndarray, lengths: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs `[T, B, directions * units]` and the last h and c of time-major `x [T, B, input_size]`.

    `start` is the first h and c, `[2, layers * directions, B, units]`; only an LSTM reads c. Outputs past a
    row's length are zero; a row's last state is that of its own last step.
    """
    steps, batch, _ = x.shape
    rows = [steps] * batch if lengths is None else [int(length) for length in lengths]
    parameters, state = shape.parameters(blob), np.array(start, np.float64)
    sequence = x.astype(np.float64)
    for layer in range(shape.layers):
        sides = []
        for direction in range(shape.directions):
            place, output = layer * shape.directions + direction, np.zeros((steps, batch, shape.units))
            for row, length in enumerate(rows):
                for t in order(length, direction):
                    h, c = step(shape.mode, parameters[place], sequence[t, row], state[:, place, row])
                    output[t, row], state[:, place, row] = h, (h, c)
            sides.append(output)
        sequence = np.concatenate(sides, axis=-1)
    return sequence, state[0], state[1]


def order(length: int, direction: int) -> Iterator[int]:
    return iter(range(length) if direction == 0 else range(length - 1, -1, -1))


def sigmoid(value: np.ndarray) -> np.ndarray:
    return np.asarray(1.0 / (1.0 + np.exp(-value)))


def step(mode: str, parameters: Any, x: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The next h and c `[units]` of one row, from `state [2, units]`."""
    kernel, recurrent, bias, recurrent_bias = parameters
    h, c = state
    from_input, from_state = kernel @ x + bias, recurrent @ h + recurrent_bias
    if mode == "gru":
        r, z = sigmoid(from_input[0] + from_state[0]), sigmoid(from_input[1] + from_state[1])
        return (1 - z) * np.tanh(from_input[2] + r * from_state[2]) + z * h, c
    total = from_input + from_state
    if mode == "lstm":
        i, f, g, o = sigmoid(total[0]), sigmoid(total[1]), np.tanh(total[2]), sigmoid(total[3])
        c = f * c + i * g
        return o * np.tanh(c), c
    return (np.tanh(total[0]) if mode == "rnn_tanh" else np.maximum(total[0], 0.0)), c
