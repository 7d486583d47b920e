"""Steps from cuDNN's opaque parameters, and from their regions saved one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudnn_convert.reference.steps import F64, ORDERS, Step, activation, ordered, sigmoid


def steps_from_blob(
    blob: F64,
    mode: str,
    *,
    layers: int,
    directions: int,
    units: int,
    input_size: int,
    skip_input: bool = False,
    projection: int = 0,
    gate_order: str = "tf",
    dtype: Any = np.float64,
) -> list[Step]:
    """One step function per pseudo-layer from cuDNN's opaque parameters, a 1-D array.

    With `skip_input` layer 0 has no W. With a `projection` the last matrix of each pseudo-layer is it.
    """
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    values, width, position = blob.astype(dtype), projection or units, 0

    def take(*shape: int) -> F64:
        nonlocal position
        position += shape[0] * shape[1]
        return values[position - shape[0] * shape[1] : position].reshape(shape)

    matrices: list[list[F64 | None]] = []
    for layer in range(layers):
        inputs = input_size if layer == 0 else directions * width
        skipped = layer == 0 and skip_input
        for _ in range(directions):
            found: list[F64 | None] = [None if skipped else take(units, inputs) for _ in range(gates)]
            found += [take(units, width) for _ in range(gates)]
            found += [take(projection, units)] if projection else []
            matrices.append(found)
    steps = [_blob_step(mode, found, take(2 * gates, units), gate_order) for found in matrices]
    if position != values.size:
        raise ValueError(f"{values.size} parameters, {position} used")
    return steps


def _blob_step(mode: str, m: Sequence[F64 | None], b: F64, gate_order: str) -> Step:
    """`m`: the W of each linear id, then the R; `b`: likewise. LSTM ids are i, f, c, o; GRU r, z, h.

    A W that is None is the identity; an LSTM's ninth matrix is its projection.
    """

    lstm_order, gru_order, _ = ORDERS[gate_order]

    def times(k: int, x: F64) -> F64:
        matrix = m[k]
        return x if matrix is None else np.asarray(x @ matrix.T)

    def lstm(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (times(k, x) + times(k + 4, h) + b[k] + b[k + 4] for k in range(4))
        i, f, g, o = ordered(lstm_order, sums, "ifgo")
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return times(8, h) if len(m) == 9 else h, c

    def gru(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (sigmoid(times(k, x) + times(k + 3, h) + b[k] + b[k + 3]) for k in range(2))
        r, z = ordered(gru_order, sums, "rz")
        n = np.tanh(times(2, x) + b[2] + r * (times(5, h) + b[5]))
        return (1 - z) * n + z * h, c

    def plain(x: F64, h: F64, c: F64) -> tuple[F64, F64]:
        return activation(mode)(times(0, x) + times(1, h) + b[0] + b[1]), c

    return {"lstm": lstm, "gru": gru}.get(mode, plain)


def steps_from_regions(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> list[Step]:
    """One step function per pseudo-layer from the outputs of CudnnRNNParamsToCanonical, keyed by their index.

    Weights, then biases, each the values of one region of the blob in the order of its memory.
    """
    regions = [tensors[str(k)] for k in range(len(tensors))]
    units, first = regions[-1].size, len(regions) // 2
    if mode == "lstm":  # of the eight biases of a pseudo-layer the second is the forget gate's
        for k in range(first + 1, len(regions), 8):
            regions[k] = regions[k] + forget_bias
    return steps_from_blob(
        np.concatenate([region.ravel() for region in regions]),
        mode,
        layers=layers,
        directions=directions,
        units=units,
        input_size=regions[0].size // units,
        gate_order=gate_order,
        dtype=dtype,
    )
