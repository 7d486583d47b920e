"""cuDNN's parameter blob: length, and division into cells.

Layout of the blob: for each pseudo-layer (layer-major, forward before backward) the input matrices of all
gates, then the recurrent ones, each row-major `[units, inputs]`, then the projection `[width, units]` where
there is one; only after all matrices, per pseudo-layer the input biases of all gates, then the recurrent
ones. No padding. The same order holds for every mode and dtype (apache/mxnet v1.9
python/mxnet/rnn/rnn_cell.py FusedRNNCell._slice_weights hands this blob to cuDNN as it is; tensorflow v1.15.0
stream_executor/cuda/cuda_dnn.cc CudnnRnnParamsDescriptor asks cuDNN region by region). A skipped input leaves
layer 0 without input matrices, not without biases (docs/cudnn-blob.md says what is known of both).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from cudnn_convert.errors import InvalidModelError
from cudnn_convert.model import Array, Cell, Mode, Sizes

#: The most layers that a blob of unknown sizes is tried with.
_DEPTH: Final = 8
#: Units that are looked for unasked: a length alone may be what a file claims.
_WIDEST: Final = 1 << 14


def length(sizes: Sizes) -> int:
    """Return the number of elements of the blob."""
    gates, units, width = len(sizes.mode.gates), sizes.units, sizes.width

    def count_layer(layer: int) -> int:
        inputs = 0 if layer == 0 and sizes.skip_input else sizes.inputs(layer)
        return gates * units * (inputs + width + 2) + sizes.projection * units

    # All layers but the first are alike; how many there are may be what a file claims.
    return sizes.directions * (count_layer(0) + (sizes.layers - 1) * count_layer(1))


def solve_input_size(elements: int, sizes: Sizes) -> int | None:
    """Solve for the input size of a blob of `elements` values.

    None where no size fits. `sizes.input_size` is ignored. With `sizes.skip_input` only one length is
    possible, and the input size equals the units.
    """
    without = length(replace(sizes, input_size=0))
    if sizes.skip_input:
        return sizes.units if elements == without else None
    step = sizes.directions * len(sizes.mode.gates) * sizes.units
    inputs, rest = divmod(elements - without, step)
    return inputs if rest == 0 and inputs > 0 else None


def split(blob: Array, sizes: Sizes, *, where: str) -> tuple[tuple[Cell, ...], ...]:
    """Split the 1-D `blob` into cells `[layer][direction]`, as views.

    A skipped input gives identity kernels. Raises InvalidModelError where the length differs from
    `length(sizes)`, or where a skipped input's size differs from the units.
    """
    if blob.ndim != 1 or blob.size != length(sizes):
        raise InvalidModelError(
            where, expected=f"{length(sizes)} values for {sizes}", found=f"shape {blob.shape}"
        )
    gates, units, width, offset = len(sizes.mode.gates), sizes.units, sizes.width, 0
    if sizes.skip_input and sizes.input_size != units:
        raise InvalidModelError(
            where, expected=f"an input of {units} values, which skip_input needs", found=f"{sizes.input_size}"
        )

    def take(*shape: int) -> Array:
        nonlocal offset
        start, offset = offset, offset + math.prod(shape)
        return blob[start:offset].reshape(shape)

    def matrices(layer: int) -> dict[str, Array]:
        skipped = layer == 0 and sizes.skip_input
        matrices_of = {
            "kernel": _identities(sizes, blob) if skipped else take(gates, units, sizes.inputs(layer)),
            "recurrent_kernel": take(gates, units, width),
        }
        return matrices_of | {"projection": take(width, units)} if sizes.projection else matrices_of

    ways = range(sizes.directions)
    cells = [[matrices(layer) for _ in ways] for layer in range(sizes.layers)]
    biases = [
        [{"bias": take(gates, units), "recurrent_bias": take(gates, units)} for _ in ways] for _ in cells
    ]
    return tuple(
        tuple(Cell(sizes.mode, **cells[layer][direction], **biases[layer][direction]) for direction in ways)
        for layer in range(sizes.layers)
    )


def _identities(sizes: Sizes, blob: Array) -> Array:
    """Return identity kernels `[gates, units, units]`: every gate gets the input itself."""
    identity = np.eye(sizes.units).astype(blob.dtype)
    return np.broadcast_to(identity, (len(sizes.mode.gates), *identity.shape))


def fitting(
    elements: int,
    mode: Mode | None = None,
    layers: int | None = None,
    directions: int | None = None,
    units: int | None = None,
) -> list[Sizes]:
    """Return all sizes of a linear-input blob of `elements` values, rounder units first.

    Arguments that are not None are fixed.
    """
    # A recurrent matrix, one column of another and two biases are more than the square of one unit more.
    most = min(math.isqrt(elements), _WIDEST + 1)
    partial = (
        Sizes(kind, depth, ways, width, 0)
        for kind in ([mode] if mode else Mode)
        for depth in ([layers] if layers else range(1, _DEPTH + 1))
        for ways in ([directions] if directions else (1, 2))
        for width in ([units] if units else range(1, most))
    )
    solved = ((sizes, solve_input_size(elements, sizes)) for sizes in partial)
    fitting_sizes = [replace(sizes, input_size=inputs) for sizes, inputs in solved if inputs is not None]
    return sorted(fitting_sizes, key=lambda sizes: (-math.gcd(sizes.units, 64), sizes.layers))
