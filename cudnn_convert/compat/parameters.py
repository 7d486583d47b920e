"""Parameter blobs as tensors: cuDNN's matrices, and TensorFlow 1's canonical tensors.

Three forms of the same weights, each converted to its neighbours:

* the blob, 1-D, as cuDNN packs it: the variable `opaque_kernel`;
* cuDNN's matrices `[units, inputs]` and biases `[units]`, in the order in which they lie in the blob;
* canonical tensors, the variables of TensorFlow 1's CPU cells: what checkpoints have beside the blob.

Places in the blob come from `weights.lazy`, gate orders from `weights.layouts`.
Source: tensorflow v1.15.0 contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, CudnnParamsFormatConverter*.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import tensorflow as tf

from cudnn_convert.model import Cell, Mode, Sizes
from cudnn_convert.weights import layouts, parameter_blob

#: Where a region lies in the blob, and its shape.
Region = tuple[int, tuple[int, ...]]


@lru_cache
def regions(sizes: Sizes) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """Return the regions of all matrices and of all biases, in pseudo-layer order.

    A pseudo-layer has its input matrices, its recurrent ones and an LSTM's projection; then bW, bR.
    """
    places = parameter_blob.split(np.arange(parameter_blob.length(sizes)), sizes, where="params")
    matrices, biases = [], []
    for number, layer in enumerate(places):
        for cell in layer:
            matrices += [_region(part) for part in _matrices(cell, skipped=sizes.skip_input and number == 0)]
            biases += [_region(part) for part in (*cell.bias, *cell.recurrent_bias)]
    return tuple(matrices), tuple(biases)


def _matrices(cell: Cell, *, skipped: bool) -> Iterator[Any]:
    if not skipped:
        yield from cell.kernel
    yield from cell.recurrent_kernel
    if cell.projection is not None:
        yield cell.projection


def _region(places: Any) -> Region:
    return int(places.flat[0]), places.shape


def split(blob: Any, sizes: Sizes) -> tuple[list[Any], list[Any]]:
    """Return cuDNN's matrices and biases of a blob, in the order of `regions`.

    One op splits the blob, so that its gradient is one concatenation.
    """
    matrices, biases = regions(sizes)
    every = [*matrices, *biases]
    order = sorted(range(len(every)), key=every.__getitem__)
    parts = tf.split(blob, [int(np.prod(every[number][1])) for number in order])
    tensors: list[Any] = [None] * len(every)
    for number, part in zip(order, parts, strict=True):
        tensors[number] = tf.reshape(part, every[number][1])
    return tensors[: len(matrices)], tensors[len(matrices) :]


def join(matrices: Sequence[Any], biases: Sequence[Any], sizes: Sizes) -> Any:
    """Return the blob of matrices and biases of any rank, in the order of `regions`.

    Raises ValueError where their number is another.
    """
    matrices_of, biases_of = regions(sizes)
    places, given = [*matrices_of, *biases_of], [*matrices, *biases]
    if (len(matrices), len(biases)) != (len(matrices_of), len(biases_of)):
        raise ValueError(
            f"canonical parameters: expected {len(matrices_of)} matrices and {len(biases_of)} biases, found "
            f"{len(matrices)} and {len(biases)}"
        )
    order = sorted(range(len(places)), key=places.__getitem__)
    return tf.concat([tf.reshape(given[number], [int(np.prod(places[number][1]))]) for number in order], 0)


def _per_cell(matrices: Sequence[Any], biases: Sequence[Any], sizes: Sizes) -> Iterator[tuple[Any, ...]]:
    """Yield each pseudo-layer's W, R, bW and bR, and any projection in a list.

    W, R, bW and bR are lists in cuDNN's gate order. A skipped input has no W.
    """
    gates, first = len(sizes.mode.gates), 0
    for number in range(sizes.layers * sizes.directions):
        inputs = 0 if sizes.skip_input and number < sizes.directions else gates
        end = first + inputs + gates + bool(sizes.projection)
        own = matrices[first:end]
        first = end
        both = biases[2 * gates * number : 2 * gates * (number + 1)]
        yield own[:inputs], own[inputs : inputs + gates], both[:gates], both[gates:], own[inputs + gates :]


def to_canonical(
    matrices: Sequence[Any], biases: Sequence[Any], sizes: Sizes
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return canonical weights, biases and projections, in pseudo-layer order.

    `kernel [inputs+width, gates*units]`, `bias [gates*units]`; a GRU has the three of `contrib_shapes` of
    each; projections are `[units, width]`.
    """
    weights, sums, projections = [], [], []
    order = layouts.moves(sizes.mode, layouts.CUDNN, layouts.CONTRIB)
    for kernel, recurrent, bias, recurrent_bias, projection in _per_cell(matrices, biases, sizes):
        columns = [tf.transpose(tf.concat([kernel[gate], recurrent[gate]], 1)) for gate in order]
        added = [bias[gate] + recurrent_bias[gate] for gate in order]
        if sizes.mode is Mode.GRU:
            *_, last = order  # the candidate's tensors are separate
            weights += [tf.concat(columns[:-1], 1), tf.transpose(kernel[last]), tf.transpose(recurrent[last])]
            sums += [tf.concat(added[:-1], 0), bias[last], recurrent_bias[last]]
        else:
            weights.append(tf.concat(columns, 1))
            sums.append(tf.concat(added, 0))
        projections += [tf.transpose(matrix) for matrix in projection]
    return weights, sums, projections


