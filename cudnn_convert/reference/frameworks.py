"""Computes a step of a layer and direction from the weights of other frameworks.

Each dialect has a function that takes tensors by their key without the path of the module, and states where
the gates, matrices and biases lie. The equations of a step are cuDNN's for all of them; where
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

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
    `added_to_forget` is what the equations of the source add to f.
    """

    gates: str
    W: Sequence[F64] | None
    R: Sequence[F64]
    input_bias: Sequence[F64]
    state_bias: Sequence[F64]
    Q: F64 | None = None
    added_to_forget: float = 0.0


def make_step(mode: str, cell: StoredCell, gate_order: str, forget_bias: float) -> CellStep:
    """Return the step of a cell by cuDNN's equations."""
    forget_bias += cell.added_to_forget
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


@dataclass(frozen=True, slots=True)
class _Source:
    """The tensors of a recurrence by key, read as `dtype`."""

    tensors: Mapping[str, F64]
    dtype: Any

    def read(self, key: str) -> F64:
        return np.asarray(self.tensors[key], self.dtype)

    def find(self, key: str) -> F64 | None:
        """Return the tensor of a key, or None."""
        return self.read(key) if key in self.tensors else None

    def find_bias(self, key: str, size: int) -> F64:
        """Return the vector of a key, or zeros."""
        return self.read(key) if key in self.tensors else np.zeros(size, self.dtype)


#: The cells of a recurrence in the order of pseudo-layers, each read when it is called.
_Cells: TypeAlias = Sequence[Callable[[], StoredCell]]


def make_steps(
    list_cells: Callable[[_Source, str, int, int], _Cells],
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> CellSteps:
    """Return a step for each pseudo-layer from the cells of a dialect."""
    gates = {"lstm": "ifgo", "gru": "rzn"}.get(mode, "h")
    cells = list_cells(_Source(tensors, dtype), gates, layers, directions)
    return CellSteps(len(cells), lambda number: make_step(mode, cells[number](), gate_order, forget_bias))


def _list_torch(source: _Source, gates: str, layers: int, directions: int) -> _Cells:
    """List the cells of a PyTorch module or cell."""
    ends = [f"_l{layer}{reverse}" for layer in range(layers) for reverse in ("", "_reverse")[:directions]]
    ends = [""] if "weight_ih" in source.tensors else ends

    def cell(end: str) -> StoredCell:
        W, R = (np.split(source.read(name + end), len(gates)) for name in ("weight_ih", "weight_hh"))
        biases = [name + end for name in ("bias_ih", "bias_hh")]
        if biases[0] in source.tensors:
            bW, bR = (np.split(source.read(key), len(gates)) for key in biases)
        else:
            bW = bR = [np.zeros(len(matrix), source.dtype) for matrix in W]
        return StoredCell(gates, W, R, bW, bR, source.find(f"weight_hr{end}"))

    return [partial(cell, end) for end in ends]


def _list_mxnet(source: _Source, gates: str, layers: int, directions: int) -> _Cells:
    """List the cells of MXNet's layers and cells.

    The head of a key has the number of the layer and the letter of the direction, if there are several.
    """
    names = {"ifgo": "ifco", "rzn": "rzo"}.get(gates, "")
    heads = {re.split(r"[ih]2[hr]_", key)[0] for key in source.tensors}

    def rank(head: str) -> tuple[int, bool]:
        return int("".join(filter(str.isdigit, head)) or 0), "r" in head

    def cell(head: str) -> StoredCell:
        def rows(name: str, kind: str) -> list[F64]:
            whole = source.find(f"{head}{name}_{kind}")
            if whole is not None:
                return np.split(whole, len(gates))
            return [source.read(f"{head}{name}_{gate}_{kind}") for gate in names]

        W, R = rows("i2h", "weight"), rows("h2h", "weight")
        bW, bR = rows("i2h", "bias"), rows("h2h", "bias")
        return StoredCell(gates, W, R, bW, bR, source.find(f"{head}h2r_weight"))

    assert len(heads) == layers * directions, heads
    return [partial(cell, head) for head in sorted(heads, key=rank)]


def _list_named(source: _Source, gates: str, layers: int, directions: int) -> _Cells:
    """List the cells of decoded weights, as `--format npz` writes them."""
    ways = ("forward", "backward")[:directions]
    heads = [f"layer_{layer}/{direction}/" for layer in range(layers) for direction in ways]

    def cell(head: str) -> StoredCell:
        W, Q = source.find(f"{head}kernel"), source.find(f"{head}projection")
        R, bW, bR = (
            list(source.read(head + field)) for field in ("recurrent_kernel", "bias", "recurrent_bias")
        )
        return StoredCell(gates, None if W is None else list(W), R, bW, bR, Q)

    return [partial(cell, head) for head in heads]


def _list_flax(source: _Source, gates: str, layers: int, directions: int) -> _Cells:
    """List the directions of Flax's cells, of one layer.

    A kernel multiplies from the right. Without its `bias`, a part adds none.
    """
    assert layers == 1

    def group(head: str, side: str) -> tuple[list[F64], list[F64]]:
        whole = source.find(f"{head}dense_{side}/kernel")
        if whole is not None:
            bias = source.find_bias(f"{head}dense_{side}/bias", whole.shape[1])
            return np.split(whole.T, len(gates)), np.split(bias, len(gates))
        matrices, vectors = [], []
        for gate in gates:
            name = f"{head}{side}" if gate == "h" else f"{head}{side}{gate}"
            if f"{name}_/kernel" in source.tensors:  # nnx writes no word of Python
                name += "_"
            kernel = source.read(f"{name}/kernel")
            matrices.append(kernel.T)
            vectors.append(source.find_bias(f"{name}/bias", kernel.shape[1]))
        return matrices, vectors

    def cell(head: str) -> StoredCell:
        (W, bW), (R, bR) = group(head, "i"), group(head, "h")
        return StoredCell(gates, W, R, bW, bR)

    return [partial(cell, head) for head in (["forward_rnn/", "backward_rnn/"] if directions == 2 else [""])]


def _list_haiku(source: _Source, gates: str, layers: int, directions: int) -> _Cells:
    """List the only cell of a core of Haiku."""
    assert (layers, directions) == (1, 1)

    def cell() -> StoredCell:
        w, b = source.read("linear/w"), source.read("linear/b")
        if gates == "ifgo":
            units = w.shape[1] // 4
            blocks = np.split(w, 4, axis=1)
            W, R = [block[: len(w) - units].T for block in blocks], [block[-units:].T for block in blocks]
            none = [np.zeros(units, source.dtype)] * 4
            return StoredCell("igfo", W, R, np.split(b, 4), none, added_to_forget=1)
        state_bias = source.find_bias("linear_1/b", len(b))
        return StoredCell(gates, [w.T], [source.read("linear_1/w").T], [b], [state_bias])

    return [cell]


#: The function that makes steps of stored tensors, by dialect.
DIALECTS: Final[Mapping[str, Callable[..., CellSteps]]] = MappingProxyType(
    {
        "torch": partial(make_steps, _list_torch),
        "mxnet": partial(make_steps, _list_mxnet),
        "named": partial(make_steps, _list_named),
        "flax": partial(make_steps, _list_flax),
        "haiku": partial(make_steps, _list_haiku),
    }
)
