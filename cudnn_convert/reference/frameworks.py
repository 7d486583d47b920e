"""Computes a step of a layer and direction from the weights of other frameworks.

Each function takes tensors by their key without the path of the module, in the names of one dialect, and
states where the gates, matrices and biases lie. The equations of a step are cuDNN's for all of them; where
sources differ, their functions say so. Letters are those of `reference`.

Sources: pytorch v2.8.0 torch/nn/modules/rnn.py, LSTM (W_ii|W_if|W_ig|W_io), GRU (W_ir|W_iz|W_in), RNN; flax
v0.12.0 flax/linen/recurrent.py and flax/nnx/nn/recurrent.py, LSTMCell, OptimizedLSTMCell (i, f, g, o),
GRUCell (r, z, n), SimpleCell; dm-haiku v0.0.17 haiku/_src/recurrent.py, LSTM (i, g, f, o; f + 1), VanillaRNN;
mxnet 1.9.1 src/operator/rnn_impl.h LstmForwardInferenceSingleLayer (i, f, g, o),
GruForwardInferenceSingleLayer (r, z, n), python/mxnet/rnn/rnn_cell.py FusedRNNCell._gate_names (_i _f _c _o,
_r _z _o).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudnn_convert.reference.steps import (
    F64,
    ORDERS,
    CellStep,
    CellSteps,
    Gates,
    Products,
    activation,
    order_gates,
    sigmoid,
)


@dataclass(frozen=True, slots=True)
class StoredCell:
    """The weights of a pseudo-layer, a matrix or vector a gate, in the order of the letters `gates`.

    Matrices are `[units, inputs]` and `[units, width]`; `W` is None where the input itself goes to each gate.
    """

    gates: str
    W: Sequence[F64] | None
    R: Sequence[F64]
    input_bias: Sequence[F64]
    state_bias: Sequence[F64]
    Q: F64 | None = None


def make_step(mode: str, cell: StoredCell, gate_order: str, forget_bias: float) -> CellStep:
    """Return the step of a cell by cuDNN's equations."""
    # What stands at the place of i, g, f, o in a source of that order.
    named = dict(zip(ORDERS["tf"][2], ORDERS[gate_order][2], strict=True)) if mode == "lstm" else {}
    if mode == "gru":
        named = dict(zip("rz", ORDERS[gate_order][1], strict=True))
    stored = "".join(named.get(letter, letter) for letter in cell.gates)

    def weigh(x: F64) -> Products:
        return [x] * len(cell.gates) if cell.W is None else [x @ matrix.T for matrix in cell.W]

    def project(h: F64) -> F64:
        return h if cell.Q is None else h @ cell.Q.T

    def lstm(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (wx[k] + h @ cell.R[k].T + cell.input_bias[k] + cell.state_bias[k] for k in range(4))
        i, f, g, o = order_gates(stored, sums, "ifgo")
        c = sigmoid(f + c.dtype.type(forget_bias)) * c + sigmoid(i) * np.tanh(g)
        return project(sigmoid(o) * np.tanh(c)), c

    def gru(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        from_input = [wx[k] + cell.input_bias[k] for k in range(3)]
        from_state = [h @ cell.R[k].T + cell.state_bias[k] for k in range(3)]
        xr, xz, xn = order_gates(stored, from_input, "rzn")
        hr, hz, hn = order_gates(stored, from_state, "rzn")
        z = sigmoid(xz + hz)
        return z * h + (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn), c

    def plain(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        return activation(mode)(wx[0] + h @ cell.R[0].T + cell.input_bias[0] + cell.state_bias[0]), c

    def gates() -> Gates:
        wanted = {"lstm": "ifgo", "gru": "rzn"}.get(mode, "h")
        W, R, bW, bR = (
            None if group is None else tuple(order_gates(stored, group, wanted))
            for group in (cell.W, cell.R, cell.input_bias, cell.state_bias)
        )
        assert R is not None and bW is not None and bR is not None
        if mode == "lstm":
            bW = (bW[0], bW[1] + bW[1].dtype.type(forget_bias), *bW[2:])
        return Gates(mode, W, R, bW, bR, cell.Q)

    return CellStep(weigh, {"lstm": lstm, "gru": gru}.get(mode, plain), gates)


def steps_from_torch(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each pseudo-layer from the state dict of a PyTorch module or cell."""
    gates = {"lstm": "ifgo", "gru": "rzn"}.get(mode, "h")
    ends = [f"_l{layer}{reverse}" for layer in range(layers) for reverse in ("", "_reverse")[:directions]]
    ends = [""] if "weight_ih" in tensors else ends

    def step(number: int) -> CellStep:
        def split(name: str) -> list[F64]:
            return np.split(np.asarray(tensors[name + ends[number]], dtype), len(gates))

        W, R = split("weight_ih"), split("weight_hh")
        has_bias = f"bias_ih{ends[number]}" in tensors
        none = [np.zeros(len(matrix), dtype) for matrix in W]
        bW, bR = (split("bias_ih"), split("bias_hh")) if has_bias else (none, none)
        projection = tensors.get(f"weight_hr{ends[number]}")
        Q = None if projection is None else np.asarray(projection, dtype)
        return make_step(mode, StoredCell(gates, W, R, bW, bR, Q), gate_order, forget_bias)

    return CellSteps(len(ends), step)


def steps_from_mxnet(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each pseudo-layer from the arrays of MXNet's layers and cells.

    The head of a key has the number of the layer and the letter of the direction, if there are several.
    """
    gates, names = {"lstm": ("ifgo", "ifco"), "gru": ("rzn", "rzo")}.get(mode, ("h", ""))
    heads = {re.split(r"[ih]2[hr]_", key)[0] for key in tensors}

    def rank(head: str) -> tuple[int, bool]:
        return int("".join(filter(str.isdigit, head)) or 0), "r" in head

    ordered = sorted(heads, key=rank)
    assert len(ordered) == layers * directions, ordered

    def step(number: int) -> CellStep:
        head = ordered[number]

        def rows(name: str, kind: str) -> list[F64]:
            if f"{head}{name}_{kind}" in tensors:
                return np.split(np.asarray(tensors[f"{head}{name}_{kind}"], dtype), len(gates))
            return [np.asarray(tensors[f"{head}{name}_{gate}_{kind}"], dtype) for gate in names]

        W, R = rows("i2h", "weight"), rows("h2h", "weight")
        bW, bR = rows("i2h", "bias"), rows("h2h", "bias")
        projection = tensors.get(f"{head}h2r_weight")
        Q = None if projection is None else np.asarray(projection, dtype)
        return make_step(mode, StoredCell(gates, W, R, bW, bR, Q), gate_order, forget_bias)

    return CellSteps(len(ordered), step)


def steps_from_named(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each pseudo-layer from decoded weights, as `--format npz` writes them."""
    gates = {"lstm": "ifgo", "gru": "rzn"}.get(mode, "h")
    ways = ("forward", "backward")[:directions]
    places = [f"layer_{layer}/{direction}/" for layer in range(layers) for direction in ways]

    def step(number: int) -> CellStep:
        def take(field: str) -> list[F64]:
            return list(np.asarray(tensors[places[number] + field], dtype))

        W = take("kernel") if f"{places[number]}kernel" in tensors else None
        projection = tensors.get(f"{places[number]}projection")
        Q = None if projection is None else np.asarray(projection, dtype)
        cell = StoredCell(gates, W, take("recurrent_kernel"), take("bias"), take("recurrent_bias"), Q)
        return make_step(mode, cell, gate_order, forget_bias)

    return CellSteps(len(places), step)


def steps_from_flax(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each direction from cells of Flax, of one layer.

    A kernel multiplies from the right. Without its `bias`, a part adds none.
    """
    gates = {"lstm": "ifgo", "gru": "rzn"}.get(mode, "h")
    heads = ["forward_rnn/", "backward_rnn/"] if directions == 2 else [""]

    def step(number: int) -> CellStep:
        head = heads[number]

        def take(key: str) -> F64 | None:
            return np.asarray(tensors[head + key], dtype) if head + key in tensors else None

        def group(side: str) -> tuple[list[F64], list[F64]]:
            whole = take(f"dense_{side}/kernel")
            if whole is not None:
                bias = take(f"dense_{side}/bias")
                bias = np.zeros(whole.shape[1], dtype) if bias is None else bias
                return np.split(whole.T, len(gates)), np.split(bias, len(gates))
            matrices, vectors = [], []
            for gate in gates:
                name = side if gate == "h" else side + gate
                if f"{head}{name}_/kernel" in tensors:  # nnx writes no word of Python
                    name += "_"
                kernel, bias = take(f"{name}/kernel"), take(f"{name}/bias")
                assert kernel is not None
                matrices.append(kernel.T)
                vectors.append(np.zeros(kernel.shape[1], dtype) if bias is None else bias)
            return matrices, vectors

        (W, bW), (R, bR) = group("i"), group("h")
        return make_step(mode, StoredCell(gates, W, R, bW, bR), gate_order, forget_bias)

    assert layers == 1
    return CellSteps(len(heads), step)


def steps_from_haiku(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return the step of a core of Haiku. An LSTM adds 1 to f."""
    assert (layers, directions) == (1, 1)

    def step(_: int) -> CellStep:
        w, b = (np.asarray(tensors[f"linear/{name}"], dtype) for name in "wb")
        if mode == "lstm":
            units = w.shape[1] // 4
            blocks = np.split(w, 4, axis=1)
            W, R = [block[: len(w) - units].T for block in blocks], [block[-units:].T for block in blocks]
            cell = StoredCell("igfo", W, R, np.split(b, 4), [np.zeros(units, dtype)] * 4)
            return make_step(mode, cell, gate_order, forget_bias + 1)
        r = np.asarray(tensors["linear_1/w"], dtype)
        none = np.zeros(len(b), dtype)
        state_bias = np.asarray(tensors["linear_1/b"], dtype) if "linear_1/b" in tensors else none
        return make_step(mode, StoredCell("h", [w.T], [r.T], [b], [state_bias]), gate_order, forget_bias)

    return CellSteps(1, step)
