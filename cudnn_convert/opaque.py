"""cuDNN's parameter blob: its length, and its way into cells and back.

Layout: for each pseudo-layer (layer-major, forward before backward) the input matrices of all gates, then
the recurrent ones, each row-major `[units, inputs]`; only after all matrices, per pseudo-layer the input
biases of all gates, then the recurrent ones. No padding. The same order holds for every mode and dtype
(apache/mxnet v1.9 python/mxnet/rnn/rnn_cell.py FusedRNNCell._slice_weights hands this blob to cuDNN as it
is; tensorflow v1.15.0 stream_executor/cuda/cuda_dnn.cc CudnnRnnParamsDescriptor asks cuDNN region by region).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.model import Array, Cell, Sizes


def length(sizes: Sizes) -> int:
    """Number of elements of the blob."""
    gates, units, directions = len(sizes.mode.gates), sizes.units, sizes.directions
    return sum(
        directions * gates * units * (sizes.inputs(layer) + units + 2) for layer in range(sizes.layers)
    )


def solve_input_size(elements: int, sizes: Sizes) -> int | None:
    """The input size that makes a blob of `elements`, or None; `sizes.input_size` is not looked at."""
    without = length(Sizes(sizes.mode, sizes.layers, sizes.directions, sizes.units, 0))
    step = sizes.directions * len(sizes.mode.gates) * sizes.units
    inputs, rest = divmod(elements - without, step)
    return inputs if rest == 0 and inputs > 0 else None


def split(blob: Array, sizes: Sizes, *, where: str) -> tuple[tuple[Cell, ...], ...]:
    """The cells `[layer][direction]` as views of the 1-D `blob`.

    Raises InvalidModelError where the length is not exactly the formula's.
    """
    if blob.ndim != 1 or blob.size != length(sizes):
        raise InvalidModelError(
            where, expected=f"{length(sizes)} values for {sizes}", found=f"shape {blob.shape}"
        )
    gates, units, offset = len(sizes.mode.gates), sizes.units, 0

    def take(*shape: int) -> Array:
        nonlocal offset
        start, offset = offset, offset + int(np.prod(shape))
        return blob[start:offset].reshape(shape)

    pseudo = [layer for layer in range(sizes.layers) for _ in range(sizes.directions)]
    matrices = [(take(gates, units, sizes.inputs(layer)), take(gates, units, units)) for layer in pseudo]
    biases = [(take(gates, units), take(gates, units)) for _ in pseudo]
    cells = [Cell(sizes.mode, *pair, *both) for pair, both in zip(matrices, biases, strict=True)]
    return tuple(tuple(cells[i : i + sizes.directions]) for i in range(0, len(cells), sizes.directions))


def join(layers: Sequence[Sequence[Cell]]) -> Array:
    """The blob of cells `[layer][direction]`; the inverse of `split`."""
    cells = [cell for layer in layers for cell in layer]
    matrices = [part.ravel() for cell in cells for part in (cell.kernel, cell.recurrent_kernel)]
    biases = [part.ravel() for cell in cells for part in (cell.bias, cell.recurrent_bias)]
    return np.concatenate(matrices + biases)
