"""Steps from the variables of TensorFlow 1's CPU-compatible cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cudnn_convert.reference.steps import F64, ORDERS, Step, activation, ordered, sigmoid


def steps_from_canonical(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> list[Step]:
    """One step function per pseudo-layer from the variables of TensorFlow 1's compatible cells.

    `tensors` is keyed without the layer's scope, e.g. `rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel`.
    `forget_bias` is what an LSTM cell of theirs would add to its forget gate.
    """
    cell = {"lstm": "cudnn_compatible_lstm_cell", "gru": "cudnn_compatible_gru_cell"}.get(
        mode, "basic_rnn_cell"
    )
    if directions == 1:
        stems = [f"rnn/multi_rnn_cell/cell_{layer}/{cell}/" for layer in range(layers)]
    else:
        stems = [
            f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn/{way}/{cell}/"
            for layer in range(layers)
            for way in ("fw", "bw")
        ]
    return [
        _canonical_step(
            mode,
            {key[len(stem) :]: value.astype(dtype) for key, value in tensors.items() if key.startswith(stem)},
            gate_order,
            forget_bias,
        )
        for stem in stems
    ]


def _canonical_step(mode: str, cell: Mapping[str, F64], gate_order: str, forget_bias: float) -> Step:
    if mode == "gru":
        return _canonical_gru(cell, ORDERS[gate_order][1])
    kernel, bias = cell["kernel"], cell["bias"]

    def lstm(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        sums = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, axis=1)
        i, f, g, o = ordered(ORDERS[gate_order][2], sums, "ifgo")
        c = c * sigmoid(f + x.dtype.type(forget_bias)) + sigmoid(i) * np.tanh(g)
        return np.tanh(c) * sigmoid(o), c

    def plain(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        return activation(mode)(np.concatenate([x, h], 1) @ kernel + bias), c

    return lstm if mode == "lstm" else plain


def _canonical_gru(cell: Mapping[str, F64], order: str) -> Step:
    gate_kernel, gate_bias = cell["gates/kernel"], cell["gates/bias"]
    in_kernel, in_bias = (cell[f"candidate/input_projection/{part}"] for part in ("kernel", "bias"))
    re_kernel, re_bias = (cell[f"candidate/hidden_projection/{part}"] for part in ("kernel", "bias"))

    def gru(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        gates = np.split(sigmoid(np.concatenate([x, h], 1) @ gate_kernel + gate_bias), 2, axis=1)
        r, u = ordered(order, gates, "rz")
        candidate = np.tanh(x @ in_kernel + in_bias + r * (h @ re_kernel + re_bias))
        return (1 - u) * candidate + u * h, c

    return gru
