"""What cuDNN computes, in float64 NumPy, straight from the tensors that a source stores.

This is the judge of every lowering, so it shares no code with `layouts`, `opaque`, `read` or `lower`: it
walks a blob by its own offsets, and evaluates canonical tensors by the equations of TensorFlow's own
CPU-compatible cells. Letters: x input, h state, c cell state, W input matrix, R recurrent matrix, b bias.

* LSTM: i,f,o = sigmoid(Wx + Rh + bW + bR), g = tanh(...), c' = f*c + i*g, h' = o*tanh(c').
* GRU: r,z = sigmoid(...), n = tanh(Wx + bW + r*(Rh + bR)), h' = (1-z)*n + z*h.
* RNN: h' = act(Wx + Rh + bW + bR).

Sources: NVIDIA cuDNN 9 API, cudnnRNNMode_t; tensorflow v1.15.0
contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py (CudnnCompatibleLSTMCell, CudnnCompatibleGRUCell) and
python/ops/rnn_cell_impl.py (BasicRNNCell).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

F64: TypeAlias = npt.NDArray[Any]
#: (x [batch, inputs], h [batch, units], c [batch, units]) -> (h, c)
Step: TypeAlias = Callable[[F64, F64, F64], tuple[F64, F64]]


def _sigmoid(x: F64) -> F64:
    # 0.5*(1+tanh(x/2)) neither overflows nor loses digits.
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def _activation(mode: str) -> Callable[[F64], F64]:
    def relu(x: F64) -> F64:
        return np.asarray(np.maximum(x, 0))

    return np.tanh if mode == "rnn_tanh" else relu


def steps_from_blob(
    blob: F64,
    mode: str,
    *,
    layers: int,
    directions: int,
    units: int,
    input_size: int,
    dtype: Any = np.float64,
) -> list[Step]:
    """One step function per pseudo-layer from cuDNN's opaque parameters, a 1-D array."""
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    values = blob.astype(dtype)
    position = 0
    matrices: list[list[F64]] = []
    for layer in range(layers):
        inputs = input_size if layer == 0 else directions * units
        for _ in range(directions):
            found = []
            for k in range(2 * gates):
                wide = inputs if k < gates else units
                found.append(values[position : position + units * wide].reshape(units, wide))
                position += units * wide
            matrices.append(found)
    steps = []
    for found in matrices:
        bias = values[position : position + 2 * gates * units].reshape(2 * gates, units)
        position += 2 * gates * units
        steps.append(_blob_step(mode, found, bias))
    if position != values.size:
        raise ValueError(f"{values.size} parameters, {position} used")
    return steps


def _blob_step(mode: str, m: Sequence[F64], b: F64) -> Step:
    """`m`: the W of each linear id, then the R; `b`: likewise. LSTM ids are i, f, c, o; GRU r, z, h."""

    def lstm(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        i, f, g, o = (x @ m[k].T + h @ m[k + 4].T + b[k] + b[k + 4] for k in range(4))
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        return _sigmoid(o) * np.tanh(c), c

    def gru(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        r, z = (_sigmoid(x @ m[k].T + h @ m[k + 3].T + b[k] + b[k + 3]) for k in range(2))
        n = np.tanh(x @ m[2].T + b[2] + r * (h @ m[5].T + b[5]))
        return (1 - z) * n + z * h, c

    def plain(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        return _activation(mode)(x @ m[0].T + h @ m[1].T + b[0] + b[1]), c

    return {"lstm": lstm, "gru": gru}.get(mode, plain)


def steps_from_canonical(
    tensors: Mapping[str, F64], mode: str, *, layers: int, directions: int, dtype: Any = np.float64
) -> list[Step]:
    """One step function per pseudo-layer from the variables of TensorFlow 1's compatible cells.

    `tensors` is keyed without the layer's scope, e.g. `rnn/multi_rnn_cell/cell_0/basic_rnn_cell/kernel`.
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
        )
        for stem in stems
    ]


def _canonical_step(mode: str, cell: Mapping[str, F64]) -> Step:
    if mode == "gru":
        return _canonical_gru(cell)
    kernel, bias = cell["kernel"], cell["bias"]

    def lstm(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        i, j, f, o = np.split(np.concatenate([x, h], 1) @ kernel + bias, 4, axis=1)
        c = c * _sigmoid(f) + _sigmoid(i) * np.tanh(j)
        return np.tanh(c) * _sigmoid(o), c

    def plain(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        return _activation(mode)(np.concatenate([x, h], 1) @ kernel + bias), c

    return lstm if mode == "lstm" else plain


def _canonical_gru(cell: Mapping[str, F64]) -> Step:
    gate_kernel, gate_bias = cell["gates/kernel"], cell["gates/bias"]
    in_kernel, in_bias = (cell[f"candidate/input_projection/{part}"] for part in ("kernel", "bias"))
    re_kernel, re_bias = (cell[f"candidate/hidden_projection/{part}"] for part in ("kernel", "bias"))

    def gru(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        r, u = np.split(_sigmoid(np.concatenate([x, h], 1) @ gate_kernel + gate_bias), 2, axis=1)
        candidate = np.tanh(x @ in_kernel + in_bias + r * (h @ re_kernel + re_bias))
        return (1 - u) * candidate + u * h, c

    return gru


def run(
    steps: Sequence[Step],
    x: F64,
    h0: F64,
    c0: F64,
    *,
    directions: int,
    lengths: npt.NDArray[Any] | None = None,
) -> tuple[F64, F64, F64]:
    """`x [time, batch, inputs]`, `h0, c0 [layers*directions, batch, units]`, `lengths [batch]`.

    Returns `y [time, batch, directions*units]` with zeros past each length, and the final `h`, `c` at each
    row's own end. The dtype of `x` is the dtype of the arithmetic.
    """
    time, batch = x.shape[:2]
    alive = np.arange(time)[:, None] < (np.full(batch, time) if lengths is None else lengths)[None, :]
    final_h, final_c = h0.copy(), c0.copy()
    for first in range(0, len(steps), directions):
        halves = []
        for way in range(directions):
            h, c = h0[first + way], c0[first + way]
            y = np.zeros((time, batch, h.shape[1]), x.dtype)
            for t in range(time) if way == 0 else reversed(range(time)):
                mask = alive[t][:, None]
                new_h, new_c = steps[first + way](x[t], h, c)
                h, c = np.where(mask, new_h, h), np.where(mask, new_c, c)
                y[t] = np.where(mask, new_h, 0)
            final_h[first + way], final_c[first + way] = h, c
            halves.append(y)
        x = np.concatenate(halves, axis=2)
    return x, final_h, final_c
