"""Weights spelled out gate by gate, and what each source stores of them, in NumPy and nothing of the package.

Gates are letters: i input, f forget, g new memory, o output; r reset, z update, n candidate; h a plain RNN's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from cudnn_convert.model import Array, Cell, Mode, Sizes

#: cuDNN's order of linear layer ids.
CUDNN = MappingProxyType({Mode.LSTM: "ifgo", Mode.GRU: "rzn", Mode.RNN_TANH: "h", Mode.RNN_RELU: "h"})
#: The gates in the columns of each row of the gate table.
_PLAIN = {Mode.RNN_TANH: "h", Mode.RNN_RELU: "h"}
ROWS: Mapping[str, Mapping[Mode, str]] = MappingProxyType(
    {
        "contrib": {Mode.LSTM: "igfo", Mode.GRU: "rzn", **_PLAIN},
        "keras": {Mode.LSTM: "ifgo", Mode.GRU: "zrn", **_PLAIN},
        "block_lstm": {Mode.LSTM: "ifgo"},
        "block_lstm_v1": {Mode.LSTM: "igfo"},
        "lstm_cell": {Mode.LSTM: "igfo"},
        "basic_lstm_cell": {Mode.LSTM: "igfo"},
        "loop": {Mode.LSTM: "ifog", Mode.GRU: "rzn", **_PLAIN},
        "onnx": {Mode.LSTM: "iofg", Mode.GRU: "zrn", **_PLAIN},
    }
)


@dataclass(frozen=True)
class Parts:
    """One pseudo-layer by gate: `W [units, inputs]`, `R [units, width]`, their biases `b` and `d [units]`.

    `Q [width, units]` is an LSTM's projection. A skipped input has identities for W, and `skipped` is true.
    """

    W: Mapping[str, Array]
    R: Mapping[str, Array]
    b: Mapping[str, Array]
    d: Mapping[str, Array]
    Q: Array | None = None
    skipped: bool = False

    @property
    def groups(self) -> tuple[Mapping[str, Array], ...]:
        return self.W, self.R, self.b, self.d

    @property
    def sums(self) -> dict[str, Array]:
        return {gate: self.b[gate] + self.d[gate] for gate in self.b}


def drawn(sizes: Sizes, seed: int, dtype: Any = "float32") -> list[list[Parts]]:
    """Random, and so distinct, weights `[layer][direction]`, such that sums of products stay near 1."""
    random = np.random.default_rng(seed)

    def uniform(*shape: int) -> Array:
        return random.uniform(-1, 1, shape).astype(dtype)

    def matrix(rows: int, columns: int) -> Array:
        return (random.uniform(-1, 1, (rows, columns)) / np.sqrt(columns)).astype(dtype)

    def one(layer: int) -> Parts:
        gates, units, width = CUDNN[sizes.mode], sizes.units, sizes.projection or sizes.units
        inputs = sizes.input_size if layer == 0 else sizes.directions * width
        skipped = layer == 0 and sizes.skip_input
        return Parts(
            {gate: np.eye(units, dtype=dtype) if skipped else matrix(units, inputs) for gate in gates},
            {gate: matrix(units, width) for gate in gates},
            {gate: uniform(units) for gate in gates},
            {gate: uniform(units) for gate in gates},
            matrix(width, units) if sizes.projection else None,
            skipped,
        )

    return [[one(layer) for _ in range(sizes.directions)] for layer in range(sizes.layers)]


def cell(mode: Mode, parts: Parts) -> Cell:
    """The package's own form of a pseudo-layer."""
    stacked = (np.stack([group[gate] for gate in CUDNN[mode]]) for group in parts.groups)
    return Cell(mode, *stacked, projection=parts.Q)


def blob(mode: Mode, layers: Sequence[Sequence[Parts]]) -> Array:
    """cuDNN's parameters: all matrices of a pseudo-layer, then of the next, and then all biases likewise."""
    found: list[Array] = []
    for parts in (parts for layer in layers for parts in layer):
        found += [] if parts.skipped else [parts.W[gate] for gate in CUDNN[mode]]
        found += [parts.R[gate] for gate in CUDNN[mode]]
        found += [] if parts.Q is None else [parts.Q]
    for parts in (parts for layer in layers for parts in layer):
        found += [bias[gate] for bias in (parts.b, parts.d) for gate in CUDNN[mode]]
    return np.concatenate([part.reshape(-1) for part in found])


def canonical(mode: Mode, parts: Parts, order: str = "") -> dict[str, Array]:
    """The variables of TensorFlow 1's CPU cell; `order` is that of the columns, TensorFlow's if empty."""
    both = {gate: np.vstack([parts.W[gate].T, parts.R[gate].T]) for gate in parts.W}
    gates = order or {Mode.LSTM: "igfo", Mode.GRU: "rz"}.get(mode, "h")
    kernel, bias = np.hstack([both[gate] for gate in gates]), np.hstack([parts.sums[gate] for gate in gates])
    if mode is not Mode.GRU:
        return {"kernel": kernel, "bias": bias}
    return {
        "gates/kernel": kernel,
        "gates/bias": bias,
        "candidate/input_projection/kernel": parts.W["n"].T,
        "candidate/input_projection/bias": parts.b["n"],
        "candidate/hidden_projection/kernel": parts.R["n"].T,
        "candidate/hidden_projection/bias": parts.d["n"],
    }


def keras(mode: Mode, parts: Parts) -> dict[str, Array]:
    """The variables of Keras's CuDNN layer: a gate's columns hold its cuDNN matrix value after value."""
    order = {Mode.LSTM: "ifgo", Mode.GRU: "zrn"}[mode]
    return {
        "kernel": np.hstack([parts.W[gate].reshape(parts.W[gate].shape[::-1]) for gate in order]),
        "recurrent_kernel": np.hstack([parts.R[gate] for gate in order]),
        "bias": np.hstack([bias[gate] for bias in (parts.b, parts.d) for gate in order]),
    }


def on_cpu(mode: Mode, parts: Parts) -> dict[str, Array]:
    """The variables of Keras's LSTM, or of its GRU with `reset_after`."""
    order = {Mode.LSTM: "ifgo", Mode.GRU: "zrn"}[mode]
    b, d, sums = (np.hstack([bias[gate] for gate in order]) for bias in (parts.b, parts.d, parts.sums))
    return {
        "kernel": np.hstack([parts.W[gate].T for gate in order]),
        "recurrent_kernel": np.hstack([parts.R[gate].T for gate in order]),
        "bias": np.stack([b, d]) if mode is Mode.GRU else sums,
    }


def relabelled(parts: Parts, letters: str, others: str) -> Parts:
    """The gates `letters` of the result are those called `others`."""

    def renamed(group: Mapping[str, Array]) -> dict[str, Array]:
        return {letter: group[other] for letter, other in zip(letters, others, strict=True)}

    return Parts(*map(renamed, parts.groups), parts.Q, parts.skipped)
