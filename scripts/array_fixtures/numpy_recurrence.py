"""cuDNN's equations in float64 NumPy, against which the makers of array fixtures hold their answers.

The equations are those of docs/equations.md. This file is written apart from cudnn_convert/reference, so
that a mistake there does not enter the fixtures.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


@dataclass
class PseudoLayer:
    """The weights of a layer and a direction: matrices [gates*units, in], gates in cuDNN's order."""

    input_matrix: np.ndarray
    recurrent_matrix: np.ndarray
    input_bias: np.ndarray
    recurrent_bias: np.ndarray
    projection: np.ndarray | None = None


@dataclass
class Recurrence:
    """A stack; layers holds one PseudoLayer for each layer and direction, the direction running faster."""

    mode: str
    directions: int
    pseudo_layers: list[PseudoLayer]

    @property
    def layers(self):
        return len(self.pseudo_layers) // self.directions

    @property
    def units(self):
        return self.pseudo_layers[0].input_matrix.shape[0] // GATES[self.mode]

    @property
    def inputs(self):
        return self.pseudo_layers[0].input_matrix.shape[1]

    @property
    def projection(self):
        projection = self.pseudo_layers[0].projection
        return 0 if projection is None else projection.shape[0]

    @property
    def width(self):
        """Of the state h and of a direction's output."""
        return self.projection or self.units

    def run(self, x, h0, c0, lengths):
        """Time-major outputs, and the final states at each row's own end."""
        hs, cs = [], []
        for layer in range(self.layers):
            sides = []
            for direction in range(self.directions):
                at = layer * self.directions + direction
                y, h, c = self.run_direction(at, x, h0[at], None if c0 is None else c0[at], lengths)
                sides.append(y)
                hs.append(h)
                cs.append(c)
            x = np.concatenate(sides, axis=2)
        return x, np.stack(hs), None if c0 is None else np.stack(cs)

    def run_direction(self, at, x, h0, c0, lengths):
        layer = self.pseudo_layers[at]
        y = np.zeros([x.shape[0], x.shape[1], self.width])
        h, c = np.array(h0, np.float64), None if c0 is None else np.array(c0, np.float64)
        backward = at % self.directions == 1
        for row, length in enumerate(lengths):
            for step in reversed(range(length)) if backward else range(length):
                state = None if c is None else c[row]
                h[row], state = self.step(layer, x[step, row], h[row], state)
                if c is not None:
                    c[row] = state
                y[step, row] = h[row]
        return y, h, c

    def step(self, layer, x, h, c):
        from_input = np.split(layer.input_matrix @ x + layer.input_bias, GATES[self.mode])
        from_state = np.split(layer.recurrent_matrix @ h + layer.recurrent_bias, GATES[self.mode])
        if self.mode == "gru":
            reset, update = (sigmoid(from_input[gate] + from_state[gate]) for gate in (0, 1))
            candidate = np.tanh(from_input[2] + reset * from_state[2])
            return (1 - update) * candidate + update * h, None
        sums = [one + other for one, other in zip(from_input, from_state, strict=True)]
        if self.mode == "lstm":
            c = sigmoid(sums[1]) * c + sigmoid(sums[0]) * np.tanh(sums[2])
            h = sigmoid(sums[3]) * np.tanh(c)
            return (h if layer.projection is None else layer.projection @ h), c
        return (np.tanh(sums[0]) if self.mode == "rnn_tanh" else np.maximum(sums[0], 0)), None
