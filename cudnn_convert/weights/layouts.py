"""The gate table: every order and shape of weights in sources and targets.

Only this file permutes gates, transposes kernels between conventions or sums biases. Each row cites the
definition of its order. `Cell` itself is in cuDNN's order (`Mode.gates`).

Ops without projection carry v = o*tanh(c) where cuDNN carries h = Q v, with the projection Q `[width,
units]`. With R Q in place of R their gates equal cuDNN's, and a product with Q afterwards gives h. An initial
h0 is replaced by a v0 with Q v0 = h0, which the pseudo-inverse gives where the rows of Q are independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from cudnn_convert.model import Array, Cell, Convention, Gate, Mode, Tensor, is_float
from cudnn_convert.weights import buffers

_I, _F, _C, _O = Gate.INPUT, Gate.FORGET, Gate.CELL, Gate.OUTPUT
_R, _Z, _N = Gate.RESET, Gate.UPDATE, Gate.CANDIDATE
#: The gates with a peephole on the cell state, in the order of `Cell.peepholes`.
PEEPHOLES: Final = (_I, _F, _O)
_PLAIN: Final = {Mode.RNN_TANH: (Gate.HIDDEN,), Mode.RNN_RELU: (Gate.HIDDEN,)}


@dataclass(frozen=True, slots=True)
class Layout:
    """The gate order per mode, and the defining file."""

    name: str
    gates: Mapping[Mode, tuple[Gate, ...]]
    source: str


CUDNN: Final = Layout(
    "cudnn",
    MappingProxyType({mode: mode.gates for mode in Mode}),
    "cudnnGetRNNWeightParams, cuDNN 9: the linear layer ids, as `Mode.gates` has them",
)
CONTRIB: Final = Layout(
    "contrib",
    MappingProxyType({Mode.LSTM: (_I, _C, _F, _O), Mode.GRU: (_R, _Z, _N), **_PLAIN}),
    "tensorflow v1.15.0 contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py, CudnnParamsFormatConverter*",
)
KERAS: Final = Layout(
    "keras",
    MappingProxyType({Mode.LSTM: (_I, _F, _C, _O), Mode.GRU: (_Z, _R, _N), **_PLAIN}),
    "tensorflow v1.15.0 python/keras/layers/cudnn_recurrent.py, CuDNNLSTM and CuDNNGRU _process_batch",
)
#: Keras 1 lists a kernel, a recurrent kernel and a bias for each gate.
KERAS_1: Final = Layout(
    "keras_1",
    MappingProxyType({Mode.LSTM: (_I, _C, _F, _O), Mode.GRU: (_Z, _R, _N)}),
    "keras 1.2.2 layers/recurrent.py LSTM and GRU build; keras 2.2.4 engine/saving.py "
    "preprocess_weights_for_loading",
)
BLOCK_LSTM: Final = Layout(
    "block_lstm",
    MappingProxyType({Mode.LSTM: (_I, _F, _C, _O)}),
    "tensorflow v2.21.0 core/ops/rnn_ops.cc BlockLSTMV2 (gate order ifco)",
)
BLOCK_LSTM_V1: Final = Layout(
    "block_lstm_v1",
    MappingProxyType({Mode.LSTM: (_I, _C, _F, _O)}),
    "tensorflow v1.15.0 core/ops/rnn_ops.cc BlockLSTM, LSTMBlockCell (gate order icfo)",
)
LSTM_CELL: Final = Layout(
    "lstm_cell",
    MappingProxyType({Mode.LSTM: (_I, _C, _F, _O)}),
    "tensorflow v1.15.0 contrib/rnn/python/ops/lstm_ops.py LSTMBlockCell, scope lstm_cell (i, ci, f, o)",
)
BASIC_LSTM_CELL: Final = Layout(
    "basic_lstm_cell",
    MappingProxyType({Mode.LSTM: (_I, _C, _F, _O)}),
    "tensorflow v1.15.0 python/ops/rnn_cell_impl.py BasicLSTMCell.call (i, j, f, o)",
)
LOOP: Final = Layout(
    "loop",
    MappingProxyType({Mode.LSTM: (_I, _F, _O, _C), Mode.GRU: (_R, _Z, _N), **_PLAIN}),
    "lower.tensorflow.while_loop: the sigmoid gates first, so that one Sigmoid takes them together",
)
ONNX: Final = Layout(
    "onnx",
    MappingProxyType({Mode.LSTM: (_I, _O, _F, _C), Mode.GRU: (_Z, _R, _N), **_PLAIN}),
    "onnx v1.18 docs/Operators.md LSTM (iofc), GRU (zrh), RNN (i)",
)
TORCH: Final = Layout(
    "torch",
    MappingProxyType({Mode.LSTM: (_I, _F, _C, _O), Mode.GRU: (_R, _Z, _N), **_PLAIN}),
    "pytorch v2.8.0 torch/nn/modules/rnn.py, LSTM weight_ih_l[k] (W_ii|W_if|W_ig|W_io), GRU (W_ir|W_iz|W_in)",
)
FLAX: Final = Layout(
    "flax",
    MappingProxyType({Mode.LSTM: (_I, _F, _C, _O), Mode.GRU: (_R, _Z, _N), **_PLAIN}),
    "flax v0.12.0 flax/nnx/nn/recurrent.py OptimizedLSTMCell (i, f, g, o), GRUCell (r, z, n)",
)
HAIKU: Final = Layout(
    "haiku",
    MappingProxyType({Mode.LSTM: (_I, _C, _F, _O), **_PLAIN}),
    "dm-haiku v0.0.17 haiku/_src/recurrent.py LSTM.__call__ (i, g, f, o)",
)
MXNET: Final = Layout(
    "mxnet",
    MappingProxyType({Mode.LSTM: (_I, _F, _C, _O), Mode.GRU: (_R, _Z, _N), **_PLAIN}),
    "mxnet 1.9.1 python/mxnet/rnn/rnn_cell.py LSTMCell._gate_names (_i _f _c _o), GRUCell._gate_names "
    "(_r _z _o); gluon/rnn/rnn_cell.py LSTMCell.hybrid_forward, GRUCell.hybrid_forward: the same",
)
#: The gate order that the cell packed by CONTRIB reads; a separate row, so that a wrong CONTRIB row is seen.
COMPATIBLE_GRU: Final = Layout(
    "compatible_gru",
    MappingProxyType({Mode.GRU: (_R, _Z, _N)}),
    "tensorflow v1.15.0 contrib/cudnn_rnn/python/ops/cudnn_rnn_ops.py CudnnCompatibleGRUCell.call (r, u)",
)
LAYOUTS: Final = (CONTRIB, KERAS, BLOCK_LSTM, BLOCK_LSTM_V1, LSTM_CELL, BASIC_LSTM_CELL, LOOP, ONNX)


#: The gates stored at TensorFlow's positions of `Mode.gates`, where a source differs from TensorFlow. Lingvo
#: writes canonical kernels as c, i, f, o; MIOpen keeps i, f, o, c and z, r in its blob.
_MISPLACED: Final[Mapping[str, Layout]] = MappingProxyType(
    {
        "lingvo": Layout(
            "lingvo",
            MappingProxyType({Mode.LSTM: (_C, _F, _I, _O)}),
            "lingvo core/cudnn_rnn_utils.py CudNNParamsFormatConverterLSTM",
        ),
        "miopen": Layout(
            "miopen",
            MappingProxyType({Mode.LSTM: (_I, _F, _O, _C), Mode.GRU: (_Z, _R, _N)}),
            "tf_keras v2.21.0 src/layers/rnn/lstm.py gpu_lstm, gru.py gpu_gru: is_built_with_rocm",
        ),
    }
)


def moves(mode: Mode, source: Layout, target: Layout) -> list[int]:
    """Return the position in `source` of each gate of `target`, in order."""
    return [source.gates[mode].index(gate) for gate in target.gates[mode]]


def conventional(cell: Cell, convention: Convention, *, canonical: bool) -> Cell:
    """Convert a cell decoded by TensorFlow's convention to the source's convention.

    `canonical`: decoded from canonical tensors; only those may lack a forget bias or have Lingvo's order.
    """
    layout = _MISPLACED.get(convention.gate_order)
    if layout is not None and cell.mode in layout.gates and (canonical or layout.name != "lingvo"):
        order = moves(cell.mode, layout, CUDNN)
        cell = replace(
            cell,
            kernel=cell.kernel[order],
            recurrent_kernel=cell.recurrent_kernel[order],
            bias=cell.bias[order],
            recurrent_bias=cell.recurrent_bias[order],
        )
    if canonical and cell.mode is Mode.LSTM and convention.forget_bias:
        bias = cell.bias.copy()
        bias[cell.mode.gates.index(Gate.FORGET)] += bias.dtype.type(convention.forget_bias)
        cell = replace(cell, bias=bias)
    return cell


def columns(cell: Cell, layout: Layout) -> tuple[Array, Array]:
    """Return `(kernel [inputs, gates*units], recurrent_kernel [width, gates*units])` in TensorFlow's form."""
    order = moves(cell.mode, CUDNN, layout)
    return _columns([cell.kernel], order), _columns([cell.recurrent_kernel], order)


