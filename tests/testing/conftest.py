"""An LSTM written by hand, as the judge of all kinds of models."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest


@dataclass(frozen=True)
class Lstm:
    """Gates i, f, c, o side by side: `kernel` [inputs, 4*units], `recurrent_kernel` [units, 4*units]."""

    kernel: np.ndarray
    recurrent_kernel: np.ndarray
    bias: np.ndarray

    @property
    def units(self) -> int:
        return len(self.recurrent_kernel)

    @property
    def weights(self) -> list[np.ndarray]:
        return [self.kernel, self.recurrent_kernel, self.bias]

    def swapped(self) -> Lstm:
        """The same with the input gate's and the forget gate's columns exchanged."""
        order = np.arange(4 * self.units).reshape(4, -1)[[1, 0, 2, 3]].ravel()
        return replace(self, kernel=self.kernel[:, order], recurrent_kernel=self.recurrent_kernel[:, order])

    def __call__(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """`x` [batch, time, inputs]; gives `y` [batch, time, units], `h` and `c` [batch, units]."""
        wide = [weights.astype(np.float64) for weights in self.weights]
        h = c = np.zeros((len(x), self.units))
        steps = []
        for step in x.astype(np.float64).swapaxes(0, 1):
            i, f, g, o = np.split(step @ wide[0] + h @ wide[1] + wide[2], 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            steps.append(h)
        found = {"y": np.stack(steps, 1), "h": h, "c": c}
        return {name: value.astype(np.float32) for name, value in found.items()}


def sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


@pytest.fixture(scope="session")
def lstm() -> Lstm:
    """3 inputs, 4 units; all weights differ."""
    drawn = np.random.default_rng(7)
    kernel, recurrent, bias = (drawn.uniform(-0.9, 0.9, shape) for shape in ((3, 16), (4, 16), 16))
    return Lstm(*(value.astype(np.float32) for value in (kernel, recurrent, bias)))


@pytest.fixture(scope="session")
def feeds() -> list[dict[str, np.ndarray]]:
    """Two calls of other lengths and batches."""
    drawn = np.random.default_rng(8)
    return [{"x": drawn.normal(size=shape).astype(np.float32)} for shape in ((2, 9, 3), (5, 6, 3))]
