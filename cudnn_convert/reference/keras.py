"""Steps from the variables of Keras's CuDNNLSTM and CuDNNGRU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudnn_convert.reference.gates import Gates
from cudnn_convert.reference.steps import F64, ORDERS, Products, Step, Steps, ordered, sigmoid


def steps_from_keras(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> Steps:
    """One step function per direction from the variables of Keras's CuDNNLSTM or CuDNNGRU.

    `tensors` is keyed without the layer's scope: `kernel`, `recurrent_kernel`, `bias`, for two directions
    below `forward_layer/` and `backward_layer/`. A Keras layer is one layer.
    """
    if layers != 1:
        raise ValueError(f"{layers} layers")
    stems = ("",) if directions == 1 else ("forward_layer/", "backward_layer/")

    def step(number: int) -> Step:
        parts = (tensors[stems[number] + key] for key in ("kernel", "recurrent_kernel", "bias"))
        arrays = [np.asarray(part, dtype) for part in parts]
        return _keras_step(mode, arrays, gate_order, forget_bias)

    return Steps(len(stems), step)


def _keras_step(mode: str, tensors: Sequence[F64], gate_order: str, forget_bias: float) -> Step:
    """Columns of the kernels are gates i, f, c, o or z, r, h; the bias is bW of each, then bR of each.

    cuDNN reads the numbers of a gate's columns, row after row, as its matrix, which has the units first.
    """
    kernel, recurrent_kernel, bias = tensors
    units, gates = len(recurrent_kernel), 4 if mode == "lstm" else 3

    def gate(weights: F64, k: int) -> F64:
        return np.reshape(weights[:, k * units : (k + 1) * units].flatten(), (units, len(weights)))

    W = [gate(kernel, k) for k in range(gates)]
    R = [gate(recurrent_kernel, k) for k in range(gates)]
    b = bias.reshape(2, gates, units)

    def lstm(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (wx[k] + h @ R[k].T + b[0, k] + b[1, k] for k in range(4))
        i, f, g, o = ordered(ORDERS[gate_order][0], sums, "ifgo")
        c = sigmoid(f + c.dtype.type(forget_bias)) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    def gru(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        # The layer hands these on as r, z: what cuDNN has for z lies first.
        gates = [sigmoid(wx[k] + h @ R[k].T + b[0, k] + b[1, k]) for k in (1, 0)]
        r, z = ordered(ORDERS[gate_order][1], gates, "rz")
        n = np.tanh(wx[2] + b[0, 2] + r * (h @ R[2].T + b[1, 2]))
        return (1 - z) * n + z * h, c

    def as_gates() -> Gates:
        lstm_order, gru_order, _ = ORDERS[gate_order]
        stored, wanted = (lstm_order, "ifgo") if mode == "lstm" else (f"{gru_order}n", "rzn")
        # As above: what cuDNN has for z lies first.
        places = [0, 1, 2, 3] if mode == "lstm" else [1, 0, 2]
        groups = ([part[k] for k in places] for part in (W, R, b[0], b[1]))
        kernel, recurrent, bias, other = (tuple(ordered(stored, group, wanted)) for group in groups)
        if mode == "lstm":
            bias = (bias[0], bias[1] + bias[1].dtype.type(forget_bias), *bias[2:])
        return Gates(mode, kernel, recurrent, bias, other)

    return Step(lambda x: [x @ matrix.T for matrix in W], lstm if mode == "lstm" else gru, as_gates)