def stack_columns(cell: Cell, layout: Layout) -> Array:
    """Return both kernels stacked, `[inputs+units, gates*units]`, for TensorFlow's LSTM ops."""
    return _columns([cell.kernel, cell.recurrent_kernel], moves(cell.mode, CUDNN, layout))


def projection_columns(cell: Cell) -> list[Array]:
    """Return the transposed projection `[units, width]` in a list; else an empty list."""
    return [] if cell.projection is None else [cell.projection.T.copy()]


def unpack_block(
    kernel: Array, bias: Array, layout: Layout, *, forget_bias: float, peepholes: Array | None
) -> Cell:
    """Decode the weights of TensorFlow's fused LSTM ops.

    kernel `[inputs+units, gates*units]`, bias `[gates*units]`, peepholes `[3, units]` for input, forget and
    output gate. `forget_bias` is what the op adds to the forget gate; the second bias is zero.
    """
    order = moves(Mode.LSTM, layout, CUDNN)
    gates = bias.reshape(len(order), -1)[order]
    units = gates.shape[1]
    gates[Mode.LSTM.gates.index(Gate.FORGET)] += forget_bias
    weights = kernel.T.reshape(len(order), units, -1)[order]
    inputs, recurrent = weights[:, :, :-units].copy(), weights[:, :, -units:].copy()
    return Cell(Mode.LSTM, inputs, recurrent, gates, np.zeros_like(gates), peepholes=peepholes)


