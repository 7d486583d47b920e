"""Steps from the variables of TensorFlow 1's CPU-compatible cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cudnn_convert.reference.gates import Gates
from cudnn_convert.reference.steps import F64, ORDERS, Products, Step, Steps, activation, ordered, sigmoid


def steps_from_canonical(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> Steps:
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

    def step(number: int) -> Step:
        stem = stems[number]
        own = {key[len(stem) :]: tensors[key] for key in tensors if key.startswith(stem)}
        cast = {key: np.asarray(value, dtype) for key, value in own.items()}
        return _canonical_step(mode, cast, gate_order, forget_bias)

    return Steps(len(stems), step)


def _canonical_step(mode: str, cell: Mapping[str, F64], gate_order: str, forget_bias: float) -> Step:
    if mode == "gru":
        return _canonical_gru(cell, ORDERS[gate_order][1])
    kernel, bias = cell["kernel"], cell["bias"]
    units = len(bias) // (4 if mode == "lstm" else 1)
    inputs, recurrent = kernel[:-units], kernel[-units:]

    def lstm(products: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = np.split(products[0] + h @ recurrent + bias, 4, axis=1)
        i, f, g, o = ordered(ORDERS[gate_order][2], sums, "ifgo")
        c = c * sigmoid(f + c.dtype.type(forget_bias)) + sigmoid(i) * np.tanh(g)
        return np.tanh(c) * sigmoid(o), c

    def plain(products: Products, h: F64, c: F64) -> tuple[F64, F64]:
        return activation(mode)(products[0] + h @ recurrent + bias), c

    def gates() -> Gates:
        stored, wanted = (ORDERS[gate_order][2], "ifgo") if mode == "lstm" else ("h", "h")
        groups = (np.split(part, len(stored), axis=-1) for part in (inputs, recurrent, bias))
        W, R, b = (tuple(ordered(stored, group, wanted)) for group in groups)
        if mode == "lstm":
            b = (b[0], b[1] + bias.dtype.type(forget_bias), *b[2:])
        # The cells keep one bias, the sum of cuDNN's two.
        zero = np.zeros(units, bias.dtype)
        return Gates(mode, tuple(one.T for one in W), tuple(one.T for one in R), b, (zero,) * len(b))

    return Step(lambda x: [x @ inputs], lstm if mode == "lstm" else plain, gates)


def _canonical_gru(cell: Mapping[str, F64], order: str) -> Step:
    gate_kernel, gate_bias = cell["gates/kernel"], cell["gates/bias"]
    in_kernel, in_bias = (cell[f"candidate/input_projection/{part}"] for part in ("kernel", "bias"))
    re_kernel, re_bias = (cell[f"candidate/hidden_projection/{part}"] for part in ("kernel", "bias"))

    units = len(in_bias)

    def gru(products: Products, h: F64, c: F64) -> tuple[F64, F64]:
        gates = np.split(sigmoid(products[0] + h @ gate_kernel[-units:] + gate_bias), 2, axis=1)
        r, u = ordered(order, gates, "rz")
        candidate = np.tanh(products[1] + in_bias + r * (h @ re_kernel + re_bias))
        return (1 - u) * candidate + u * h, c

    def gates() -> Gates:
        W, R, b = (
            dict(zip(order, np.split(part, 2, axis=-1), strict=True))
            for part in (gate_kernel[:-units], gate_kernel[-units:], gate_bias)
        )
        zero = np.zeros(units, gate_bias.dtype)
        return Gates(
            "gru",
            (W["r"].T, W["z"].T, in_kernel.T),
            (R["r"].T, R["z"].T, re_kernel.T),
            (b["r"], b["z"], in_bias),
            (zero, zero, re_bias),
        )

    return Step(lambda x: [x @ gate_kernel[:-units], x @ in_kernel], gru, gates)
