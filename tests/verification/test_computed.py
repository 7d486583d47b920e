"""Large recurrences are computed layer by layer, of weights that are read for it and let go of."""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from cases import Case

from cudnn_convert.model import Array, CanonicalEvidence, Mode, Recurrence
from cudnn_convert.verification import judges
from cudnn_convert.verification.judges import computation
from cudnn_convert.weights import lazy
from cudnn_convert.weights.lazy import Read

GATES, UNITS, INPUTS, LAYERS = 4, 5, 4, 4
KEY = "rnn/multi_rnn_cell/cell_{}/cudnn_compatible_lstm_cell/{}"


class Tensors:
    """The canonical tensors of four layers; remembers what was read, and how many are alive at most."""

    def __init__(self) -> None:
        random = np.random.default_rng(3)
        self.arrays: dict[str, Array] = {}
        for layer in range(LAYERS):
            rows = (INPUTS if layer == 0 else UNITS) + UNITS
            kernel = random.uniform(-0.5, 0.5, (rows, GATES * UNITS)).astype(np.float32)
            bias = random.uniform(-0.5, 0.5, GATES * UNITS).astype(np.float32)
            self.arrays |= {KEY.format(layer, "kernel"): kernel, KEY.format(layer, "bias"): bias}
        self.asked: list[str] = []
        self.alive = self.most = 0

    def read(self, name: str) -> Array:
        self.asked.append(name)
        made = self.arrays[name].astype(np.float64)  # of the type wanted: no cast lets it go
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(made, self._let_go)
        return made

    def _let_go(self) -> None:
        self.alive -= 1

    def recurrence(self) -> Recurrence:
        case = Case(Mode.LSTM, LAYERS)
        evidence = CanonicalEvidence(Read(self.arrays, self.read))
        return replace(case.recurrence(), evidence=evidence)


def expected(tensors: Tensors, x: Array, h: Array, c: Array) -> Array:
    """The last layer's outputs, step by step, as TensorFlow 1's cell has them: gates i, g, f, o."""

    def sigmoid(value: Array) -> Array:
        return 1 / (1 + np.exp(-value))

    for layer in range(LAYERS):
        state, memory, rows = h[layer], c[layer], []
        kernel, bias = (tensors.arrays[KEY.format(layer, part)] for part in ("kernel", "bias"))
        for row in x:
            i, g, f, o = np.split(np.concatenate([row, state], 1) @ kernel.astype(np.float64) + bias, 4, 1)
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
            state = sigmoid(o) * np.tanh(memory)
            rows.append(state)
        x = np.stack(rows)
    return x


@pytest.mark.parametrize("large", [True, False])
def test_each_weight_is_read_once_in_a_call_and_one_layer_is_there_at_a_time(
    large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "LARGE", 0 if large else 1 << 20)
    tensors, seen, random = Tensors(), [], np.random.default_rng(4)
    compute = computation(tensors.recurrence(), np.float64, seen)
    x = random.normal(size=(6, 3, INPUTS))
    h, c = random.uniform(-1, 1, (2, LAYERS, 3, UNITS))
    y, _, _ = compute(x, h, c)
    np.testing.assert_allclose(y, expected(tensors, x, h, c), rtol=1e-12)
    assert sorted(tensors.asked) == sorted(tensors.arrays)
    assert tensors.most == (2 if large else 2 * LAYERS)
    compute(x, h, c)
    assert len(tensors.asked) == len(tensors.arrays)  # the same call is not computed again
    other, _, _ = compute(2 * x, h, c)
    np.testing.assert_allclose(other, expected(tensors, 2 * x, h, c), rtol=1e-12)
    assert len(tensors.asked) == len(tensors.arrays) * (2 if large else 1)
    assert seen == [(6, 3)] * 3


def test_large_weights_are_proven_on_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, fewer = judges.SIZES, judges.FEWER
    assert sum(time for time, _ in fewer) < sum(time for time, _ in usual) / 1.8
    assert len({*fewer[0], *fewer[1]}) >= 3  # another time, another batch

    small, large = Case(Mode.GRU).recurrence(), Case(Mode.GRU, 2).recurrence()
    monkeypatch.setattr(lazy, "LARGE", lazy.length(small.sizes) * small.dtype.itemsize)

    def sizes(*recurrences: Recurrence) -> judges.Sizes:
        return judges.sizes(SimpleNamespace(recurrences=recurrences))

    assert sizes(large, large) == fewer
    assert sizes(small) == sizes(small, large) == sizes() == usual
