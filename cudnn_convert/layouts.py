"""The gate table: every order and shape in which a source or a target keeps a cell's weights.

This is the only file that permutes gates, transposes kernels between conventions or sums biases.
A row cites where its order is defined. `Cell` itself is in cuDNN's order (`Mode.gates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from cudnn_convert.model import Array, Cell, Gate, Mode

_I, _F, _C, _O = Gate.INPUT, Gate.FORGET, Gate.CELL, Gate.OUTPUT
_R, _Z, _N = Gate.RESET, Gate.UPDATE, Gate.CANDIDATE
_PLAIN: Final = {Mode.RNN_TANH: (Gate.HIDDEN,), Mode.RNN_RELU: (Gate.HIDDEN,)}


@dataclass(frozen=True, slots=True)
class Layout:
    """Gate order per mode, and the file that defines it."""

    name: str
    gates: Mapping[Mode, tuple[Gate, ...]]
    source: str


CONTRIB: Final = Layout(
    "contrib",
    MappingProxyType({Mode.LSTM: (_I, _C, _F, _O), Mode.GRU: (_R, _Z, _N), **_PLAIN}),
    "tensorflow v1.15.0 contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, CudnnParamsFormatConverter*",
)
BLOCK_LSTM: Final = Layout(
    "block_lstm",
    MappingProxyType({Mode.LSTM: (_I, _F, _C, _O)}),
    "tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTMV2 (gate order ifco)",
)
LOOP: Final = Layout(
    "loop",
    MappingProxyType({Mode.LSTM: (_I, _F, _O, _C), Mode.GRU: (_R, _Z, _N), **_PLAIN}),
    "cudnn_convert.lower.tensorflow: the sigmoid gates first, so that one Sigmoid takes them together",
)
ONNX: Final = Layout(
    "onnx",
    MappingProxyType({Mode.LSTM: (_I, _O, _F, _C), Mode.GRU: (_Z, _R, _N), **_PLAIN}),
    "onnx v1.18 docs/Operators.md LSTM (iofc), GRU (zrh), RNN (i)",
)
LAYOUTS: Final = (CONTRIB, BLOCK_LSTM, LOOP, ONNX)


def _permutation(cell: Cell, layout: Layout) -> list[int]:
    return [cell.mode.gates.index(gate) for gate in layout.gates[cell.mode]]


def columns(cell: Cell, layout: Layout) -> tuple[Array, Array]:
    """`(kernel [inputs, gates*units], recurrent_kernel [units, gates*units])`, TensorFlow's convention."""
    order = _permutation(cell, layout)
    kernel, recurrent = cell.kernel[order], cell.recurrent_kernel[order]
    return _flat(kernel).T.copy(), _flat(recurrent).T.copy()


def stacked_columns(cell: Cell, layout: Layout) -> Array:
    """Both kernels in one, `[inputs+units, gates*units]`, as TensorFlow's LSTM ops take them."""
    return np.concatenate(columns(cell, layout))


def rows(cell: Cell, layout: Layout) -> tuple[Array, Array]:
    """`(kernel [gates*units, inputs], recurrent_kernel [gates*units, units])`, ONNX's convention."""
    order = _permutation(cell, layout)
    return _flat(cell.kernel[order]), _flat(cell.recurrent_kernel[order])


def _flat(weights: Array) -> Array:
    return weights.reshape(-1, weights.shape[-1])


def biases(cell: Cell, layout: Layout) -> tuple[Array, Array]:
    """`(bias, recurrent_bias)`, each `[gates*units]`."""
    order = _permutation(cell, layout)
    return cell.bias[order].reshape(-1), cell.recurrent_bias[order].reshape(-1)


def summed_bias(cell: Cell, layout: Layout) -> Array:
    """Both biases in one, `[gates*units]`; right for every gate but the GRU's candidate."""
    bias, recurrent_bias = biases(cell, layout)
    return np.asarray(bias + recurrent_bias)


def unpack_contrib(mode: Mode, tensors: Mapping[str, Array]) -> Cell:
    """A cell from the variables of the CPU-compatible cell that TensorFlow 1 saved.

    `kernel [inputs+units, gates*units]` and `bias [gates*units]`; for a GRU `gates/*` and the two
    projections of the candidate. A bias that TensorFlow summed is halved into both, as its own restore does.
    """
    if mode is Mode.GRU:
        return _unpack_contrib_gru(tensors)
    order = [CONTRIB.gates[mode].index(gate) for gate in mode.gates]
    gates, bias = len(order), tensors["bias"].reshape(len(order), -1)[order]
    units = bias.shape[1]
    weights = tensors["kernel"].T.reshape(gates, units, -1)[order]
    half = bias * bias.dtype.type(0.5)
    return Cell(mode, weights[:, :, :-units].copy(), weights[:, :, -units:].copy(), half, half.copy())


def _unpack_contrib_gru(tensors: Mapping[str, Array]) -> Cell:
    order = [CONTRIB.gates[Mode.GRU].index(gate) for gate in Mode.GRU.gates]
    units = tensors["candidate/hidden_projection/bias"].shape[0]
    weights = tensors["gates/kernel"].T.reshape(2, units, -1)
    candidate = tensors["candidate/input_projection/kernel"].T[None]
    hidden = tensors["candidate/hidden_projection/kernel"].T[None]
    half = (tensors["gates/bias"] * tensors["gates/bias"].dtype.type(0.5)).reshape(2, units)
    return Cell(
        Mode.GRU,
        np.concatenate([weights[:, :, :-units], candidate])[order],
        np.concatenate([weights[:, :, -units:], hidden])[order],
        np.concatenate([half, tensors["candidate/input_projection/bias"][None]])[order],
        np.concatenate([half, tensors["candidate/hidden_projection/bias"][None]])[order],
    )


def contrib_shapes(mode: Mode, *, units: int, inputs: int) -> dict[str, tuple[int, ...]]:
    """The shapes that `unpack_contrib` takes, one cell's variables, by key."""
    gates = len(mode.gates)
    if mode is not Mode.GRU:
        return {"kernel": (inputs + units, gates * units), "bias": (gates * units,)}
    return {
        "gates/kernel": (inputs + units, 2 * units),
        "gates/bias": (2 * units,),
        "candidate/input_projection/kernel": (inputs, units),
        "candidate/input_projection/bias": (units,),
        "candidate/hidden_projection/kernel": (units, units),
        "candidate/hidden_projection/bias": (units,),
    }