def peephole_row(cell: Cell, layout: Layout) -> Array | None:
    """Return the peepholes `[3*units]`, with gates in the order of the layout.

    None without peepholes.
    """
    if cell.peepholes is None:
        return None
    order = [PEEPHOLES.index(gate) for gate in layout.gates[cell.mode] if gate in PEEPHOLES]
    return cell.peepholes[order].reshape(-1)


def rows(cell: Cell, layout: Layout) -> tuple[list[Array], list[Array]]:
    """Return each gate's `[units, inputs]` and `[units, units]` matrix: ONNX's convention.

    They are views of the cell's arrays, in the order of the layout.
    """
    order = moves(cell.mode, CUDNN, layout)
    return [cell.kernel[gate] for gate in order], [cell.recurrent_kernel[gate] for gate in order]


def _columns(kernels: Sequence[Array], order: Sequence[int]) -> Array:
    """Transpose kernels `[gates, units, inputs]` to columns, stacked, with gates reordered."""
    gates, units, _ = kernels[0].shape
    values = buffers.empty((sum(kernel.shape[2] for kernel in kernels), gates, units), kernels[0].dtype)
    row = 0
    for kernel in kernels:
        rows = values[row : row + kernel.shape[2]]
        for position, gate in enumerate(order):
            buffers.fill(rows[:, position], kernel[gate].T)
        row += len(rows)
    return values.reshape(len(values), gates * units)