def from_canonical(
    weights: Sequence[Any], biases: Sequence[Any], projections: Sequence[Any], sizes: Sizes
) -> tuple[list[Any], list[Any]]:
    """Return cuDNN's matrices and biases of canonical tensors; a summed bias becomes two halves."""
    each = CANONICAL[sizes.mode]
    order = layouts.moves(sizes.mode, layouts.CONTRIB, layouts.CUDNN)
    matrices, halves = [], []
    for number in range(sizes.layers * sizes.directions):
        own = slice(each * number, each * (number + 1))
        gates = len(order) - (sizes.mode is Mode.GRU)
        inputs = sizes.inputs(number // sizes.directions)
        kernel, *candidate = weights[own]
        bias, *candidate_biases = biases[own]
        rows = tf.split(tf.transpose(kernel), gates)
        blocks = [tf.split(row, [inputs, sizes.width], 1) for row in rows]
        half = [(part, part) for part in tf.split(bias * 0.5, gates)]
        if sizes.mode is Mode.GRU:
            blocks.append([tf.transpose(part) for part in candidate])
            half.append(tuple(candidate_biases))
        for side in (0, 1):
            matrices += [blocks[gate][side] for gate in order]
        matrices += [tf.transpose(matrix) for matrix in projections[number : number + 1]]
        for side in (0, 1):
            halves += [half[gate][side] for gate in order]
    return matrices, halves


#: Canonical weights, and as many biases, of a pseudo-layer.
CANONICAL: Final = {Mode.LSTM: 1, Mode.GRU: 3, Mode.RNN_TANH: 1, Mode.RNN_RELU: 1}


def for_lowering(blob: Any, sizes: Sizes, *, block: bool) -> list[Any]:
    """Return the arrays of all pseudo-layers, as handed to a layer by `layer_stack.stack_layers`.

    With `block` those of `layer_stack.block_layer`, else those of `while_loop.layer`, a GRU's with the
    columns of all gates.
    """
    target = layouts.BLOCK_LSTM_V1 if block else layouts.LOOP
    order = layouts.moves(sizes.mode, layouts.CUDNN, target)
    arrays: list[Any] = []
    for kernel, recurrent, bias, recurrent_bias, projection in _per_cell(*split(blob, sizes), sizes):
        # A skipped input is added to every gate as it is.
        inputs = [kernel[gate] if kernel else tf.eye(sizes.units, dtype=blob.dtype) for gate in order]
        both = tf.concat(inputs, 0), tf.concat([recurrent[gate] for gate in order], 0)
        added = [tf.concat([part[gate] for gate in order], 0) for part in (bias, recurrent_bias)]
        arrays += [tf.transpose(tf.concat(both, 1))] if block else [tf.transpose(part) for part in both]
        arrays += added if sizes.mode is Mode.GRU else [added[0] + added[1]]
        arrays += [tf.transpose(matrix) for matrix in projection]
    return arrays
