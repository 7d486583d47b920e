"""Steps from cuDNN's opaque parameters, and from their regions saved one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cudnn_convert.reference.gates import Gates
from cudnn_convert.reference.steps import F64, ORDERS, Products, Step, Steps, activation, ordered, sigmoid


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
) -> Steps:
    """One step function per pseudo-layer from cuDNN's opaque parameters, a 1-D array.

    With `skip_input` layer 0 has no W. With a `projection` the last matrix of each pseudo-layer is it.
    """
    gates, width = {"lstm": 4, "gru": 3}.get(mode, 1), projection or units
    # The shapes of each pseudo-layer's matrices, None for what is not there, and where they begin.
    shapes: list[list[tuple[int, int] | None]] = []
    starts = [0]
    for layer in range(layers):
        inputs = input_size if layer == 0 else directions * width
        first = None if layer == 0 and skip_input else (units, inputs)
        each = [first] * gates + [(units, width)] * gates + ([(projection, units)] if projection else [])
        for _ in range(directions):
            shapes.append(each)
            starts.append(starts[-1] + sum(shape[0] * shape[1] for shape in each if shape))
    biases, many = starts.pop(), 2 * gates * units
    if biases + many * len(shapes) != blob.size:
        raise ValueError(f"{blob.size} parameters, {biases + many * len(shapes)} used")

    def step(number: int) -> Step:
        at, found = starts[number], list[F64 | None]()
        for shape in shapes[number]:
            found.append(None if shape is None else blob[at : at + shape[0] * shape[1]].reshape(shape))
            at += 0 if shape is None else shape[0] * shape[1]
        at = biases + many * number
        matrices = [None if matrix is None else np.asarray(matrix, dtype) for matrix in found]
        bias = blob[at : at + many].reshape(2 * gates, units).astype(dtype)
        return _blob_step(mode, matrices, bias, gate_order)

    return Steps(len(shapes), step)


def _blob_step(mode: str, m: Sequence[F64 | None], b: F64, gate_order: str) -> Step:
    """`m`: the W of each linear id, then the R; `b`: likewise. LSTM ids are i, f, c, o; GRU r, z, h.

    A W that is None is the identity; an LSTM's ninth matrix is its projection.
    """

    lstm_order, gru_order, _ = ORDERS[gate_order]

    def times(k: int, x: F64) -> F64:
        matrix = m[k]
        return x if matrix is None else np.asarray(x @ matrix.T)

    def lstm(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (wx[k] + times(k + 4, h) + b[k] + b[k + 4] for k in range(4))
        i, f, g, o = ordered(lstm_order, sums, "ifgo")
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        return times(8, h) if len(m) == 9 else h, c

    def gru(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        sums = (sigmoid(wx[k] + times(k + 3, h) + b[k] + b[k + 3]) for k in range(2))
        r, z = ordered(gru_order, sums, "rz")
        n = np.tanh(wx[2] + b[2] + r * (times(5, h) + b[5]))
        return (1 - z) * n + z * h, c

    def plain(wx: Products, h: F64, c: F64) -> tuple[F64, F64]:
        return activation(mode)(wx[0] + times(1, h) + b[0] + b[1]), c

    def gates() -> Gates:
        many = len(b) // 2
        orders = {"lstm": (lstm_order, "ifgo"), "gru": (f"{gru_order}n", "rzn")}
        stored, wanted = orders.get(mode, ("h", "h"))
        groups: list[Any] = [m[:many], m[many : 2 * many], b[:many], b[many:]]
        W, R, bias, other = (tuple(ordered(stored, group, wanted)) for group in groups)
        return Gates(mode, None if m[0] is None else W, R, bias, other, m[8] if len(m) == 9 else None)

    return Step(
        lambda x: [times(k, x) for k in range(len(b) // 2)],
        {"lstm": lstm, "gru": gru}.get(mode, plain),
        gates,
    )


def steps_from_regions(
    tensors: Mapping[str, F64],
    mode: str,
    *,
    layers: int,
    directions: int,
    gate_order: str = "tf",
    forget_bias: float = 0.0,
    dtype: Any = np.float64,
) -> Steps:
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