def biases(cell: Cell, layout: Layout) -> tuple[Array, Array]:
    """Return `(bias, recurrent_bias)`, each `[gates*units]`."""
    order = moves(cell.mode, CUDNN, layout)
    return cell.bias[order].reshape(-1), cell.recurrent_bias[order].reshape(-1)


def sum_biases(cell: Cell, layout: Layout) -> Array:
    """Return the summed biases, `[gates*units]`.

    They are not valid for a GRU's candidate.
    """
    bias, recurrent_bias = biases(cell, layout)
    return np.asarray(bias + recurrent_bias)


def unpack_rows(
    mode: Mode,
    layout: Layout,
    kernels: tuple[Array, Array],
    biases: tuple[Array, Array],
    projection: Array | None = None,
) -> Cell:
    """Decode matrices of rows, the form of PyTorch and MXNet.

    kernels `[gates*units, inputs]` and `[gates*units, width]`, each bias `[gates*units]`, projection `[width,
    units]`; gates are in the order of the layout.
    """
    order = moves(mode, layout, CUDNN)
    kernel, recurrent, bias, recurrent_bias = (
        part.reshape(len(order), -1, *part.shape[1:])[order] for part in (*kernels, *biases)
    )
    return Cell(mode, kernel, recurrent, bias, recurrent_bias, projection)


def unpack_columns(
    mode: Mode,
    layout: Layout,
    kernels: tuple[Array, Array],
    biases: tuple[Array, Array],
    *,
    forget_bias: float = 0.0,
) -> Cell:
    """Decode matrices of columns, the form of JAX's libraries.

    kernels `[inputs, gates*units]` and `[units, gates*units]`, each bias `[gates*units]`; gates are in the
    order of the layout. `forget_bias` is what an LSTM's equations add to the forget gate; others have none.
    """
    order = moves(mode, layout, CUDNN)
    kernel, recurrent = (
        part.reshape(len(part), len(order), -1)[:, order].transpose(1, 2, 0) for part in kernels
    )
    bias, recurrent_bias = (part.reshape(len(order), -1)[order] for part in biases)
    if forget_bias and mode is Mode.LSTM:
        bias[mode.gates.index(Gate.FORGET)] += bias.dtype.type(forget_bias)
    return Cell(mode, kernel, recurrent, bias, recurrent_bias)


def unpack_contrib(mode: Mode, tensors: Mapping[str, Array]) -> Cell:
    """Decode the variables of TensorFlow 1's CPU-compatible cells.

    `kernel [inputs+units, gates*units]` and `bias [gates*units]`; for a GRU `gates/*` and the two projections
    of the candidate. A summed bias is split into two halves, as TensorFlow's restore does.
    """
    if mode is Mode.GRU:
        return _unpack_contrib_gru(tensors)
    order = moves(mode, CONTRIB, CUDNN)
    gates, bias = len(order), tensors["bias"].reshape(len(order), -1)[order]
    units = bias.shape[1]
    stored = tensors["kernel"].reshape(-1, gates, units)
    weights = _side_by_side([stored[:, gate] for gate in order])
    half = bias * bias.dtype.type(0.5)
    return Cell(mode, weights[:, :, :-units], weights[:, :, -units:], half, half.copy())


def _unpack_contrib_gru(tensors: Mapping[str, Array]) -> Cell:
    order = moves(Mode.GRU, CONTRIB, CUDNN)
    units = tensors["candidate/hidden_projection/bias"].shape[0]
    both = tensors["gates/kernel"].reshape(-1, 2, units)

    def gates(rows: Array, candidate: Array) -> Array:
        blocks = rows[:, 0], rows[:, 1], candidate
        return _side_by_side([blocks[gate] for gate in order])

    half = (tensors["gates/bias"] * tensors["gates/bias"].dtype.type(0.5)).reshape(2, units)
    return Cell(
        Mode.GRU,
        gates(both[:-units], tensors["candidate/input_projection/kernel"]),
        gates(both[-units:], tensors["candidate/hidden_projection/kernel"]),
        np.concatenate([half, tensors["candidate/input_projection/bias"][None]])[order],
        np.concatenate([half, tensors["candidate/hidden_projection/bias"][None]])[order],
    )


def _side_by_side(blocks: Sequence[Array]) -> Array:
    """Join blocks `[rows, units]`, each of a gate, to `[gates, units, rows]`.

    The result is a transposed view: gates are reordered, values are not transposed in memory.
    """
    count, units = blocks[0].shape
    rows = buffers.empty((count, len(blocks), units), blocks[0].dtype)
    for position, block in enumerate(blocks):
        rows[:, position] = block
    return np.asarray(rows.transpose(1, 2, 0))


def contrib_shapes(mode: Mode, *, units: int, inputs: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a cell's variables for `unpack_contrib`, by key."""
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


def unpack_keras(mode: Mode, tensors: Mapping[str, Array]) -> Cell:
    """Decode the variables of Keras' CuDNNLSTM or CuDNNGRU, shaped as in `keras_shapes`.

    The memory of a gate's block `[inputs, units]` is cuDNN's matrix `[units, inputs]`: the layer flattens the
    block without transposing it. The bias has all input biases, then all recurrent ones.
    """
    order = moves(mode, KERAS, CUDNN)
    units = tensors["recurrent_kernel"].shape[0]

    def matrices(packed: Array) -> Array:
        blocks = packed.reshape(packed.shape[0], len(order), units).transpose(1, 0, 2)[order]
        return np.ascontiguousarray(blocks).reshape(len(order), units, -1)

    bias, recurrent_bias = tensors["bias"].reshape(2, len(order), units)[:, order]
    return Cell(
        mode, matrices(tensors["kernel"]), matrices(tensors["recurrent_kernel"]), bias, recurrent_bias
    )


def keras_shapes(mode: Mode, *, units: int, inputs: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a layer's variables for `unpack_keras`, by key."""
    wide = len(mode.gates) * units
    return {"kernel": (inputs, wide), "recurrent_kernel": (units, wide), "bias": (2 * wide,)}


def find_keras_mode(weights: Sequence[Tensor]) -> Mode | None:
    """Return the mode of weights shaped as in `keras_shapes`, in the same order.

    Returns None where no layer has such weights.
    """
    shapes = [weight.shape for weight in weights]
    if [*map(len, shapes)] != [2, 2, 1] or not all(is_float(weight.dtype) for weight in weights):
        return None
    inputs, units = shapes[0][0], shapes[1][0]
    for mode in (Mode.LSTM, Mode.GRU):
        if units and inputs and shapes == [*keras_shapes(mode, units=units, inputs=inputs).values()]:
            return mode
    return None


def pack_cell(cell: Cell, layout: Layout, *, forget_bias: float = 0.0) -> dict[str, Array]:
    """Return the variables of a TensorFlow 1 CPU cell, with the keys of `contrib_shapes`.

    `forget_bias` is what the LSTM cell adds to its forget gate, and is subtracted here.
    """
    kernel, recurrent = columns(cell, layout)
    if cell.mode is not Mode.GRU:
        bias = sum_biases(cell, layout)
        if forget_bias:
            bias = bias - forget_row(cell, layout, forget_bias)
        return {"kernel": np.concatenate([kernel, recurrent]), "bias": bias}
    units = recurrent.shape[0]
    bias, recurrent_bias = biases(cell, layout)
    candidate = 2 * units  # last in every layout; its tensors are separate
    return {
        "gates/kernel": np.concatenate([kernel[:, :candidate], recurrent[:, :candidate]]),
        "gates/bias": (bias + recurrent_bias)[:candidate],
        "candidate/input_projection/kernel": kernel[:, candidate:].copy(),
        "candidate/input_projection/bias": bias[candidate:].copy(),
        "candidate/hidden_projection/kernel": recurrent[:, candidate:].copy(),
        "candidate/hidden_projection/bias": recurrent_bias[candidate:].copy(),
    }


def forget_row(cell: Cell, layout: Layout, value: float) -> Array:
    """Return a row `[gates*units]`: `value` for the forget gate, 0 elsewhere."""
    row = np.zeros_like(cell.bias)
    row[layout.gates[cell.mode].index(Gate.FORGET)] = value
    return row.reshape(-1)


def one_bias(cell: Cell) -> Cell:
    """Return the cell with zero recurrent biases, except for a GRU's candidate.

    For optimizer slots: TensorFlow's cells have one summed bias, whose slot is that of one bias, not the sum.
    """
    kept = cell.recurrent_bias.copy()
    kept[[gate is not Gate.CANDIDATE for gate in cell.mode.gates]] = 0
    return replace(cell, recurrent_bias=kept)


def pack_keras(cell: Cell) -> dict[str, Array]:
    """Return the variables of Keras' LSTM, SimpleRNN, or GRU with `reset_after`.

    `kernel [inputs, gates*units]`, `recurrent_kernel [units, gates*units]`, `bias [gates*units]`, the sum of
    both, or `[2, 3*units]` of a GRU, input biases first. Source: tf_keras v2.21.0
    src/saving/legacy/hdf5_format.py `_convert_rnn_weights`.
    """
    kernel, recurrent = columns(cell, KERAS)
    bias = np.stack(biases(cell, KERAS)) if cell.mode is Mode.GRU else sum_biases(cell, KERAS)
    return {"kernel": kernel, "recurrent_kernel": recurrent, "bias": bias}


def scale_keras(mode: Mode, weights: Array, factor: float) -> Array:
    """Scale the sigmoid gates of a Keras LSTM or GRU weight by `factor`.

    Gates are on the last axis. The weights enter linearly, so that each sigmoid gets `factor * x`.
    """
    gates = KERAS.gates[mode]
    factors = [1.0 if gate in {Gate.CELL, Gate.CANDIDATE} else factor for gate in gates]
    row = np.repeat(factors, weights.shape[-1] // len(gates))
    return np.asarray(weights * row.astype(weights.dtype))


#: Largest error of Q v0 for h0 of size 1 where a loop could be used instead: some thirty roundings of
#: float32, in which all such kernels run.
_ACCURATE: Final = 2e-6
#: The same where there is no alternative; the proof of the whole model judges errors in between.
_SOLVABLE: Final = 1e-3


def fold_projection(cell: Cell) -> Cell:
    """Return a projection-free cell with equal gates, in float32.

    `cell` itself if it has no projection.
    """
    if cell.projection is None:
        return cell
    recurrent = cell.recurrent_kernel.astype(np.float64) @ cell.projection.astype(np.float64)
    parts = (cell.kernel, recurrent, cell.bias, cell.recurrent_bias)
    return Cell(cell.mode, *(part.astype(np.float32) for part in parts))


def invert_projection(cell: Cell) -> Array | None:
    """Return the matrix `[width, units]` from h0 to v0, in float32.

    None without a projection, or where its rows are linearly dependent as far as float32 can tell.
    """
    return _pseudo_inverse(cell, _SOLVABLE)


def can_invert_projection(cell: Cell) -> bool:
    """Return True if projection-free ops are able to compute `cell`."""
    return cell.projection is None or _pseudo_inverse(cell, _SOLVABLE) is not None


def inverts_accurately(cell: Cell) -> bool:
    """Return True if projection-free ops compute `cell` with usual accuracy."""
    return cell.projection is None or _pseudo_inverse(cell, _ACCURATE) is not None


def _pseudo_inverse(cell: Cell, bound: float) -> Array | None:
    if cell.projection is None or not np.isfinite(cell.projection).all():
        return None
    projection = cell.projection.astype(np.float64)
    inverse = np.linalg.pinv(projection).astype(np.float32)
    miss = projection @ inverse.astype(np.float64) - np.eye(len(projection))
    return inverse.T.copy() if np.abs(miss).max() <= bound else None
